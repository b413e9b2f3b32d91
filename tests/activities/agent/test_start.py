"""What makes the agent's verbs begin sooner, and that nothing depends on it."""

import json
import sys
import tempfile
import zipfile
from pathlib import Path

from activities.transport.agent_archive import MAIN
from tests.activities.agent.agent_process import LocalAgent, removed
from tests.activities.waiting import wait_for

RUN = "job-q-0-1"


def compile_beside(agent: LocalAgent) -> None:
    """A watch makes what is compiled, and ends when nobody speaks to it any more."""
    agent.compiled.unlink()
    agent.begin("watch").communicate(timeout=60)
    wait_for(agent.archive.with_name(_folder(agent)).is_dir, "the compiled agent")


def _folder(agent: LocalAgent) -> str:
    return f"{agent.archive.name}.{sys.implementation.cache_tag}"


def test_verbs_run_from_what_the_first_watch_has_compiled(agent: LocalAgent) -> None:
    compile_beside(agent)
    with zipfile.ZipFile(agent.archive, "w") as emptied:
        emptied.writestr("__main__.py", MAIN)
    agent.run(RUN, "echo from the folder")
    agent.exit_of(RUN)
    assert agent.path(RUN, "log").read_text() == "from the folder\n"


def test_a_folder_in_which_an_agent_still_compiles_is_removed_for_good() -> None:
    folder = Path(tempfile.mkdtemp(prefix="baseload-node-", dir="/var/tmp"))
    agent = LocalAgent(folder / "root")
    agent.compiled.unlink()
    watch = agent.begin("watch")
    wait_for(lambda: any(agent.archive.parent.glob("*.part")), "it compiles")
    wait_for(lambda: removed(folder), f"{folder} is gone")
    watch.communicate(timeout=60)
    assert not folder.exists()


def test_watches_at_once_compile_one_agent_also_after_one_was_cut_off(agent: LocalAgent) -> None:
    agent.compiled.unlink()
    part = agent.archive.with_name(f"{_folder(agent)}.part")
    part.mkdir()
    (part / "__main__.py").write_text("half of")
    watches = [agent.begin("watch") for _ in range(3)]
    for watch in watches:
        _, errors = watch.communicate(timeout=60)
        assert watch.returncode == 0, errors.decode()
    found = {path.name for path in agent.archive.parent.iterdir()}
    assert found == {agent.archive.name, _folder(agent), f"{_folder(agent)}.lock"}
    agent.run(RUN, "true")
    assert agent.exit_of(RUN)["exit_code"] == 0


def test_an_interpreter_is_asked_again_only_when_it_was_replaced(agent: LocalAgent) -> None:
    agent.stage(RUN, "true")
    note = agent.root / "packages" / "interpreter.json"
    known = json.loads(note.read_text())
    note.write_text(json.dumps({**known, "version": "of another day"}))
    agent.stage("job-q-1-1", "true")
    first, second = (
        agent.document(run, "spec.json")["packages_path"] for run in (RUN, "job-q-1-1")
    )
    assert first != second, "the note was believed while the interpreter stood as it stood"
    stale = {**known, "version": "of another day", "candidates": {"/usr/bin/python3": []}}
    note.write_text(json.dumps(stale))
    agent.stage("job-q-2-1", "true")
    assert agent.document("job-q-2-1", "spec.json")["packages_path"] == first
    assert json.loads(note.read_text()) == known
