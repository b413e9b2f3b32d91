"""Completion: what a real shell gets for words that a person has begun."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.client.conftest import Desk
from tests.client.test_job_actions import JOB


def _completed(folder: Path, words: str) -> list[str]:
    """What bash completes by the script, as the variable COMPREPLY has it."""
    program = folder / "baseload"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m baseload "$@"\n')
    program.chmod(0o755)
    count = len(words.split(" "))
    script = (
        f'export PATH={shlex.quote(str(folder))}:"$PATH"\n'
        'eval "$(baseload completion bash)"\n'
        f"COMP_WORDS=({words} '') COMP_CWORD={count - 1}\n"
        '_baseload_completion baseload\nprintf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_commands_options_and_jobs_are_completed(desk: Desk) -> None:
    for name in ("sweep-1", "sweep-2", "'$(touch x)'"):
        (desk.folder / "job.yaml").write_text(JOB.replace("NAME", name))
        assert desk.baseload("submit", "job.yaml").code == 0
    assert _completed(desk.folder, "baseload sub") == ["submit"]
    assert "--yes" in _completed(desk.folder, "baseload cancel --y")
    assert set(_completed(desk.folder, "baseload logs sw")) == {"sweep-1", "sweep-2"}
    assert "join-token" in _completed(desk.folder, "baseload node j")
    found = _completed(desk.folder, "baseload show job-")
    assert [word for word in found if word.startswith("job-")] == found != []
    assert not (desk.folder / "x").exists()


def test_an_api_that_does_not_answer_completes_nothing(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BASELOAD_API", "http://127.0.0.1:1")
    assert _completed(desk.folder, "baseload logs sw") == []


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_have_a_script_too(desk: Desk, shell: str) -> None:
    script = desk.baseload("completion", shell).out
    assert "_BASELOAD_COMPLETE=complete_" in script
    assert desk.baseload("completion", "tcsh").code == 2
