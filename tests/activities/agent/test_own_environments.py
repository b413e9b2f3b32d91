"""The Python environment of a run: it may install what it likes, and nobody else notices."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from activities.agent.folders import Folders
from activities.agent.packages import own_environment, shared_pip
from tests.activities import archives
from tests.activities.agent.agent_process import LocalAgent, spec
from tests.activities.archives import file
from tests.lab.wheels import write_wheel

ONE, TWO = "job-v-0-1", "job-v-1-1"
needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root may become another user: run as root"
)


@pytest.fixture
def shelf(wheels: Path) -> Path:
    """A folder of packages that every account may read."""
    folder = wheels.parent / "shelf"
    folder.mkdir(mode=0o755)
    write_wheel(folder, "localthing", "1.0", "words = 'first'\n")
    write_wheel(folder, "localthing", "2.0", "words = 'second'\n")
    return folder


def install(shelf: Path, *names: str) -> str:
    """What a command says to install packages without any index."""
    return f"pip install -q --no-index --find-links {shelf} {' '.join(names)}"


def run(agent: LocalAgent, run_id: str, command: str, **more: object) -> tuple[int, str]:
    """Run a command as a job does; its exit code and log."""
    user = "baseload-job" if os.geteuid() == 0 else None
    agent.call("prepare", exclusive=False, authorized_key="", peers=[])
    agent.call("stage", run_id=run_id, owned=True, spec=spec(command, user=user), **more)
    agent.call("start", run_id=run_id)
    return agent.exit_of(run_id)["exit_code"], agent.path(run_id, "log").read_text()


def test_a_command_installs_packages_for_its_own_run_alone(agent: LocalAgent, shelf: Path) -> None:
    imports = "python -c 'import localthing; print(localthing.words)'"
    command = (
        f"{install(shelf, 'localthing==1.0')} && {imports} && command -v pip && command -v python"
    )
    top = agent.path(ONE, "venv")
    assert run(agent, ONE, command) == (0, f"first\n{top}/bin/pip\n{top}/bin/python\n")
    code, log = run(agent, TWO, imports)
    assert code != 0
    assert "No module named 'localthing'" in log
    shared = Path(agent.document(ONE, "spec.json")["packages_path"])
    assert list(shared.glob("lib/python*/site-packages/*")) == []
    agent.call("clean", run_ids=[ONE])
    assert not top.exists()


def test_what_a_run_installs_comes_before_the_packages_of_its_job(
    agent: LocalAgent, shelf: Path, wheels: Path
) -> None:
    write_wheel(wheels, "localthing", "1.0", "words = 'of the job'\n")
    imports = "python -c 'import localthing, tinything; print(localthing.words)'"
    command = f"{imports}; {install(shelf, '-U', 'localthing')} 2>&1; {imports}; pip list"
    code, log = run(agent, ONE, command, python_packages=["localthing", "tinything"])
    assert code == 0
    assert log.splitlines()[0] == "of the job"
    assert "second" in log.splitlines()
    assert [line.split() for line in log.splitlines() if "localthing" in line][-1][-1] == "2.0"
    assert "tinything" in log


def test_a_script_of_the_jobs_packages_finds_what_the_run_installs(
    agent: LocalAgent, shelf: Path, wheels: Path
) -> None:
    command = f"{install(shelf, 'localthing')} && exec tiny"
    code, log = run(agent, ONE, command, python_packages=["tinything"])
    assert (code, log) == (0, "tiny\n")
    script = agent.path(ONE, "venv/bin/tiny").read_text()
    assert f"{agent.path(ONE)}/venv/bin/python" in script
    shared = agent.document(ONE, "spec.json")["packages_path"]
    assert shared not in script


@needs_root
def test_the_environment_of_a_run_belongs_to_its_account_and_is_closed_to_others(
    agent: LocalAgent, shelf: Path
) -> None:
    secret = agent.path(ONE, "venv/mine")
    assert run(agent, ONE, f"echo secret > {secret}; {install(shelf, 'localthing')}")[0] == 0
    code, log = run(agent, TWO, f"cat {secret}; ls {secret.parent}; touch {secret.parent}/x")
    assert code != 0
    assert "secret\n" not in log
    assert log.count("Permission denied") == 3
    owner = agent.path(ONE, "venv").stat().st_uid
    assert owner == agent.path(ONE, "work").stat().st_uid != 0


def test_what_a_run_installs_counts_as_its_disk(agent: LocalAgent) -> None:
    fills = 'head -c 30000000 /dev/zero > "$VIRTUAL_ENV/fill"; exec sleep 6400'
    agent.run(ONE, fills, disk_size_gb=0.02, user=None)
    assert agent.exit_of(ONE)["reason"] == "disk-full"


def test_pip_keeps_its_cache_where_it_goes_with_the_run(agent: LocalAgent, shelf: Path) -> None:
    code, log = run(agent, ONE, "pip cache dir; ls -A")
    assert (code, log) == (0, f"{agent.path(ONE)}/venv/.pip-cache\n")


def test_a_machine_without_pip_runs_jobs_and_is_looked_at_again_later(
    agent: LocalAgent, shelf: Path
) -> None:
    agent.stage(ONE, "true")
    (pip,) = agent.root.glob("packages/pip-*[!k]")
    (pip / "pip").unlink()
    (pip / "none").touch()
    assert run(agent, TWO, "python -c 'print(1)'; python -m pip --version || true")[0] == 0
    assert "No module named pip" in agent.path(TWO, "log").read_text()
    assert not agent.path(TWO, "venv/bin/pip").exists()
    hours_ago = time.time() - 7200
    os.utime(pip / "none", (hours_ago, hours_ago))
    assert run(agent, "job-v-2-1", "pip --version")[0] == 0


BACKEND = """
import zipfile
def build_editable(folder, config_settings=None, metadata_directory=None):
    name = "mine-1.0-py3-none-any.whl"
    with zipfile.ZipFile(folder + "/" + name, "w") as wheel:
        info = "mine-1.0.dist-info"
        import os
        wheel.writestr("mine.pth", os.getcwd() + "/source")
        wheel.writestr(info + "/METADATA", "Metadata-Version: 2.1\\nName: mine\\nVersion: 1.0\\n")
        wheel.writestr(info + "/WHEEL",
                       "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(info + "/RECORD", "")
    return name
def build_wheel(folder, config_settings=None, metadata_directory=None):
    raise SystemExit("not editable")
"""
PROJECT = "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"


def test_a_project_is_installed_in_place_by_the_set_up(
    agent: LocalAgent, shelf: Path, tmp_path: Path
) -> None:
    path, sha256 = archives.archive(
        tmp_path,
        file("pyproject.toml", PROJECT.encode()),
        file("backend.py", BACKEND.encode()),
        file("source/mine.py", b"words = 'in place'\n"),
    )
    agent.call("unpack_code", sha256=sha256, archive=str(path))
    command = spec("python -c 'import mine; print(mine.words)'", setup=["pip install -q -e ."])
    agent.call("stage", run_id=ONE, owned=True, code_sha256=sha256, spec=command)
    agent.call("start", run_id=ONE)
    agent.exit_of(ONE)
    assert agent.path(ONE, "log").read_text().splitlines()[-1] == "in place"


def test_a_machine_without_a_pip_of_its_own_shares_the_one_that_python_brings(
    node_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_pip, "_find", lambda _: "")
    folders = Folders(str(node_root))
    folders.make()
    path = own_environment.pip_folder(folders)
    assert path is not None
    assert path == own_environment.pip_folder(folders)
    done = subprocess.run(
        ["/usr/bin/python3", "-S", "-m", "pip", "--version"],
        env={"PYTHONPATH": path}, capture_output=True, check=True,
    )  # fmt: skip
    assert f"from {path}/pip" in done.stdout.decode()
    assert list(Path(path).glob("pip/__pycache__/*.pyc"))


def test_the_machines_own_packages_are_no_part_of_it(agent: LocalAgent, shelf: Path) -> None:
    command = "pip list --format json; python -c 'import sys; print(sys.prefix)'"
    code, log = run(agent, ONE, command)
    assert code == 0
    listed, prefix = log.splitlines()
    assert [found["name"] for found in json.loads(listed)] == ["pip"]
    assert prefix == str(agent.path(ONE, "venv"))


def test_an_agent_that_is_not_root_gives_runs_an_environment_too(
    agent: LocalAgent, shelf: Path
) -> None:
    agent.become_ordinary()
    for path in (shelf.parent, *shelf.parent.rglob("*")):
        os.chown(path, agent.user or -1, -1)
    agent.run(ONE, f"{install(shelf, 'localthing')} && python -c 'import localthing'")
    assert agent.exit_of(ONE)["exit_code"] == 0, agent.path(ONE, "log").read_text()
