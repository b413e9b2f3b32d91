"""A rented machine that is a container of the run's image: nothing is pulled or built there."""

import os
from pathlib import Path

import pytest

from tests.activities.agent.agent_process import LocalAgent, Refused, spec

RUN = "job-imaged-0-1"
IMAGE = "runpod/base:1.0"


@pytest.fixture
def tools(tmp_path: Path) -> str:
    """A folder with a program of the image, which only its own PATH names."""
    folder = tmp_path / "conda/bin"
    folder.mkdir(parents=True)
    program = folder / "of-the-image"
    program.write_text("#!/bin/sh\necho from the image\n")
    program.chmod(0o755)
    for parent in (folder, folder.parent, tmp_path):
        parent.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def test_a_run_finds_the_programs_of_the_image_and_no_environment_of_ours(
    node_root: Path, tools: str
) -> None:
    agent = LocalAgent(node_root, {"PATH": tools, "LD_LIBRARY_PATH": "/usr/lib/of-the-image"})
    agent.run(
        RUN,
        'of-the-image; echo "libraries: $LD_LIBRARY_PATH"; echo "venv: ${VIRTUAL_ENV:-none}"',
        machine_image=IMAGE,
    )
    agent.exit_of(RUN)
    log = agent.path(RUN, "log").read_text()
    assert "from the image\nlibraries: /usr/lib/of-the-image\nvenv: none" in log
    assert not list(node_root.glob("packages/*/baseload-complete"))


def test_other_runs_do_not_get_the_path_of_whoever_logs_in(node_root: Path, tools: str) -> None:
    agent = LocalAgent(node_root, {"PATH": tools})
    agent.run(RUN, "of-the-image || echo not there")
    agent.exit_of(RUN)
    assert "not there" in agent.path(RUN, "log").read_text()


def test_packages_beside_the_image_are_refused(agent: LocalAgent) -> None:
    with pytest.raises(Refused, match=r"beside an image: put them into the image runpod/base:1\.0"):
        agent.call(
            "stage",
            run_id=RUN,
            python_packages=["numpy"],
            spec=spec("true", machine_image=IMAGE),
        )
