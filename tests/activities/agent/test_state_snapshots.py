"""The resume state of a run on its node: seen cheaply, packed while it is written, put back."""

import io
import json
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.activities.agent.agent_process import LocalAgent
from tests.activities.archives import file, packed
from tests.activities.waiting import wait_for

pytestmark = pytest.mark.usefixtures("staged_before")

RUN, NEXT = "job-st-0-1", "job-st-0-2"
FOLDERS = ["state", "work", "output"]


@pytest.fixture
def state(agent: LocalAgent) -> Path:
    """The state folder of a staged run."""
    agent.stage(RUN, "true")
    return agent.path(RUN, "state")


def mark_of(agent: LocalAgent) -> str:
    return str(agent.call("fingerprint_state", run_id=RUN)["mark"])


def test_a_mark_changes_with_whatever_is_kept_and_with_nothing_else(
    agent: LocalAgent, state: Path
) -> None:
    seen = agent.call("fingerprint_state", run_id=RUN)
    assert (seen["bytes"], seen["files"]) == (0, 0)
    marks = [seen["mark"]]
    (state / "line").write_text("epoch 1")
    marks.append(mark_of(agent))
    (state / "line").read_text()
    assert mark_of(agent) == marks[-1]
    before = (state / "line").stat()
    (state / "line").write_text("epoch 2")
    os.utime(state / "line", ns=(before.st_atime_ns, before.st_mtime_ns))
    marks.append(mark_of(agent))
    (state / "line").rename(state / "other")
    marks.append(mark_of(agent))
    assert len(set(marks)) == len(marks)
    assert agent.call("fingerprint_state", run_id=RUN)["bytes"] == len("epoch 2")


def test_a_file_that_changes_while_it_is_read_is_refused_and_one_beside_it_is_not(
    agent: LocalAgent, state: Path
) -> None:
    """The pipe is full long before the agent has read the large file to its end."""
    (state / "large").write_bytes(os.urandom(4 << 20))
    asked = begun(agent)
    assert asked.stdout is not None
    first = asked.stdout.read(1)
    (state / "beside").write_text("new")
    with (state / "large").open("ab") as grown:
        grown.write(b"more")
    rest, errors = asked.communicate(timeout=60)
    assert asked.returncode == 3, first + rest
    assert b'"unsettled"' in errors
    with tarfile.open(fileobj=io.BytesIO(pack(agent))) as tar:
        assert tar.getnames() == ["beside", "large"]


def test_what_takes_a_folder_s_place_leads_nowhere(
    agent: LocalAgent, state: Path, tmp_path: Path
) -> None:
    """The agent may read what the command may not: it must not be led there."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/key").write_text("of another")
    (state / "a").write_bytes(os.urandom(4 << 20))
    (state / "b").mkdir()
    (state / "b/key").write_text("its own")
    asked = begun(agent)
    assert asked.stdout is not None
    first = asked.stdout.read(1)
    (state / "b").rename(state / "c")
    (state / "b").symlink_to(tmp_path / "secret")
    rest, _ = asked.communicate(timeout=60)
    assert b"of another" not in content_of(first + rest)


def test_what_could_not_be_restored_is_refused_at_once_or_left_out(
    agent: LocalAgent, state: Path
) -> None:
    (state / "kept").write_text("kept")
    (state / "back").symlink_to("../state/kept")
    (state / "near").symlink_to("kept")
    agent.put_input(NEXT, pack(agent), verb="restore_state")
    restored = agent.path(NEXT, "state")
    assert sorted(path.name for path in restored.iterdir()) == ["kept", "near"]
    (state / "a\\b").write_text("no")
    refused = subprocess.run(
        agent.command("pack_state"), input=line(agent), capture_output=True, check=False
    )
    assert (refused.returncode, b'"bad-name"' in refused.stderr) == (3, True)


def test_what_is_put_back_is_found_by_the_command_and_left_alone_once_it_is_staged(
    agent: LocalAgent,
) -> None:
    agent.put_input(RUN, packed(file("old", b"old")), verb="restore_state")
    agent.put_input(RUN, packed(file("line", b"epoch 3\n")), verb="restore_state")
    agent.run(RUN, "cd $BASELOAD_STATE; ls; cat line; echo epoch 4 > line; sleep 600")
    line_of = agent.path(RUN, "state/line")
    wait_for(lambda: line_of.read_text() == "epoch 4\n", "it goes on")
    agent.put_input(RUN, packed(file("line", b"epoch 3\n")), verb="restore_state")
    assert line_of.read_text() == "epoch 4\n"
    assert agent.path(RUN, "log").read_text() == "line\nepoch 3\n"
    assert not [path for path in agent.path(RUN).iterdir() if path.name.startswith(".part-")]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user: run as root")
def test_what_is_put_back_belongs_to_the_user_of_the_command(agent: LocalAgent) -> None:
    agent.call("prepare", exclusive=False, authorized_key="", peers=[])
    agent.put_input(RUN, packed(file("deep/line", b"epoch 3\n")), verb="restore_state")
    agent.run(RUN, "echo epoch 4 > $BASELOAD_STATE/deep/line", user="baseload-job")
    assert agent.exit_of(RUN)["exit_code"] == 0
    assert agent.path(RUN, "state/deep/line").read_text() == "epoch 4\n"
    assert agent.path(RUN, "state").stat().st_mode & 0o077 == 0


def test_all_files_of_a_notebook_are_put_back_where_they_were(agent: LocalAgent) -> None:
    agent.stage(RUN, "true")
    for folder in FOLDERS:
        (agent.path(RUN, folder) / "deep").mkdir()
        (agent.path(RUN, folder) / "deep" / "file").write_text(folder)
    seen = agent.call("fingerprint_state", run_id=RUN, folders=FOLDERS)
    assert (seen["bytes"], seen["mark"] != mark_of(agent)) == (len("".join(FOLDERS)), True)
    agent.put_input(NEXT, pack(agent, FOLDERS), verb="restore_state", folders=FOLDERS)
    agent.stage(NEXT, "true")
    assert {each: (agent.path(NEXT, each) / "deep" / "file").read_text() for each in FOLDERS} == {
        each: each for each in FOLDERS
    }


def test_only_the_folders_that_runs_keep_are_packed_and_put_back(agent: LocalAgent) -> None:
    agent.stage(RUN, "true")
    for verb in ("pack_state", "restore_state"):
        refused = subprocess.run(
            agent.command(verb), input=line(agent, ["../other"]), capture_output=True, check=False
        )
        assert (refused.returncode, b'"bad-folder"' in refused.stderr) == (3, True)
    refused = subprocess.run(
        agent.command("restore_state"),
        input=line(agent, FOLDERS, NEXT) + packed(file("work", b"no folder")),
        capture_output=True,
        check=False,
    )
    assert (refused.returncode, b'"unsafe-archive"' in refused.stderr) == (3, True)


def begun(agent: LocalAgent) -> subprocess.Popen[bytes]:
    """A packing that has its request; it waits where nobody reads what it writes."""
    process = subprocess.Popen(
        agent.command("pack_state"),
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write(line(agent))
    return process


def line(agent: LocalAgent, folders: list[str] | None = None, run_id: str = RUN) -> bytes:
    request = {"root": str(agent.root), "run_id": run_id, "folders": folders}
    return json.dumps(request).encode() + b"\n"


def pack(agent: LocalAgent, folders: list[str] | None = None) -> bytes:
    done = subprocess.run(
        agent.command("pack_state"), input=line(agent, folders), capture_output=True, check=True
    )
    return done.stdout


def content_of(archive: bytes) -> bytes:
    """All bytes of all files that are in it."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        files = [tar.extractfile(member) for member in tar if member.isreg()]
        return b"".join(one.read() for one in files if one is not None)
