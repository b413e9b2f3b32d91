"""The pool of links alone, with connections that are none: what is opened, shared and closed."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from activities.transport import pool as pools
from activities.transport.endpoint import NodeEndpoint
from activities.transport.errors import NodeUnreachable
from activities.transport.pool import CHANNELS, REFUSED_S, Link, LinkPool
from tests.activities.waiting import wait_until

HERE, THERE = (NodeEndpoint(host, 22, "root", "SHA256:x") for host in ("10.0.0.1", "10.0.0.2"))


class Connection:
    """What a link needs of a connection."""

    def __init__(self) -> None:
        self.closed: list[str] = []

    def is_closed(self) -> bool:
        return bool(self.closed)

    def close(self) -> None:
        self.closed.append("closed")

    def abort(self) -> None:
        self.closed.append("aborted")

    async def wait_closed(self) -> None:
        self.closed.append("awaited")


class Machine:
    """Where links are opened: at once, or when the test lets them."""

    def __init__(self, idle_s: float = 60) -> None:
        self.opened: list[NodeEndpoint] = []
        self.connections: list[Connection] = []
        self.lets = asyncio.Event()
        self.lets.set()
        self.failure: Exception | None = None
        self.pool = LinkPool(self._open, idle_s)

    async def _open(self, endpoint: NodeEndpoint) -> Link:
        self.opened.append(endpoint)
        await self.lets.wait()
        if self.failure is not None:
            raise self.failure
        self.connections.append(Connection())
        connection: Any = self.connections[-1]
        return Link(connection, "/root", "/root/agent.pyz", "python3")


async def held(machine: Machine, count: int, endpoint: NodeEndpoint = HERE) -> list[Any]:
    """So many channels in use, each in its block."""
    blocks = [machine.pool.link(endpoint) for _ in range(count)]
    for block in blocks:
        await block.__aenter__()
    return blocks


async def let_go(blocks: list[Any]) -> None:
    for block in blocks:
        await block.__aexit__(None, None, None)


async def test_a_link_is_shared_up_to_its_channels_and_by_one_node_alone() -> None:
    machine = Machine()
    blocks = await held(machine, CHANNELS)
    assert machine.opened == [HERE]
    blocks += await held(machine, 1)
    blocks += await held(machine, 1, THERE)
    assert machine.opened == [HERE, HERE, THERE]
    await let_go(blocks)
    await let_go(await held(machine, CHANNELS + 1))
    assert len(machine.opened) == 3


async def test_who_waits_shares_one_attempt_and_its_failure() -> None:
    machine = Machine()
    machine.lets.clear()
    machine.failure = NodeUnreachable("10.0.0.1", 22, "no route")
    calls = [asyncio.create_task(held(machine, 1)) for _ in range(3)]
    await wait_until(lambda: machine.opened, "the attempt")
    calls.pop().cancel()
    machine.lets.set()
    for call in calls:
        with pytest.raises(NodeUnreachable):
            await call
    assert machine.opened == [HERE]
    machine.failure = None
    await let_go(await held(machine, 1))
    assert machine.opened == [HERE, HERE]


async def test_a_link_for_which_nobody_waits_any_more_is_closed_when_idle() -> None:
    machine = Machine(idle_s=0.05)
    machine.lets.clear()
    call = asyncio.create_task(held(machine, 1))
    await wait_until(lambda: machine.opened, "the attempt")
    call.cancel()
    machine.lets.set()
    await wait_until(lambda: machine.connections, "the link")
    await wait_until(lambda: machine.connections[0].closed, "its end")
    assert machine.opened == [HERE]


@pytest.mark.parametrize("breaks", ["closed", "gone"])
async def test_a_broken_link_is_replaced(breaks: str) -> None:
    machine = Machine()
    async with machine.pool.link(HERE) as link:
        if breaks == "closed":
            machine.connections[0].close()
        else:
            link.note_refusal(is_gone=True)
    async with machine.pool.link(HERE) as other:
        assert other is not link
    assert len(machine.opened) == 2


async def test_an_idle_link_is_closed_and_one_in_use_is_not() -> None:
    machine = Machine(idle_s=0.05)
    async with machine.pool.link(HERE):
        async with machine.pool.link(THERE):
            pass
        await wait_until(lambda: machine.connections[1].closed, "the idle link to go")
        assert machine.connections[0].closed == []
    await wait_until(lambda: machine.connections[0].closed, "the other one, too")
    assert [each.closed for each in machine.connections] == [["closed"], ["closed"]]
    assert machine.pool._nodes == {}
    await let_go(await held(machine, 1))
    assert len(machine.opened) == 3


async def test_a_link_that_is_used_again_in_time_stays() -> None:
    machine = Machine()
    async with machine.pool.link(HERE) as link:
        assert link.idle is None
    ends = link.idle
    assert ends is not None
    assert not ends.cancelled()
    async with machine.pool.link(HERE) as again:
        assert again is link
        assert ends.cancelled()
        assert link.idle is None
    await machine.pool.close()


async def test_a_held_channel_counts_until_it_is_released_once() -> None:
    machine = Machine(idle_s=0.05)
    async with machine.pool.link(HERE) as link:
        release = machine.pool.hold(HERE, link)
        assert link.channels == 2
    assert link.channels == 1
    assert link.idle is None
    release()
    release()
    assert link.channels == 0
    await wait_until(lambda: machine.connections[0].closed, "the idle link to go")


async def test_a_server_that_refuses_a_channel_is_asked_for_fewer_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr(pools, "time", SimpleNamespace(monotonic=lambda: now))
    machine = Machine()
    async with machine.pool.link(HERE) as link:
        link.note_refusal(is_gone=False)
        assert not link.is_broken()
        assert (link.most, link.has_room()) == (1, False)
        link.channels += 3
        link.note_refusal(is_gone=False)
        assert link.most == 3
        link.channels -= 2
        assert link.has_room()
        now += REFUSED_S - 1
        link.channels += 1
        assert not link.has_room()
        now += 2
        assert (link.has_room(), link.most) == (True, CHANNELS)
        link.channels -= 1


async def test_who_closes_the_pool_closes_every_link_and_ends_what_is_being_opened() -> None:
    machine = Machine()
    async with machine.pool.link(HERE) as link:
        pass
    machine.lets.clear()
    opening = asyncio.create_task(held(machine, 1, THERE))
    await wait_until(lambda: THERE in machine.opened, "the attempt")
    await machine.pool.close()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert machine.connections[0].closed == ["aborted", "awaited"]
    assert link.idle is not None
    assert link.idle.cancelled()
