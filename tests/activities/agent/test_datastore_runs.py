"""The runs of datastores on a node: what a client of a server may, and what the run itself may."""

import pwd
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from activities.agent.datastores import verbs
from activities.agent.datastores.files import FILE, FOLDER, Entry, Files
from activities.agent.folders import Folders
from tests.activities.agent.agent_process import LocalAgent, spec
from tests.activities.agent.test_datastores import at, described
from tests.lab.file_servers import NfsServer
from tests.lab.fixtures import nfs_server

__all__ = ["nfs_server"]

RUN = "job-dsr-0-1"


def stage_run(agent: LocalAgent, command: str, datastores: dict[str, Any], **more: Any) -> None:
    agent.call("stage", run_id=RUN, spec=spec(command, **more), datastores=datastores)


def test_what_reads_from_a_server_has_the_rights_of_the_run_alone(
    agent: LocalAgent, nfs_server: NfsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run's account, no group, one capability, and nothing that its parent has."""

    class Spy(Files):
        def __init__(self, *_: object) -> None:
            status = Path("/proc/self/status").read_text()
            lines = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
            wanted = ("Uid", "Groups", "CapEff", "CapPrm", "NoNewPrivs")
            self.found = [f"{name}={' '.join(lines[name].split())}" for name in wanted]

        def look(self, path: str) -> Entry:
            return Entry(path, FOLDER)

        def entries(self, path: str) -> Iterator[Entry]:
            return (Entry(name, FILE) for name in self.found)

        def read(self, path: str, begin: int = 0) -> Iterator[bytes]:
            yield b""

    monkeypatch.setattr(verbs, "NfsFiles", Spy)
    account = pwd.getpwnam("games")
    run = Folders(str(agent.root)).run(RUN)
    run.make()
    place = {"datastore": described(nfs_server), "path": "/"}
    verbs.provide(run, {"input": place}, (account.pw_uid, account.pw_gid), 1)
    assert {path.name for path in Path(run.at("input")).iterdir()} == {
        f"Uid={' '.join([str(account.pw_uid)] * 4)}", "Groups=", "NoNewPrivs=1",
        "CapEff=0000000000000400", "CapPrm=0000000000000400",
    }  # fmt: skip
    assert {path.stat().st_uid for path in Path(run.at("input")).iterdir()} == {0}


def test_a_run_cannot_change_the_input_that_was_copied_for_it(
    agent: LocalAgent, nfs_server: NfsServer
) -> None:
    (nfs_server.shared / "fixed").mkdir()
    (nfs_server.shared / "fixed/a").write_text("as it was")
    command = "cd $BASELOAD_INPUT; chmod 700 .; rm -f a; echo x > a; touch b; cat a"
    stage_run(agent, command, {"input": at(nfs_server, "fixed")}, user="baseload-job")
    agent.call("start", run_id=RUN)
    agent.exit_of(RUN)
    log = agent.path(RUN, "log").read_text()
    assert log.endswith("as it was")
    assert log.count("Read-only file system") >= 3


def test_a_run_finds_its_folders_of_datastores_by_their_uses(
    agent: LocalAgent, nfs_server: NfsServer
) -> None:
    (nfs_server.shared / "by-use").mkdir()
    (nfs_server.shared / "by-use/a").write_text("of the set\n")
    places = {"input": at(nfs_server, "by-use"), "scratch": at(nfs_server, "tmp")}
    command = (
        "cat $BASELOAD_DATASTORE/input/a; ls $BASELOAD_DATASTORE; cd $BASELOAD_SCRATCH; pwd -P"
    )
    stage_run(agent, command + "; echo x > x; cat x", places, user="baseload-job")
    agent.call("start", run_id=RUN)
    assert agent.exit_of(RUN)["exit_code"] == 0, agent.path(RUN, "log").read_text()
    scratch = agent.path(RUN, "scratch")
    said = agent.path(RUN, "log").read_text().split()
    assert said == ["of", "the", "set", "input", "scratch", str(scratch), "x"]
    assert scratch.stat().st_mode & 0o777 == 0o700
    assert not (nfs_server.shared / "tmp").exists()  # not mounted here: it is on the node's disk


def test_an_output_that_the_run_has_closed_is_stored(
    agent: LocalAgent, nfs_server: NfsServer
) -> None:
    (nfs_server.shared / "closed").mkdir()
    (nfs_server.shared / "closed").chmod(0o777)
    command = "cd $BASELOAD_OUTPUT; mkdir d; echo x > d/x; chmod 000 d/x; chmod 000 d"
    place = at(nfs_server, "closed/run")
    stage_run(agent, command, {"output": place}, user="baseload-job")
    agent.call("start", run_id=RUN)
    assert agent.exit_of(RUN)["exit_code"] == 0
    assert agent.call("store_on_datastore", run_id=RUN, **place)["files"] == 1
    assert (nfs_server.shared / "closed/run/d/x").read_text() == "x\n"
