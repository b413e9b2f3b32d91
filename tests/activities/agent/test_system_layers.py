"""Debian packages of runs: in the run's own root, and never on the machine."""

import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.activities.agent.agent_process import LocalAgent, Refused, removed, spec
from tests.activities.agent.debian import DebianRepository, is_on_this_machine, repository
from tests.activities.waiting import wait_for

__all__ = ["repository"]
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root installs: run as root")
RUN, NEXT = "job-packages-0-1", "job-layer-next-0-1"
TOOL = "baseload-test-tool"
PROGRAM = {f"/usr/bin/{TOOL}": f"#!/bin/sh\necho {TOOL} runs\n"}
STATUS = Path("/var/lib/dpkg/status")


@pytest.fixture
def agent(repository: DebianRepository) -> Iterator[LocalAgent]:
    """An agent whose root is where that of a node is."""
    folder = Path(tempfile.mkdtemp(prefix="baseload-test-", dir="/var/lib"))
    folder.chmod(0o755)
    found = LocalAgent(folder / "root", repository.environment)
    yield found
    found.end_all()
    found.call("clean", run_ids=[path.name for path in (folder / "root/runs").glob("job-*")])
    wait_for(lambda: removed(folder), f"{folder} is gone")


def stage(agent: LocalAgent, run_id: str, command: str, **more: Any) -> None:
    of_spec = {name: more.pop(name) for name in ("runtime", "port") if name in more}
    agent.call(
        "stage",
        run_id=run_id,
        apt_packages=more.pop("names", [TOOL]),
        spec=spec(command, user="baseload-job", **of_spec),
        **more,
    )


def said(agent: LocalAgent, run_id: str, command: str, **more: Any) -> list[str]:
    """The log of a run with packages, which has to end well."""
    stage(agent, run_id, command, **more)
    agent.call("start", run_id=run_id)
    ended = agent.exit_of(run_id)
    log = agent.path(run_id, "log").read_text()
    assert ended["exit_code"] == 0, log
    return log.splitlines()


def mounts(agent: LocalAgent) -> list[str]:
    """What is mounted in the agent's folder."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [line for line in lines if str(agent.root) in line]


def test_a_program_of_a_package_runs_in_the_job_and_is_not_on_the_machine(
    agent: LocalAgent, repository: DebianRepository
) -> None:
    everywhere = {f"/{TOOL}/new": "new", f"/etc/{TOOL}": "set", f"/var/lib/{TOOL}/kept": "kept"}
    repository.add(TOOL, {**PROGRAM, **everywhere})
    before = (hashlib.sha256(STATUS.read_bytes()).digest(), mounts(agent))
    reads = "".join(f"cat {path}; echo; " for path in everywhere)
    asks = f"{TOOL}; {reads} dpkg-query -W -f '${{Status}}\\n' {TOOL}"
    found = said(agent, RUN, asks)
    assert found == [f"{TOOL} runs", "new", "set", "kept", "install ok installed"]
    assert not is_on_this_machine(TOOL)
    assert not any(Path(path).exists() for path in (*PROGRAM, *everywhere))
    agent.stage(NEXT, f"! command -v {TOOL} && ! [ -e /etc/{TOOL} ]", user="baseload-job")
    agent.call("start", run_id=NEXT)
    assert agent.exit_of(NEXT)["exit_code"] == 0
    agent.call("clean", run_ids=[RUN, NEXT])
    assert (hashlib.sha256(STATUS.read_bytes()).digest(), mounts(agent)) == before
    assert not agent.path(RUN).exists()


HOSTILE = """
mkdir -p /usr/share/{tool}; exec > /usr/share/{tool}/done 2>&1; set +e
echo written > /etc/{tool}-hostile
echo written > {shared}/from-set-up
kill -9 {victim} && echo killed
invoke-rc.d {tool} start
/etc/init.d/{tool} start &
(echo evil > /proc/sys/kernel/domainname) 2>/dev/null && echo kernel
(echo 0 > /sys/kernel/mm/ksm/run) 2>/dev/null && echo sys
mknod /dev/disk b {major} {minor} && echo disk
mount -t tmpfs none /mnt && echo mounted
chmod 600 /dev/null && echo null
ls {root} /root /home | grep -v : | grep . && echo seen
[ -e /run/{tool}.sock ] && echo socket
[ "$(ls /proc | grep -c '^[0-9]')" -gt 12 ] && echo processes
grep -v lo: /proc/net/dev | grep : && echo network
hostname evil-{tool}
echo asked
exit 0
"""


def test_set_up_scripts_leave_the_machine_as_it_was(
    agent: LocalAgent, repository: DebianRepository, tmp_path: Path
) -> None:
    victim = subprocess.Popen(["sleep", "600"])
    socket = Path(f"/run/{TOOL}.sock")
    socket.touch()
    started = Path(f"/usr/share/{TOOL}-started")
    service = f"#!/bin/sh\ntouch {started} /run/{TOOL}-started; exec sleep 600\n"
    disk = Path("/").stat().st_dev
    script = HOSTILE.format(
        tool=TOOL,
        victim=victim.pid,
        major=os.major(disk),
        minor=os.minor(disk),
        root=agent.root,
        shared=tmp_path,
    )
    repository.add(TOOL, {**PROGRAM, f"/etc/init.d/{TOOL}": service}, script)
    try:
        name = os.uname().nodename
        found = said(agent, RUN, f"cat /usr/share/{TOOL}/done /etc/{TOOL}-hostile")
        assert found[-2:] == ["asked", "written"]
        harm = {"killed", "kernel", "sys", "disk", "mounted", "null", "seen", "socket"}
        assert not {"processes", "network", *harm} & set(found)
        assert victim.poll() is None
        assert os.uname().nodename == name
        for path in (f"/etc/{TOOL}-hostile", started, f"/run/{TOOL}-started"):
            assert not Path(path).exists()
        assert list(tmp_path.iterdir()) == []
        assert not any(each[1:] == ["sleep", "600"] for each in services())
        assert Path("/dev/null").stat().st_mode & 0o777 == 0o666
    finally:
        victim.kill()
        victim.wait()
        socket.unlink()


def services() -> list[list[str]]:
    """What was started below our init script, by its command line."""
    found = subprocess.run(["ps", "-eo", "comm=,args="], check=True, capture_output=True, text=True)
    lines = [line.split() for line in found.stdout.splitlines()]
    return [line for line in lines if TOOL in " ".join(line)]


def test_a_second_job_of_the_same_set_builds_nothing(
    agent: LocalAgent, repository: DebianRepository
) -> None:
    mark = f"cat /proc/sys/kernel/random/uuid > /usr/share/{TOOL}"
    repository.add(TOOL, PROGRAM, mark)
    repository.add(f"{TOOL}-more", {})
    first = said(agent, RUN, f"cat /usr/share/{TOOL}", names=[TOOL, f"{TOOL}-more"])
    repository.vanish()
    again = said(agent, NEXT, f"cat /usr/share/{TOOL}", names=[f"{TOOL}-more", TOOL, TOOL])
    assert again == first
    with pytest.raises(Refused, match="knows no package") as caught:
        stage(agent, "job-layer-other-0-1", "true", names=[TOOL])
    assert caught.value.code == "apt"


def test_an_interrupted_build_starts_again(agent: LocalAgent, repository: DebianRepository) -> None:
    waits = f"touch /usr/share/{TOOL}-waits; exec sleep 987"
    repository.add(TOOL, PROGRAM, waits)
    building = agent.begin("stage", run_id=RUN, apt_packages=[TOOL], spec=spec(TOOL))
    layers = agent.root / "system"
    wait_for(lambda: list(layers.glob(f"*/upper/usr/share/{TOOL}-waits")), "the set-up script")
    building.send_signal(signal.SIGKILL)
    building.communicate(timeout=30)  # Until the last process of the build has ended.
    assert not list(layers.glob("*/baseload-complete"))
    repository.add(TOOL, PROGRAM)
    assert said(agent, RUN, TOOL) == [f"{TOOL} runs"]
    assert not list(layers.glob(f"*/upper/usr/share/{TOOL}-waits"))
    assert len(list(layers.glob("*/baseload-complete"))) == 1
    left = subprocess.run(["ps", "-eo", "args="], check=True, capture_output=True, text=True)
    assert "sleep 987" not in left.stdout


def test_a_run_writes_where_it_may_and_not_into_its_layer(
    agent: LocalAgent, repository: DebianRepository
) -> None:
    repository.add(TOOL, PROGRAM)
    asks = (
        "echo out > $BASELOAD_OUTPUT/file; echo kept > $BASELOAD_STATE/file; touch /tmp/file; "
        f"! touch /usr/bin/{TOOL} /etc/passwd /new /var/lib/new 2>/dev/null; touch /dev/shm/file; "
        "id -un; pwd; ls -d $BASELOAD_INPUT"
    )
    found = said(agent, RUN, asks)
    assert agent.path(RUN, "own/tmp/file").exists()
    account = agent.document(RUN, "spec.json")["user"]
    assert found == [account, str(agent.path(RUN, "work")), str(agent.path(RUN, "input"))]
    assert agent.path(RUN, "output/file").read_text() == "out\n"
    assert agent.path(RUN, "state/file").read_text() == "kept\n"
    layer = Path(agent.document(RUN, "spec.json")["system_layer"])
    assert sorted(path.name for path in layer.iterdir()) == sorted(
        ["baseload-complete", "group", "passwd", "root", "upper"]
    )
    assert list((layer / "root").iterdir()) == []


def test_a_run_is_ended_whole_and_its_layer_goes_when_nobody_uses_it(
    agent: LocalAgent, repository: DebianRepository
) -> None:
    repository.add(TOOL, PROGRAM)
    before = mounts(agent)
    stage(agent, RUN, "(setsid sleep 600 &) ; touch ready; sleep 600")
    agent.call("start", run_id=RUN)
    wait_for(agent.path(RUN, "work/ready").exists, "the command")
    layer = Path(agent.document(RUN, "spec.json")["system_layer"])
    assert not [one for one in agent.call("prune", max_age_s=-1)["removed"] if "system" in one]
    assert agent.call("end", run_id=RUN, grace_s=0)["tree_gone"]
    agent.call("clean", run_ids=[RUN])
    assert mounts(agent) == before
    assert not agent.path(RUN).exists()
    assert f"system/{layer.name}" in agent.call("prune", max_age_s=-1)["removed"]
    assert not layer.exists()


def test_accounts_of_a_package_are_beside_those_of_the_machine(
    agent: LocalAgent, repository: DebianRepository
) -> None:
    repository.add(TOOL, PROGRAM, f"useradd --system --no-create-home {TOOL}")
    stage(agent, RUN, "true")
    found = said(agent, NEXT, f"getent passwd {TOOL} | cut -d: -f1; id -un; id -Gn")
    assert found[:2] == [TOOL, agent.document(NEXT, "spec.json")["user"]]
    assert "baseload-job" in found[2].split()
    assert TOOL not in Path("/etc/passwd").read_text()


def test_python_packages_are_built_with_the_programs_of_debian_packages(
    agent: LocalAgent, repository: DebianRepository, wheels: Path
) -> None:
    repository.add(TOOL, PROGRAM)
    asked: dict[str, Any] = {"python_packages": ["needstool"], "owned": True}
    source = wheels.parent / "needstool-1.0"
    source.mkdir()
    (source / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: needstool\nVersion: 1.0\n")
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    (source / "backend.py").write_text(
        "import shutil, subprocess\n"
        "def build_wheel(folder, config_settings=None, metadata_directory=None):\n"
        f"    subprocess.run(['{TOOL}'], check=True)\n"
        f"    name = 'tinything-1.0-py3-none-any.whl'\n"
        "    import zipfile, os\n"
        f"    old = zipfile.ZipFile('{wheels}/' + name)\n"
        "    name = 'needstool-1.0-py3-none-any.whl'\n"
        "    with zipfile.ZipFile(os.path.join(folder, name), 'w') as new:\n"
        "        for each in old.namelist():\n"
        "            text = old.read(each).replace(b'Name: tinything', b'Name: needstool')\n"
        "            new.writestr(each.replace('tinything-1.0', 'needstool-1.0'), text)\n"
        "    return name\n"
    )
    archive = shutil.make_archive(
        str(wheels / "needstool-1.0"), "gztar", wheels.parent, source.name
    )
    assert Path(archive).exists()
    assert agent.environment is not None
    agent.environment = {**agent.environment, **repository.environment}
    assert said(agent, RUN, f"{TOOL}; tiny", **asked) == [f"{TOOL} runs", "tiny"]
    with pytest.raises(Refused, match=TOOL) as caught:
        agent.call("stage", run_id=NEXT, spec=spec("true"), **asked)
    assert caught.value.code == "packages"


def test_systemd_starts_the_run_in_its_own_root_too(
    agent: LocalAgent, repository: DebianRepository, tmp_path: Path
) -> None:
    """By what stands for systemd; that systemd itself does so is shown on whole machines."""
    repository.add(TOOL, PROGRAM)
    tool = tmp_path / "systemd-run"
    tool.write_text(
        "#!/bin/sh\nwhile :; do case $1 in --unit) shift 2 ;; -*) shift ;; *) break ;; esac; done\n"
        'setsid "$@" < /dev/null > /dev/null 2>&1 &\n'
    )
    tool.chmod(0o755)
    agent.environment = {**repository.environment, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert said(agent, RUN, TOOL, runtime="systemd") == [f"{TOOL} runs"]


def test_a_layer_that_is_too_large_or_cannot_be_had_starts_nothing(
    agent: LocalAgent, repository: DebianRepository
) -> None:
    repository.add(TOOL, PROGRAM, "head -c 20000000 /dev/urandom > /usr/share/large")
    with pytest.raises(Refused, match="disk_size_gb") as caught:
        stage(agent, RUN, "true", disk_size_gb=0.01)
    assert caught.value.code == "disk-full"
    repository.add(TOOL, PROGRAM, "echo this went wrong; exit 7")
    with pytest.raises(Refused, match="this went wrong") as caught:
        stage(agent, RUN, "true")
    assert caught.value.code == "apt"
    assert not [path for path in (agent.root / "system").iterdir() if path.is_dir()]
    for name in (f"{TOOL}-", "baseload.+tool", f"{TOOL}=1.0", f"{TOOL}:i386"):
        with pytest.raises(Refused, match=r"exact name|knows no package") as caught:
            stage(agent, RUN, "true", names=[name])
        assert caught.value.code == "apt"


def test_a_machine_that_can_give_no_root_says_why_and_what_helps(
    agent: LocalAgent, repository: DebianRepository
) -> None:
    repository.add(TOOL, PROGRAM)
    assert agent.call("prepare", peers=[])["no_run_root_reason"] is None
    plain = agent.command
    weak = ["setpriv", "--bounding-set=-sys_admin"]
    agent.command = lambda verb: [*weak, *plain(verb)]  # type: ignore[method-assign]
    assert "Operation not permitted" in agent.call("prepare", peers=[])["no_run_root_reason"]
    with pytest.raises(Refused, match=rf"{TOOL}.*not permitted.*allows_apt_packages.*image") as no:
        stage(agent, RUN, "true")
    assert no.value.code == "apt-not-allowed"
    assert not agent.path(RUN, "work").exists()


def test_what_the_machine_has_already_needs_no_layer(
    agent: LocalAgent, repository: DebianRepository
) -> None:
    repository.vanish()
    said(agent, RUN, "true", names=["coreutils", "dpkg"])
    assert agent.document(RUN, "spec.json")["system_layer"] is None
    assert not (agent.root / "system").exists()


def test_a_file_system_of_its_own_below_usr_is_part_of_the_root_too(
    agent: LocalAgent, repository: DebianRepository
) -> None:
    there = f"/usr/local/bin/{TOOL}"
    repository.add(TOOL, {there: f"#!/bin/sh\necho {TOOL} runs\n", **PROGRAM})
    plain = agent.command
    mounted = 'mount -t tmpfs none /usr/local && echo own > /usr/local/own && exec "$@"'
    apart = ["unshare", "--mount", "--propagation=private", "sh", "-c", mounted, "sh"]
    agent.command = lambda verb: [*apart, *plain(verb)]  # type: ignore[method-assign]
    found = said(agent, RUN, f"cat /usr/local/own; {there}; /usr/bin/{TOOL}; ls /usr/local")
    assert found == ["own", f"{TOOL} runs", f"{TOOL} runs", "bin", "own"]
    assert not Path(there).exists()
