"""Storage nodes as whole machines: filled from each other, cut off, without power, full."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from activities.secrets.cache_certificates import cache_token, region_authority, server_identity
from activities.settings import settings
from tests.lab.agent import ROOT, Agent, AgentRefusedError, agent_on
from tests.lab.fixtures import BootMachine
from tests.lab.machine import Machine
from tests.lab.machines import Lab

REGION = "reg-lab"
MAKE = (
    "mkdir -p /tmp/c; head -c {size} /dev/urandom > /tmp/c/big; "
    "tar czf /tmp/{name} -C /tmp/c big; sha256sum /tmp/{name}"
)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("BASELOAD_SECRETS_KEY", "5" * 64)
    settings.cache_clear()
    yield
    settings.cache_clear()


class Store:
    """A storage node of the lab's region."""

    def __init__(self, machine: Machine, agent: Agent) -> None:
        self.machine, self.agent = machine, agent

    async def serve(self, **more: object) -> None:
        asked = {
            "port": 8710,
            "identity": server_identity(REGION, self.machine.name, self.machine.address),
            "token": cache_token(REGION),
            **more,
        }
        prepared = await self.agent.call("prepare", exclusive=False, cache=asked)
        assert prepared["cache"] == {
            "address": f"{self.machine.address}:8710", "is_secure": True, "reason": None,
        }  # fmt: skip

    @property
    def access(self) -> dict[str, Any]:
        return {
            "cache": f"{self.machine.address}:8710",
            "cache_authority": region_authority(REGION),
            "cache_token": cache_token(REGION),
        }

    async def keep(self, name: str, size: int = 300_000) -> str:
        """Keep an archive of code; its hash."""
        said = self.machine.run("sh", "-c", MAKE.format(name=name, size=size))
        sha256 = said.split()[0]
        await self.agent.call("keep_code", sha256=sha256, archive=f"/tmp/{name}")
        return sha256

    def kept(self) -> list[str]:
        return sorted(self.machine.run("ls", f"{ROOT}/cache/code").split())

    async def fill(self, source: Store) -> dict[str, Any]:
        return await self.agent.call("fill_cache", limit_s=60, **source.access)


async def fetched(agent: Agent, store: Store, sha256: str) -> str:
    asked = {"max_archive_bytes": 1 << 30, "max_bytes": 1 << 30}
    answer = await agent.call("fetch_code", sha256=sha256, **asked, **store.access)
    return str(answer["found"])


@pytest.fixture
async def machines(lab: Lab, boot_machine: BootMachine) -> AsyncIterator[list[Store]]:
    """Three machines, of which the first serves a cache."""
    async with AsyncExitStack() as stack:
        found = []
        for _ in range(3):
            machine = boot_machine("sshd")
            found.append(Store(machine, await stack.enter_async_context(agent_on(lab, machine))))
        await found[0].serve()
        yield found


async def test_a_new_storage_node_has_everything_before_the_old_one_loses_its_power(
    machines: list[Store],
) -> None:
    old, new, worker = machines
    held = sorted([await old.keep("a.tgz"), await old.keep("b.tgz")])
    assert await fetched(worker.agent, old, held[0]) == "fetched"
    await new.serve()
    old.machine.cut_network()
    away = await new.fill(old)
    assert (away["files"], away["left_files"], bool(away["reason"])) == (0, 1, True)
    old.machine.heal_network()
    filled = await new.fill(old)
    assert (filled["files"], filled["left_files"], filled["reason"]) == (2, 0, "")
    assert new.kept() == old.kept() == held
    owner = new.machine.run("stat", "-c", "%U", f"{ROOT}/cache/code/{held[0]}").strip()
    assert owner == "baseload-cache"
    old.machine.power_cut()
    assert await fetched(worker.agent, new, held[1]) == "fetched"
    assert await fetched(worker.agent, old, held[0]) == "here"  # It goes on with what it has.
    assert await fetched(worker.agent, old, "0" * 64) == "unreached"


async def test_a_full_disk_is_refused_and_said_and_leaves_what_is_there(
    machines: list[Store],
) -> None:
    _, store, worker = machines
    store.machine.small_disk(f"{ROOT}/cache", 150)
    await store.serve(max_bytes=1 << 30)
    small = await store.keep("small.tgz")
    with pytest.raises(AgentRefusedError) as refused:
        await store.keep("large.tgz", 40 << 20)
    assert refused.value.code == "cache-full"
    answer = await store.agent.call("orphans", live=[], among=[], leaving=[])
    assert "asked to keep" in answer["cache_full"]
    assert await fetched(worker.agent, store, small) == "fetched"
    await store.keep("other.tgz")
    answer = await store.agent.call("orphans", live=[], among=[], leaving=[])
    assert answer["cache_full"] is None
