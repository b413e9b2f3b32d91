"""Connections to nodes: pinned, shared, counted, replaced."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from unittest.mock import ANY

import asyncssh
import pytest

from activities.transport import pinned, shell
from activities.transport.agent_archive import agent_archive
from activities.transport.endpoint import NodeEndpoint
from activities.transport.errors import (
    AgentBroke,
    AgentRefused,
    HostKeyMismatch,
    LoginRefused,
    NodeUnreachable,
    OutcomeUnknown,
)
from activities.transport.ssh import NodeConnections
from tests.activities.agent.agent_process import processes_of, spec
from tests.activities.sshd import Sshd
from tests.activities.waiting import wait_until

RUN = "job-t-0-1"


async def look(
    pool: NodeConnections, endpoint: NodeEndpoint, run_id: str = RUN
) -> dict[str, object]:
    answer = await pool.call(endpoint, "status", {"run_ids": [run_id]}, limit_s=120)
    found: dict[str, object] = json.loads(answer)["runs"][run_id]
    return found


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_a_node_with_the_pinned_key_answers(
    connections: NodeConnections, endpoint: NodeEndpoint
) -> None:
    assert (await look(connections, endpoint))["state"] == "unknown"


async def test_another_host_key_is_refused_and_is_not_told(
    sshd: Sshd, node_root: Path, tmp_path: Path, connections: NodeConnections
) -> None:
    other = Sshd(tmp_path / "other")
    expected = NodeEndpoint("127.0.0.1", sshd.port, "root", other.fingerprint(), str(node_root))
    with pytest.raises(HostKeyMismatch) as caught:
        await look(connections, expected)
    assert (caught.value.expected, caught.value.found) == (other.fingerprint(), sshd.fingerprint())
    assert str(caught.value).endswith("cannot be reached")
    assert sshd.fingerprint() not in str(caught.value)
    assert names_in(node_root.parent) == []


async def test_a_host_key_that_changes_later_is_refused_at_the_next_connection(
    sshd: Sshd, endpoint: NodeEndpoint, connections: NodeConnections, tmp_path: Path
) -> None:
    await look(connections, endpoint)
    sshd.stop()
    impostor = Sshd(tmp_path / "impostor")
    impostor.port = sshd.port
    (impostor.folder / "authorized_keys").write_text(
        sshd.client_key.with_suffix(".pub").read_text()
    )
    impostor.start()
    try:
        with pytest.raises(HostKeyMismatch):
            await look(connections, endpoint)
    finally:
        impostor.stop()
        sshd.start()


async def test_a_connection_that_went_while_nobody_looked_is_replaced(
    sshd: Sshd, endpoint: NodeEndpoint, connections: NodeConnections
) -> None:
    for _ in range(5):
        assert (await look(connections, endpoint))["state"] == "unknown"
        sshd.cut()


async def test_a_node_is_known_by_any_of_its_host_keys(tmp_path: Path, node_root: Path) -> None:
    server = Sshd(tmp_path / "several", host_key_types=("ed25519", "ecdsa", "rsa"))
    server.start()
    pool = NodeConnections(server.client_key)
    try:
        for key in range(3):
            endpoint = server.endpoint(node_root, key=key)
            assert (await look(pool, endpoint))["state"] == "unknown"
    finally:
        await pool.close()
        server.stop()


async def test_a_key_that_the_node_does_not_know_is_login_refused(
    endpoint: NodeEndpoint,
) -> None:
    pool = NodeConnections(asyncssh.generate_private_key("ssh-ed25519"))
    with pytest.raises(LoginRefused):
        await look(pool, endpoint)


async def test_a_node_where_nothing_listens_is_unreachable(
    sshd: Sshd, endpoint: NodeEndpoint, connections: NodeConnections
) -> None:
    sshd.stop()
    with pytest.raises(NodeUnreachable) as caught:
        await look(connections, endpoint)
    assert (caught.value.host, caught.value.port) == ("127.0.0.1", sshd.port)
    sshd.start()


async def test_the_outcome_is_unknown_when_the_connection_goes_and_the_run_lives_on(
    sshd: Sshd, endpoint: NodeEndpoint, connections: NodeConnections
) -> None:
    await connections.call(
        endpoint, "stage", {"run_id": RUN, "spec": spec("sleep 600")}, limit_s=30
    )
    await connections.call(endpoint, "start", {"run_id": RUN}, limit_s=120)
    living = await wait_until(lambda: processes_of(RUN), "the command")
    # Ends only after its grace, so it is cut in the middle.
    stubborn = "trap '' TERM; touch ready; while :; do sleep 600; done"
    await connections.call(
        endpoint, "stage", {"run_id": "job-u-0-1", "spec": spec(stubborn)}, limit_s=30
    )
    await connections.call(endpoint, "start", {"run_id": "job-u-0-1"}, limit_s=120)
    run = Path(endpoint.root) / "runs" / "job-u-0-1"
    await wait_until((run / "work/ready").exists, "the trap")
    ending = asyncio.create_task(
        connections.call(endpoint, "end", {"run_id": "job-u-0-1", "grace_s": 30}, limit_s=60)
    )
    await wait_until((run / "end.json").exists, "the request to end")
    sshd.cut()
    with pytest.raises(OutcomeUnknown):
        await ending
    assert processes_of(RUN) == living
    again = await connections.call(
        endpoint, "end", {"run_id": "job-u-0-1", "grace_s": 0}, limit_s=30
    )
    assert json.loads(again)["tree_gone"] is True
    assert (await look(connections, endpoint))["state"] == "running"


async def test_a_call_that_passes_its_limit_is_of_unknown_outcome(
    endpoint: NodeEndpoint, connections: NodeConnections
) -> None:
    stream = await connections.stream(endpoint, "watch", {}, eof=False)
    await stream.close()
    with pytest.raises(OutcomeUnknown, match=r"no answer within 0\.01 s"):
        await connections.call(endpoint, "inspect", {}, limit_s=0.01)


async def test_silence_ends_what_was_begun_and_is_passed_by_what_was_not(
    sshd: Sshd,
    endpoint: NodeEndpoint,
    connections: NodeConnections,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pinned, "KEEPALIVE_S", 0.2)
    stream = await connections.stream(endpoint, "watch", {}, eof=False)
    first = await anext(aiter(stream))
    assert b"beat" in first
    frozen = sshd.sessions()
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        assert (await look(connections, endpoint))["state"] == "unknown"
        with pytest.raises(OutcomeUnknown):
            await anext(aiter(stream))
    finally:
        await stream.close()
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)


async def test_many_calls_share_connections_of_at_most_eight_channels(
    sshd: Sshd, endpoint: NodeEndpoint, connections: NodeConnections
) -> None:
    streams = [await connections.stream(endpoint, "watch", {}, eof=False) for _ in range(9)]
    assert len(sshd.sessions()) == 2
    for stream in streams:
        await stream.close()
    await asyncio.gather(*(look(connections, endpoint, f"job-{n}-0-1") for n in range(12)))
    # One more where the server had not yet seen the watchers go.
    assert len(sshd.sessions()) in (2, 3)


async def test_a_server_with_fewer_sessions_gets_more_connections(
    tmp_path: Path, node_root: Path
) -> None:
    server = Sshd(tmp_path / "narrow")
    server.max_sessions = 2
    server.start()
    pool = NodeConnections(server.client_key)
    try:
        endpoint = server.endpoint(node_root)
        first = await pool.stream(endpoint, "watch", {}, eof=False)
        second = await pool.stream(endpoint, "watch", {}, eof=False)
        assert (await look(pool, endpoint))["state"] == "unknown"
        await first.close()
        await second.close()
    finally:
        await pool.close()
        server.stop()


async def test_an_idle_connection_is_closed_and_made_anew_when_needed(
    sshd: Sshd, endpoint: NodeEndpoint
) -> None:
    pool = NodeConnections(sshd.client_key, idle_s=0.1)
    try:
        await look(pool, endpoint)
        await wait_until(lambda: not sshd.sessions(), "the idle connection to go")
        assert (await look(pool, endpoint))["state"] == "unknown"
    finally:
        await pool.close()


async def test_what_a_login_shell_prints_does_not_disturb_answers(
    sshd: Sshd, endpoint: NodeEndpoint, connections: NodeConnections
) -> None:
    sshd.stop()
    # What a chatty .bashrc does: the command follows after words of its own.
    sshd.more = (
        'ForceCommand case "$SSH_ORIGINAL_COMMAND" in ""|internal-sftp|*sftp-server*)'
        " exec /usr/lib/openssh/sftp-server ;;"
        " *) echo '{\"ok\": false}'; printf 'welcome'; eval \"$SSH_ORIGINAL_COMMAND\" ;; esac"
    )
    sshd.start()
    answer = await connections.call(endpoint, "inspect", {}, limit_s=120)
    assert json.loads(answer)["hardware"]["cpu_count"] > 0


async def test_the_agents_own_no_has_its_code(
    endpoint: NodeEndpoint, connections: NodeConnections
) -> None:
    start = {"run_id": "job-never-0-1"}
    answer = json.loads(await connections.call(endpoint, "start", start, limit_s=120))
    assert (answer["ok"], answer["error"]["code"]) == (False, "not-staged")
    with pytest.raises(AgentRefused) as streamed:
        async with await connections.stream(
            endpoint, "read_log", {"run_id": "job-never-0-1"}
        ) as stream:
            assert [chunk async for chunk in stream] == ANY
    assert json.loads(streamed.value.said)["error"]["code"] == "no-log"


async def test_a_node_without_python_says_so(
    sshd: Sshd, node_root: Path, connections: NodeConnections
) -> None:
    endpoint = sshd.endpoint(node_root, pythons=("/nowhere/python3",))
    with pytest.raises(AgentBroke, match=r"127.*nowhere"):
        await look(connections, endpoint)


async def test_the_first_python_that_is_recent_enough_runs_the_agent(
    sshd: Sshd, node_root: Path, connections: NodeConnections, tmp_path: Path
) -> None:
    old, recent, another = (tmp_path / name for name in ("old", "recent", "another"))
    old.write_text("#!/bin/sh\nexit 1\n")
    for python in (recent, another):
        python.write_text(f'#!/bin/sh\necho >> {python}.ran\nexec python3 "$@"\n')
    for python in (old, recent, another):
        python.chmod(0o755)
    pythons = ("/nowhere/python3", str(old), str(recent), str(another))
    endpoint = sshd.endpoint(node_root, pythons=pythons)
    assert (await look(connections, endpoint))["state"] == "unknown"
    assert [name for name in names_in(tmp_path) if name.endswith(".ran")] == ["recent.ran"]


@pytest.mark.parametrize("is_of_the_same_size", [False, True])
async def test_an_agent_with_other_bytes_is_replaced(
    endpoint: NodeEndpoint,
    connections: NodeConnections,
    node_root: Path,
    is_of_the_same_size: bool,
) -> None:
    await look(connections, endpoint)
    agent, archive = agent_archive(), node_root / "agent" / agent_archive().name
    archive.write_bytes(bytes(len(agent.content)) if is_of_the_same_size else b"")
    await connections.close()
    assert (await look(connections, endpoint))["state"] == "unknown"
    assert archive.read_bytes() == agent.content


async def test_what_was_compiled_from_another_archive_goes_with_it(
    endpoint: NodeEndpoint, connections: NodeConnections, node_root: Path
) -> None:
    await look(connections, endpoint)
    archive = node_root / "agent" / agent_archive().name
    archive.write_bytes(bytes(len(agent_archive().content)))
    compiled = archive.with_name(f"{archive.name}.{sys.implementation.cache_tag}")
    other = compiled / "baseload_agent"
    other.mkdir(parents=True)
    (other / "__init__.py").touch()
    (other / "__main__.py").write_text("raise SystemExit(9)")
    await connections.close()
    assert (await look(connections, endpoint))["state"] == "unknown"
    assert not compiled.exists()


async def test_the_right_agent_is_not_sent_again(
    endpoint: NodeEndpoint, connections: NodeConnections, node_root: Path
) -> None:
    await look(connections, endpoint)
    archive = node_root / "agent" / agent_archive().name
    sent = archive.stat().st_ino
    await connections.close()
    await look(connections, endpoint)
    assert archive.stat().st_ino == sent


@pytest.mark.parametrize("is_there", [True, False])
def test_where_there_is_no_sha256sum_python_hashes_the_agent(
    tmp_path: Path, is_there: bool
) -> None:
    programs, root = tmp_path / "bin", tmp_path / "root"
    programs.mkdir()
    for name in ("mkdir", "chmod", "rm"):
        (programs / name).symlink_to(shutil.which(name) or name)
    agent = agent_archive()
    if is_there:
        (root / "agent").mkdir(parents=True)
        (root / "agent" / agent.name).write_bytes(agent.content)
    endpoint = NodeEndpoint("127.0.0.1", 22, "root", "SHA256:x", str(root), (sys.executable,))
    command = shell.survey(endpoint, "marker", agent)
    done = subprocess.run(
        ["/bin/sh", "-c", command], env={"PATH": str(programs)}, capture_output=True, check=True
    )
    said = shell.after_marker(done.stdout, "marker") or b""
    hashed = agent.sha256 if is_there else ""
    assert said.decode().splitlines() == [str(root), sys.executable, hashed]


async def test_a_file_is_put_whole_or_not_at_all(
    endpoint: NodeEndpoint, connections: NodeConnections, node_root: Path, tmp_path: Path
) -> None:
    content = bytes(range(256)) * 40_000
    source = tmp_path / "source"
    source.write_bytes(content)
    path = await connections.put_file(endpoint, source, "code/one")
    assert path == str(node_root / "code/one")
    assert (node_root / "code/one").read_bytes() == content

    async def broken() -> AsyncIterator[bytes]:
        yield content
        raise ValueError("the source broke")

    with pytest.raises(ValueError, match="the source broke"):
        await connections.put_file(endpoint, broken(), "code/two")
    assert names_in(node_root / "code") == ["one"]
