"""What is said to a node's shell, and how its answers and endings are read, without a node."""

import io
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from activities.transport import shell, ssh, stream
from activities.transport.agent_archive import INSIDE, AgentArchive, agent_archive
from activities.transport.endpoint import PYTHONS, NodeEndpoint
from activities.transport.errors import (
    AgentBroke,
    AgentRefused,
    HostKeyMismatch,
    NodeUnreachable,
    OutcomeUnknown,
    ProtocolViolation,
)
from tests.workflows.fake_machines import node_address

AGENT = AgentArchive("a" * 64, "agent-aaaaaaaaaaaa.pyz", b"")
ARCHIVE = Path("agent") / AGENT.name


def survey(home: Path, root: str = "", *, user_id: int = 7, pythons: tuple[str, ...] = ()) -> Any:
    """What the survey says of a home, of a user with this id: its three lines, or its status."""
    programs = home / "programs"
    programs.mkdir(exist_ok=True)
    (programs / "id").write_text(f"#!/bin/sh\necho {user_id}\n")
    (programs / "id").chmod(0o755)
    endpoint = NodeEndpoint("h", 22, "u", "SHA256:x", root, pythons or (sys.executable,))
    path = f"{programs}:{os.environ['PATH']}"
    done = subprocess.run(
        ["/bin/sh", "-c", shell.survey(endpoint, "marker", AGENT)],
        check=False,
        env={"PATH": path, "HOME": str(home)},
        capture_output=True,
    )
    said = shell.after_marker(done.stdout, "marker")
    return done.returncode if said is None else said.decode().splitlines()


def test_the_agent_lives_in_the_home_of_a_plain_user_and_where_it_is_told(tmp_path: Path) -> None:
    assert survey(tmp_path) == [f"{tmp_path}/.baseload-node", sys.executable, ""]
    assert survey(tmp_path, "a b")[0] == f"{tmp_path}/a b"
    assert survey(tmp_path, f"{tmp_path}/c")[0] == f"{tmp_path}/c"
    for folder in (tmp_path / "c", tmp_path / "c" / "agent"):
        assert folder.stat().st_mode & 0o777 == 0o711


def test_the_agent_of_root_lives_in_var_lib(tmp_path: Path) -> None:
    command = shell.survey(NodeEndpoint("h", 22, "root", "SHA256:x"), "marker", AGENT)
    assert "R=/var/lib/baseload" in command
    (tmp_path / "mkdir-fails").touch()
    assert survey(tmp_path, f"{tmp_path}/mkdir-fails/x") == 1


def test_the_last_python_is_named_where_none_is_recent_enough(tmp_path: Path) -> None:
    assert survey(tmp_path, pythons=("/nowhere/a", "/nowhere/b"))[1] == "/nowhere/b"
    assert survey(tmp_path, pythons=("/nowhere/a", sys.executable, "/nowhere/b"))[1] == (
        sys.executable
    )


def test_the_hash_of_the_agent_is_told_and_what_another_has_compiled_goes(tmp_path: Path) -> None:
    compiled = tmp_path / ".baseload-node" / f"{ARCHIVE}.cpython-311"
    compiled.mkdir(parents=True)
    assert survey(tmp_path)[2] == ""
    assert compiled.exists()
    (tmp_path / ".baseload-node" / ARCHIVE).write_bytes(b"other")
    assert len(survey(tmp_path)[2]) == 64
    assert not compiled.exists()


def test_a_verb_is_run_isolated_after_the_marker(tmp_path: Path) -> None:
    program = tmp_path / "a python"
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)
    command = shell.verb(str(program), "an archive", "say it", "marker")
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, check=True)
    assert done.stdout == b"\nmarker\n-I -S an archive say it\n"


def test_what_follows_the_marker_is_the_answer() -> None:
    assert shell.after_marker(b"hello marker\nmore", "marker") is None
    assert shell.after_marker(b"hello\nmarker\nmore\nmarker\n", "marker") == b"more\nmarker\n"
    assert shell.after_marker(b"\nmarker\n", "marker") == b""
    assert shell.new_marker() != shell.new_marker()
    assert shell.new_marker().startswith("baseload-")


@pytest.mark.parametrize(
    ("status", "stderr", "kind", "says"),
    [
        (None, b"x", OutcomeUnknown, "node n: status: the connection was lost before the verb"),
        (3, b"noise\nwhy \n", AgentRefused, "node n: status: exit status 3: why"),
        (3, b" \n", AgentBroke, "node n: status: exit status 3: no message"),
        (1, b" x\xff \n", AgentBroke, "node n: status: exit status 1: x�"),
        (-9, b"", AgentBroke, "node n: status: exit status -9: no message"),
    ],
)
def test_a_verb_that_has_not_ended_well_says_how(
    status: int | None, stderr: bytes, kind: type[Exception], says: str
) -> None:
    process: Any = SimpleNamespace(exit_status=status)
    with pytest.raises(kind) as raised:
        stream.check_end(process, stderr, "node n: status")
    assert str(raised.value).startswith(says)
    assert getattr(raised.value, "said", b"why") == b"why"


def test_a_verb_that_has_ended_well_says_nothing() -> None:
    process: Any = SimpleNamespace(exit_status=0)
    stream.check_end(process, b"some progress", "node n: status")
    assert stream.encode({"root": "/x"}) == b'{"root": "/x"}\n'


async def test_stderr_is_read_at_once_up_to_a_limit_and_slowly_from_then_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(stream, "asyncio", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(stream, "STDERR_AT_ONCE_BYTES", 20)
    chunks = [b"x" * 10, b"y" * 10, b"z" * 5, b""]
    asked: list[int] = []

    async def read(size: int) -> bytes:
        asked.append(size)
        return chunks[len(asked) - 1]

    reader: Any = SimpleNamespace(read=read)
    assert [chunk async for chunk in stream.paced(reader, 10)] == chunks[:3]
    assert asked == [10] * 4
    assert slept == [5 / stream.STDERR_BYTES_PER_S]


async def test_what_is_kept_of_stderr_is_its_end() -> None:
    chunks = [b"a" * 3000, b"b" * 3000, b""]

    async def read(_: int) -> bytes:
        return chunks.pop(0)

    reader: Any = SimpleNamespace(read=read)
    assert await stream._tail(reader) == b"a" * 1000 + b"b" * 3000


async def test_progress_is_told_by_lines_of_which_the_latest_count() -> None:
    many = b"".join(b"%d\n" % number for number in range(20))
    chunks = [b"half", b" a \xff\n", many, b"x" * 70_000 + b"end\nrest", b""]

    async def read(size: int) -> bytes:
        assert size == ssh.MOST_LINE_BYTES
        return chunks.pop(0)

    heard: list[str] = []
    reader: Any = SimpleNamespace(read=read)
    kept = await ssh._follow(reader, heard.append)
    assert heard[:11] == ["half a �", *map(str, range(10, 20))]
    assert heard[11:] == [f"{'x' * 997}end"]
    assert kept == (b"x" * 4000 + b"end\nrest")[-stream.STDERR_BYTES :]
    chunks.extend([b"nobody\n", b""])
    assert await ssh._follow(reader, None) == b"nobody\n"


async def test_an_answer_is_read_whole_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh, "MOST_BANNER_BYTES", 4)
    monkeypatch.setattr(ssh, "MOST_ANSWER_BYTES", 6)
    chunks = [b"12345", b"67890", b"", b"12345", b"67890", b"1"]

    async def read(size: int) -> bytes:
        assert size == stream.READ_BYTES
        return chunks.pop(0)

    reader: Any = SimpleNamespace(read=read)
    assert await ssh._read_all(reader) == b"1234567890"
    with pytest.raises(ProtocolViolation, match="answer: has at most 6 bytes, found more"):
        await ssh._read_all(reader)


async def test_a_stream_without_its_marker_is_no_answer() -> None:
    said = [b"no marker", b""]

    async def read(_: int) -> bytes:
        return said.pop(0) if said else b""

    async def nothing(_: int = 0) -> bytes:
        return b""

    process: Any = SimpleNamespace(
        stdout=SimpleNamespace(read=read),
        stderr=SimpleNamespace(read=nothing),
        exit_status=0,
        wait_closed=nothing,
    )
    answer = stream.NodeStream(process, "marker", lambda: None, "node n: watch")
    with pytest.raises(AgentBroke, match="node n: watch: ended without an answer"):
        assert [chunk async for chunk in answer] == []


def test_the_agent_is_packed_with_the_same_bytes_again(tmp_path: Path) -> None:
    agent = agent_archive()
    agent_archive.cache_clear()
    assert agent_archive() == agent
    assert agent.name == f"agent-{agent.sha256[:12]}.pyz"
    with zipfile.ZipFile(io.BytesIO(agent.content)) as archive:
        entries = archive.infolist()
        names = archive.namelist()
    assert names[0] == "__main__.py"
    assert names[1:] == sorted(names[1:])
    assert f"{INSIDE}/host/inspection.py" in names
    assert {entry.compress_type for entry in entries} == {zipfile.ZIP_STORED}
    assert {entry.date_time for entry in entries} == {(1980, 1, 1, 0, 0, 0)}
    assert {entry.external_attr >> 16 for entry in entries} == {0o644}
    written = tmp_path / agent.name
    written.write_bytes(agent.content)
    compiled = tmp_path / f"{agent.name}.{sys.implementation.cache_tag}" / INSIDE
    compiled.mkdir(parents=True)
    (compiled / "__init__.py").touch()
    (compiled / "__main__.py").write_text("main = lambda: 9")
    assert subprocess.run([sys.executable, "-I", "-S", str(written)], check=False).returncode == 9


def test_an_endpoint_is_that_of_an_address() -> None:
    owned = node_address().model_copy(update={"user": "admin", "root": "/srv", "port": 2222})
    expected = NodeEndpoint("10.0.0.1", 2222, "admin", "SHA256:key", "/srv", PYTHONS, True)
    assert NodeEndpoint.of(owned) == expected
    assert str(expected) == "10.0.0.1:2222"
    leased = NodeEndpoint.of(node_address().model_copy(update={"leased": True}))
    assert (leased.root, leased.is_given) == ("", False)


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (lambda: NodeUnreachable("h", 22, "secret"), "node h:22: cannot be reached"),
        (lambda: HostKeyMismatch("h:22", "a", "secret"), "node h:22: cannot be reached"),
        (lambda: ProtocolViolation("answer", "has one line", "two"),
         "answer: has one line, found two"),
    ],
)  # fmt: skip
def test_errors_say_what_may_be_known(error: Callable[[], Exception], says: str) -> None:
    raised = error()
    assert str(raised) == says
    assert "secret" not in str(raised)
    assert "secret" in vars(raised).values() or isinstance(raised, ProtocolViolation)


def test_a_violation_has_its_parts() -> None:
    raised = ProtocolViolation("answer", "has one line", "two")
    assert (raised.field, raised.rule, raised.found) == ("answer", "has one line", "two")
