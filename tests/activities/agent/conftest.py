"""A podman with stores of its own, and a folder of packages, for the tests of the agent."""

import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.activities.agent.agent_process import LocalAgent
from tests.activities.agent.podman import (
    CONTAINERS_CONF,
    IMAGE,
    STORAGE_CONF,
    WITH_VOLUME,
    root_file_system,
)


@pytest.fixture(scope="module")
def podman_environment() -> Iterator[dict[str, str]]:
    """A podman with stores of its own and one tiny image."""
    for tool in ("podman", "runc"):
        if shutil.which(tool) is None:
            pytest.fail(f"no {tool}: make setup-tests installs it")
    # Below a long path podman waits for each container 20 s after it has ended.
    folder = Path(tempfile.mkdtemp(prefix="podman-"))
    (folder / "containers.conf").write_text(CONTAINERS_CONF.format(folder=folder))
    (folder / "storage.conf").write_text(STORAGE_CONF.format(folder=folder))
    environment = {
        **os.environ,
        "CONTAINERS_CONF": str(folder / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
    }
    for image, change in ((IMAGE, []), (WITH_VOLUME, ["--change", "VOLUME /data"])):
        subprocess.run(
            ["podman", "import", "-q", *change, "-", image],
            input=root_file_system(),
            env=environment,
            check=True,
            capture_output=True,
        )
    yield environment
    subprocess.run(["podman", "rm", "-fa"], env=environment, check=False, capture_output=True)
    subprocess.run(
        ["podman", "system", "reset", "-f"], env=environment, check=False, capture_output=True
    )
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def podman_agent(agent: LocalAgent, podman_environment: dict[str, str]) -> LocalAgent:
    agent.environment = podman_environment
    return agent


@pytest.fixture
def wheels(agent: LocalAgent) -> Path:
    """A folder with one tiny package, the only place that the node's pip looks at."""
    folder = agent.root.parent / "wheels"
    folder.mkdir()
    with zipfile.ZipFile(folder / "tinything-1.0-py3-none-any.whl", "w") as wheel:
        info = "tinything-1.0.dist-info"
        wheel.writestr("tinything.py", "def main():\n    print('tiny')\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tinything\nVersion: 1.0\n")
        kind = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        wheel.writestr(f"{info}/WHEEL", kind)
        wheel.writestr(f"{info}/entry_points.txt", "[console_scripts]\ntiny = tinything:main\n")
        wheel.writestr(f"{info}/RECORD", "")
    home = agent.root.parent / "home"
    (home / ".config/pip").mkdir(parents=True)
    home.chmod(0o700)
    conf = f"[global]\nno-index = true\nfind-links = {folder}\n"
    (home / ".config/pip/pip.conf").write_text(conf)
    agent.environment = {"HOME": str(home), "PATH": os.environ["PATH"], "TOKEN": "the node's own"}
    return folder
