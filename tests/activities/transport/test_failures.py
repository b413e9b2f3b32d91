"""How failures of SSH are read: what was surely not done, and of what nobody knows."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import asyncssh
import pytest

from activities.transport import pinned, shell, ssh
from activities.transport.agent_archive import agent_archive
from activities.transport.endpoint import NodeEndpoint
from activities.transport.errors import (
    AgentBroke,
    HostKeyMismatch,
    LoginRefused,
    NodeUnreachable,
    OutcomeUnknown,
)
from activities.transport.pool import Link
from activities.transport.ssh import CHANNEL_TRIES, CLOSED, NodeConnections

KEY = asyncssh.generate_private_key("ssh-ed25519")
NODE = NodeEndpoint("10.0.0.1", 22, "root", "SHA256:x", "/root")
UNKNOWN_TYPE = asyncssh.OPEN_UNKNOWN_CHANNEL_TYPE


class Connection:
    """A connection on which nothing can be opened, for this reason."""

    breaks = False
    """Whether it is closed with that."""

    def __init__(self, failure: Exception) -> None:
        self.failure = failure
        self.closed = False
        self.aborts = 0

    async def create_process(self, *_: object, **__: object) -> None:
        self.closed = self.breaks
        raise self.failure

    def is_closed(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.aborts += 1


def connections(
    monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> tuple[NodeConnections, list[Link]]:
    """A pool whose links all fail so, and the links that it has opened."""
    opened: list[Link] = []

    async def connect(*_: object) -> Any:
        return Connection(failure)

    async def with_agent(connection: Any, _: NodeEndpoint) -> Link:
        opened.append(Link(connection, "/root", "/root/agent.pyz", "python3"))
        return opened[-1]

    monkeypatch.setattr(pinned, "connect", connect)
    monkeypatch.setattr(ssh, "_with_agent", with_agent)
    return NodeConnections(KEY), opened


@pytest.mark.parametrize("code", ssh.CHANNEL_NEVER_OPENED)
@pytest.mark.parametrize("reason", [CLOSED, "no more sessions"])
async def test_a_channel_that_never_opened_is_tried_over_other_links(
    monkeypatch: pytest.MonkeyPatch, code: int, reason: str
) -> None:
    pool, opened = connections(monkeypatch, asyncssh.ChannelOpenError(code, reason))
    with pytest.raises(NodeUnreachable) as raised:
        await pool.call(NODE, "status", {}, limit_s=9)
    assert (raised.value.host, raised.value.port, raised.value.cause) == ("10.0.0.1", 22, reason)
    assert isinstance(raised.value.__cause__, asyncssh.ChannelOpenError)
    assert [link.is_gone for link in opened] == [reason == CLOSED] * len(opened)
    assert len(opened) == (CHANNEL_TRIES if reason == CLOSED else 1)


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (asyncssh.ChannelOpenError(UNKNOWN_TYPE, "what?"), OutcomeUnknown),
        (asyncssh.ConnectionLost("gone"), OutcomeUnknown),
        (BrokenPipeError("gone"), OutcomeUnknown),
        (asyncssh.SFTPFailure("disk full"), AgentBroke),
    ],
)
async def test_any_other_failure_is_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, failure: Exception, kind: type[Exception]
) -> None:
    pool, opened = connections(monkeypatch, failure)
    with pytest.raises(kind, match=r"node 10\.0\.0\.1:22: status: "):
        await pool.call(NODE, "status", {}, limit_s=9)
    assert len(opened) == 1


async def test_a_file_that_breaks_with_its_connection_may_be_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Connection, "breaks", True)
    pool, opened = connections(monkeypatch, asyncssh.SFTPFailure("gone"))
    with pytest.raises(OutcomeUnknown, match="gone"):
        await pool.call(NODE, "status", {}, limit_s=9)
    assert len(opened) == 1


async def test_a_limit_is_its_own_and_a_timeout_within_is_passed_on() -> None:
    with pytest.raises(OutcomeUnknown, match=r"^node n: status: no answer within 0\.01 s$"):
        async with ssh._limited(0.01, "node n: status"):
            await asyncio.Event().wait()
    with pytest.raises(TimeoutError, match="another"):
        async with ssh._limited(9, "node n: status"):
            raise TimeoutError("another")


@pytest.mark.parametrize("form", ["key", "text", "path"])
async def test_a_key_is_read_once_in_each_form(form: str, tmp_path: Any) -> None:
    text = KEY.export_private_key()
    path = tmp_path / "key"
    path.write_bytes(text)
    pool = NodeConnections({"key": KEY, "text": text, "path": path}[form])
    key = await pool._key()
    assert key.get_fingerprint() == KEY.get_fingerprint()
    path.unlink()
    assert await pool._key() is key


class Process:
    """A process that says this, and ends with this status."""

    def __init__(self, said: bytes, status: int | None, stderr: bytes = b"") -> None:
        self.exit_status = status
        self.stdout = SimpleNamespace(read=_once(said))
        self.stderr = SimpleNamespace(read=_once(stderr))
        self.closed = 0

    def close(self) -> None:
        self.closed += 1

    async def wait_closed(self) -> None:
        pass


def _once(content: bytes) -> Callable[[int], Any]:
    left = [content, b""]

    async def read(_: int) -> bytes:
        return left.pop(0) if left else b""

    return read


def first_contact(
    monkeypatch: pytest.MonkeyPatch, said: str, status: int | None
) -> tuple[Any, Process, list[str]]:
    """The first contact with a machine that answers so, its process, and where it is told."""
    monkeypatch.setattr(shell, "new_marker", lambda: "marker")
    process = Process(f"banner\nmarker\n{said}".encode(), status, b" no python \n")
    put: list[str] = []

    async def create_process(command: str, *, encoding: None) -> Process:
        assert encoding is None
        assert "marker" in command
        return process

    async def put_agent(link: Link, words: str) -> None:
        put.append(f"{link.archive} {words}")

    monkeypatch.setattr(ssh, "_put_agent", put_agent)
    connection: Any = SimpleNamespace(create_process=create_process)
    return ssh._with_agent(connection, NODE), process, put


@pytest.mark.parametrize("is_there", [True, False])
async def test_the_agent_is_put_where_another_or_none_is(
    monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    agent = agent_archive()
    said = f"/srv\n/usr/bin/python3\n{agent.sha256 if is_there else ''}\n"
    contact, process, put = first_contact(monkeypatch, said, 0)
    link = await contact
    assert (link.root, link.python) == ("/srv", "/usr/bin/python3")
    assert link.archive == f"/srv/agent/{agent.name}"
    words = f"/srv/agent/{agent.name} node 10.0.0.1:22: first contact"
    assert put == ([] if is_there else [words])
    assert process.closed == 1


@pytest.mark.parametrize(
    ("said", "status", "kind", "says"),
    [
        ("/srv\npython3\n\n", 1, AgentBroke, "first contact: no python"),
        ("/srv\npython3\n", 0, AgentBroke, "first contact: no python"),
        ("/srv\npython3\n\nmore\n", 0, AgentBroke, "first contact: no python"),
        ("/srv\npython3\n\n", None, OutcomeUnknown, "first contact: the connection was lost"),
    ],
)
async def test_a_first_contact_that_fails_says_why(
    monkeypatch: pytest.MonkeyPatch,
    said: str,
    status: int | None,
    kind: type[Exception],
    says: str,
) -> None:
    contact, process, put = first_contact(monkeypatch, said, status)
    with pytest.raises(kind, match=says):
        await contact
    assert (put, process.closed) == ([], 1)


@pytest.mark.parametrize(
    ("failure", "kind"),
    [(asyncssh.ConnectionLost("gone"), OutcomeUnknown), (ConnectionResetError(), OutcomeUnknown)],
)
async def test_a_connection_without_a_first_contact_is_aborted(
    monkeypatch: pytest.MonkeyPatch, failure: Exception, kind: type[Exception]
) -> None:
    made = Connection(failure)

    async def connect(endpoint: NodeEndpoint, key: asyncssh.SSHKey) -> Any:
        assert (endpoint, key) == (NODE, KEY)
        return made

    monkeypatch.setattr(pinned, "connect", connect)
    with pytest.raises(kind, match="first contact"):
        await NodeConnections(KEY)._open_link(NODE)
    assert made.aborts == 1


@pytest.mark.parametrize(
    ("failure", "kind", "says"),
    [
        (asyncssh.SFTPFailure("disk full"), AgentBroke, "first contact: /a.pyz: disk full"),
        (asyncssh.ConnectionLost("gone"), OutcomeUnknown, "first contact: gone"),
        (ConnectionResetError("reset"), OutcomeUnknown, "first contact: reset"),
    ],
)
async def test_an_agent_that_cannot_be_put_is_told_by_its_kind(
    failure: Exception, kind: type[Exception], says: str
) -> None:
    @contextlib.asynccontextmanager
    async def start_sftp_client() -> AsyncIterator[None]:
        raise failure
        yield

    connection: Any = SimpleNamespace(start_sftp_client=start_sftp_client)
    with pytest.raises(kind, match=says):
        await ssh._put_agent(Link(connection, "/", "/a.pyz", "python3"), "node n: first contact")


class Machine:
    """What answers each try to connect, and what it was asked."""

    def __init__(self, *answers: Exception | str) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, Any]] = []

    async def connect(self, client: Callable[[], Any], host: str, port: int, **asked: Any) -> Any:
        self.asked.append({"host": host, "port": port, **asked})
        answer = self.answers.pop(0)
        if isinstance(answer, str):  # the fingerprint of the key that it shows
            key: Any = SimpleNamespace(get_fingerprint=lambda _: answer)
            if client().validate_host_public_key(host, host, port, key):
                return "connected", None
            raise asyncssh.HostKeyNotVerifiable("not that one")
        raise answer


def connecting(monkeypatch: pytest.MonkeyPatch, *answers: Exception | str) -> Machine:
    machine = Machine(*answers)
    monkeypatch.setattr(asyncssh, "create_connection", machine.connect)
    return machine


LACKS = asyncssh.KeyExchangeFailed("no such key")


@pytest.mark.parametrize(
    "answers",
    [
        ["SHA256:x"],
        ["SHA256:a", "SHA256:x"],
        ["SHA256:a", LACKS, "SHA256:b", "SHA256:x"],
        ["SHA256:a", asyncssh.ConnectionLost("x"), ConnectionResetError("x"), "SHA256:x"],
    ],
)
async def test_each_family_of_keys_is_tried_until_the_nodes_own_is_shown(
    monkeypatch: pytest.MonkeyPatch, answers: list[Exception | str]
) -> None:
    machine = connecting(monkeypatch, *answers)
    found: Any = await pinned.connect(NODE, KEY)
    assert found == "connected"
    families = [asked["server_host_key_algs"] for asked in machine.asked]
    assert families == [(), *pinned.HOST_KEY_FAMILIES][: len(answers)]
    (asked, *_) = machine.asked
    assert asked == {
        "host": "10.0.0.1", "port": 22, "username": "root", "client_keys": [KEY],
        "known_hosts": ([], [], []), "server_host_key_algs": (),
        "encryption_algs": pinned.CIPHERS, "compression_algs": None,
        "preferred_auth": ["publickey"], "config": None, "agent_path": None,
        "connect_timeout": 10, "login_timeout": 10, "keepalive_interval": 5,
        "keepalive_count_max": 3,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        ([LACKS], NodeUnreachable),
        ([asyncssh.ConnectionLost("reset")], NodeUnreachable),
        ([OSError("no route")], NodeUnreachable),
        ([TimeoutError()], NodeUnreachable),
        (["SHA256:a", OSError("no route")], NodeUnreachable),
        ([asyncssh.PermissionDenied("no")], LoginRefused),
        (["SHA256:a", LACKS, LACKS, LACKS], HostKeyMismatch),
    ],
)
async def test_a_connection_that_fails_is_told_by_its_kind(
    monkeypatch: pytest.MonkeyPatch, answers: list[Exception | str], kind: type[Exception]
) -> None:
    machine = connecting(monkeypatch, *answers)
    with pytest.raises(kind):
        await pinned.connect(NODE, KEY)
    assert machine.answers == []


async def test_who_does_not_answer_is_not_told_by_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    connecting(monkeypatch, TimeoutError())
    with pytest.raises(NodeUnreachable) as raised:
        await pinned.connect(NODE, KEY)
    assert raised.value.cause == "no answer within 10 s"
    connecting(monkeypatch, "SHA256:a", "SHA256:b", "SHA256:a", LACKS)
    with pytest.raises(HostKeyMismatch) as other:
        await pinned.connect(NODE, KEY)
    assert (other.value.expected, other.value.found) == ("SHA256:x", "SHA256:a, SHA256:b")
    connecting(monkeypatch, asyncssh.PermissionDenied("no"))
    with pytest.raises(LoginRefused, match=r"node 10\.0\.0\.1:22: .* key for user root"):
        await pinned.connect(NODE, KEY)
