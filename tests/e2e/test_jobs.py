"""Jobs on machines: what runs, where, what comes back, what it costs, and how it ends.

All of it on three machines: a pair with two GPUs each, and one with eight, where jobs are canceled.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.doubles.file_server import FileServer
from tests.e2e.conftest import CPU_CORE_HOUR_MICROCREDITS
from tests.e2e.platform import Platform, Resource, Site
from tests.lab.hardware import put_gpus
from tests.lab.machine import Machine
from tests.lab.machines import Lab
from tests.lab.waiting import wait_until
from tests.lab.wheels import write_wheel

pytestmark = pytest.mark.timeout(600)

ONE_GPU: Resource = {"gpus": "A100:1", "cpu_count": 1, "memory_gib": 1}
TWO_GPUS: Resource = {**ONE_GPU, "gpus": "A100:2"}
ALL_GPUS: Resource = {**ONE_GPU, "gpus": "A100:8"}
A100 = "NVIDIA A100-SXM4-80GB"


@dataclass(frozen=True)
class Pair:
    """A region's two machines, each a node with two GPUs."""

    machines: tuple[Machine, Machine]
    region_id: str

    def command_lines(self) -> list[str]:
        return [line for machine in self.machines for line in machine.command_lines()]


@dataclass(frozen=True)
class Eight:
    """A region's only machine, a node with eight GPUs."""

    machine: Machine
    region_id: str


def gpu_machine(lab: Lab, name: str, count: int) -> Machine:
    """A machine with so many A100."""
    machine = lab.add(name)
    put_gpus(machine, A100, count)
    return machine


@pytest.fixture(scope="module")
def pair(lab: Lab, make_site: Callable[..., Site]) -> Iterator[Pair]:
    site = make_site()
    machines = gpu_machine(lab, "pair-0", 2), gpu_machine(lab, "pair-1", 2)
    site.join(*machines)
    yield Pair(machines, site.region_id)
    for machine in machines:
        lab.remove(machine.name)


@pytest.fixture(scope="module")
def eight(lab: Lab, make_site: Callable[..., Site]) -> Iterator[Eight]:
    site = make_site()
    machine = gpu_machine(lab, "eight", 8)
    site.join(machine)
    yield Eight(machine, site.region_id)
    lab.remove(machine.name)


def test_a_job_of_two_workers_runs_on_both_machines_and_brings_both_outputs(
    platform: Platform, pair: Pair
) -> None:
    command = (
        'echo "worker $BASELOAD_WORKER of $BASELOAD_WORKERS on $(hostname)"; sleep 2; '
        'hostname > "$BASELOAD_OUTPUT/host-$BASELOAD_WORKER"'
    )
    job = platform.job([command, command], pair.region_id, resources=TWO_GPUS)
    finished = platform.until_status(job, "finished", limit_s=150)
    assert [worker["exit_code"] for worker in finished["workers"]] == [0, 0]
    assert len({worker["node_id"] for worker in finished["workers"]}) == 2
    hosts = {machine.name for machine in pair.machines}
    output = platform.output(job)
    found = {Path(name).name: text.decode().strip() for name, text in output.items()}
    assert set(found) == {"host-0", "host-1"}
    assert set(found.values()) == hosts
    for worker in (0, 1):
        assert f"worker {worker} of 2 on {found[f'host-{worker}']}" in platform.log(job, worker)


def test_one_worker_that_fails_ends_the_other(platform: Platform, pair: Pair) -> None:
    job = platform.job(["sleep 2; exit 7", "sleep 5021"], pair.region_id, resources=TWO_GPUS)
    failed = platform.until_status(job, "failed", limit_s=150)
    assert "7" in failed["status_reason"]
    assert "sleep 5021" not in pair.command_lines()


def test_a_job_is_billed_the_seconds_that_its_node_has_measured(
    platform: Platform, pair: Pair
) -> None:
    job = platform.job("sleep 5", pair.region_id)
    finished = platform.until_status(job, "finished", limit_s=150)
    charges = platform.get(f"{job}/charges")["charges"]
    per_second = CPU_CORE_HOUR_MICROCREDITS // 3600
    charged = finished["charged_microcredits"]
    assert sum(charge["amount_microcredits"] for charge in charges) == charged
    assert 5 * per_second <= charged <= 7 * per_second
    assert len(charges) >= 2, "a period of three seconds was posted while it ran"


@pytest.mark.parametrize(
    "state", ["waiting_for_resources", "waiting_for_data", "running", "uploading"]
)
def test_a_job_is_cancelled_in_every_state_and_leaves_nothing(
    platform: Platform, eight: Eight, state: str
) -> None:
    machine = eight.machine
    settings = machine.disk / "etc/pip.conf"
    usual = settings.read_text()
    with socket.create_server((machine.address.rsplit(".", 1)[0] + ".1", 0)) as silence:
        job = job_held_in(platform, eight, state, silence.getsockname()[1])
        platform.until_status(job, state)
        platform.post(f"{job}/cancel?discard=true")
        canceled = platform.until_status(job, "canceled", limit_s=150)
    assert canceled["status_reason"]
    assert not any("5031" in line for line in machine.command_lines())
    wait_until(lambda: not held_gpus(platform), "every GPU is free again")
    assert left_behind(machine, job) == []
    settings.write_text(usual)


def job_held_in(platform: Platform, eight: Eight, state: str, silent_port: int) -> str:
    """A job that stays in that state long enough; `silent_port` takes a call and says nothing."""
    if state == "waiting_for_resources":
        first = platform.job("sleep 5030", eight.region_id, resources=ALL_GPUS)
        platform.until_status(first, "running")
        waiting = platform.job("sleep 5031", eight.region_id, resources=ALL_GPUS)
        platform.until_status(waiting, "waiting_for_resources")
        platform.until(waiting, lambda job: job["placement_refusals"], "the reasons are given")
        platform.post(f"{first}/cancel")
        return waiting
    environment: Resource = {}
    command = "sleep 5031"
    if state == "waiting_for_data":
        index = f"http://{eight.machine.address.rsplit('.', 1)[0]}.1:{silent_port}/simple"
        settings = eight.machine.disk / "etc/pip.conf"
        settings.write_text(f"[global]\nindex-url = {index}\nretries = 20\n")
        environment = {"environment": {"python_packages": ["absent"]}}
    if state == "uploading":
        command = 'head -c 300000000 /dev/urandom > "$BASELOAD_OUTPUT/big"'
    return platform.job(command, eight.region_id, resources=ALL_GPUS, **environment)


def held_gpus(platform: Platform) -> list[Resource]:
    nodes = [node for node in platform.items("/v1/nodes") if node["status"] != "archived"]
    gpus = [gpu for node in nodes for gpu in platform.get(f"/v1/nodes/{node['id']}")["gpus"]]
    return [gpu for gpu in gpus if gpu["job_id"] is not None]


def left_behind(machine: Machine, job: str) -> list[str]:
    """What the job's folders on the machine still hold."""
    name = job.rsplit("/", 1)[1]
    found = machine.run("find", "/var/lib/baseload/runs", "-maxdepth", "1", "-name", f"{name}-*")
    return found.split()


def test_jobs_cancelled_at_any_moment_end_cancelled_and_leave_nothing(
    platform: Platform, eight: Eight
) -> None:
    """One after the other is asked to end a bit later in its life: also between the states."""
    machine = eight.machine
    moments: tuple[Callable[[str], object], ...] = (
        lambda job: True,
        lambda job: "job.placed" in platform.events(job),
        lambda job: "job.staging" in platform.events(job),
        lambda job: left_behind(machine, job),
        lambda job: any("5032" in line for line in machine.command_lines()),
        lambda job: platform.get(job)["status"] == "running",
    )
    jobs = []
    for moment in moments:
        jobs.append(platform.job("sleep 5032", eight.region_id, resources=ONE_GPU))
        wait_until(partial(moment, jobs[-1]), "the moment to cancel it")
        platform.post(f"{jobs[-1]}/cancel")
    for job in jobs:
        platform.until_status(job, "canceled", limit_s=150)
        assert left_behind(machine, job) == []
    assert not any("5032" in line for line in machine.command_lines())
    assert not held_gpus(platform)


def test_two_jobs_never_hold_one_gpu(platform: Platform, pair: Pair) -> None:
    """Each job makes a folder named after its GPU for as long as it runs; a second one cannot.

    The first ones stay until both GPUs of their machine have one.
    """
    for machine in pair.machines:
        machine.run("mkdir", "--mode=1777", "/srv/held")
    held, both = '"/srv/held/$CUDA_VISIBLE_DEVICES"', "/srv/held/.both"
    seen = f"[ -e {both} ] || [ $(ls /srv/held | wc -l) = 2 ]"
    command = (
        f"mkdir {held} || exit 9; timeout 100 sh -c 'until {seen}; do sleep 0.1; done' || exit 8; "
        f"[ -e {both} ] || touch {both}; rmdir {held}"
    )
    jobs = [platform.job(command, pair.region_id, resources=ONE_GPU) for _ in range(8)]
    ended = [platform.until_status(job, "finished", limit_s=150) for job in jobs]
    used = {uuid for job in ended for worker in job["workers"] for uuid in worker["gpu_uuids"]}
    assert len(used) == 4
    for machine in pair.machines:
        assert both in machine.run("ls", both), "two ran side by side there"


def test_a_notebook_runs_until_it_is_stopped_and_starts_again(
    platform: Platform, pair: Pair
) -> None:
    command = (
        "cat mine $BASELOAD_STATE/mine $BASELOAD_OUTPUT/mine; "
        "for folder in . $BASELOAD_STATE $BASELOAD_OUTPUT; do echo kept > $folder/mine; done; "
        "echo begun; sleep 5041"
    )
    job = platform.job(command, pair.region_id, type="notebook", port=8888)
    platform.until_status(job, "running")
    wait_until(lambda: "begun" in platform.log(job), "it has written its files")
    platform.post(f"{job}/stop")
    platform.until_status(job, "stopped")
    assert platform.output(job) == {"mine": b"kept\n"}
    assert "sleep 5041" not in pair.command_lines()
    platform.post(f"{job}/start")
    platform.until(job, lambda found: found["status"] == "running", "it runs again")
    wait_until(lambda: platform.log(job).count("begun") == 2, "both logs are there")
    assert platform.log(job).count("kept\n") == 3, "all its files were there again"
    platform.post(f"{job}/cancel")
    platform.until_status(job, "canceled")


def test_what_a_canceled_command_saves_last_is_its_output(platform: Platform, pair: Pair) -> None:
    command = (
        "trap 'echo epoch 7 > $BASELOAD_OUTPUT/checkpoint; exit 0' TERM; echo ready; "
        "while true; do sleep 0.1; done"
    )
    job = platform.job(command, pair.region_id)
    wait_until(lambda: "ready" in platform.log(job), "its handler is there")
    platform.post(f"{job}/cancel")
    platform.until_status(job, "canceled")
    assert list(platform.output(job).values()) == [b"epoch 7\n"]
    stored = [each for each in platform.items(f"{job}/events") if each["type"] == "job.stored"]
    assert [each["details"]["output_files"] for each in stored] == [1]


def test_code_and_packages_reach_the_job_and_its_output_comes_back(
    platform: Platform, pair: Pair
) -> None:
    program = (
        "import labgreet, os, pathlib\n"
        "pathlib.Path(os.environ['BASELOAD_OUTPUT'], 'said').write_text(labgreet.greeting())\n"
        "print('uid', os.getuid() != 0, pathlib.Path('note').read_text())\n"
    )
    code = {"code": {"upload_id": platform.upload({"main.py": program, "note": "kept"})}}
    environment = {"environment": {"python_packages": ["labgreet"]}}
    first = platform.job("python main.py", pair.region_id, **code, **environment)
    platform.until_status(first, "finished", limit_s=150)
    assert platform.log(first) == "uid True kept\n"
    assert list(platform.output(first).values()) == [b"hello from a wheel"]


def test_a_job_has_an_environment_of_its_own_with_packages_a_setup_and_pip(
    platform: Platform, pair: Pair
) -> None:
    """What its code asks for is there, what it sets up and installs is its own alone."""
    for machine in pair.machines:
        write_wheel(machine.disk / "opt/wheels", "labown", "1.0", "words = 'installed'\n")
    program = "import labgreet, labown; print(labgreet.greeting(), labown.words)\n"
    files = {
        "main.py": program,
        "deps/requirements.txt": "-r more.txt\n",
        "deps/more.txt": "labgreet",
    }
    code = {"code": {"upload_id": platform.upload(files)}}
    environment = {
        "requirements": "deps/requirements.txt",
        "setup": ["pip install -q labown", "echo set > up"],
    }
    job = platform.job("cat up; python main.py", pair.region_id, environment=environment, **code)
    platform.until_status(job, "finished", limit_s=150)
    assert platform.log(job).splitlines() == [
        "baseload: set-up begins", "baseload: set-up ends", "set", "hello from a wheel installed",
    ]  # fmt: skip
    imports = "python -c 'import labown; print(labown.words)'"
    in_command = platform.job(f"pip install -q labown && {imports}", pair.region_id)
    platform.until_status(in_command, "finished", limit_s=150)
    assert platform.log(in_command) == "installed\n"
    alone = platform.job(imports, pair.region_id)
    platform.until_status(alone, "failed", limit_s=150)
    assert "No module named 'labown'" in platform.log(alone)


def test_variables_reach_the_job_and_no_command_line(platform: Platform, pair: Pair) -> None:
    environment = {"variables": {"TOKEN": "sesame-5051"}}
    command = 'echo "${TOKEN%-5051} opens"; sleep 3'
    job = platform.job(command, pair.region_id, environment=environment)
    platform.until_status(job, "running")
    seen = set(pair.command_lines())
    while platform.get(job)["status"] == "running":
        seen |= set(pair.command_lines())
    platform.until_status(job, "finished")
    assert platform.log(job) == "sesame opens\n"
    assert not any("sesame-5051" in line for line in seen)


def test_two_jobs_read_one_dataset_and_the_second_fetches_nothing(
    platform: Platform, eight: Eight
) -> None:
    """Uploaded through the API, sent to the node once, read-only in both jobs, removed at last."""
    content = bytes(range(256)) * 20_000
    dataset = platform.dataset("digits", {"train/images": content, "labels": b"0123"})
    command = (
        'cd "$BASELOAD_DATASETS/digits" && md5sum < train/images && cat labels && id -u >&2; '
        "touch new 2>/dev/null && echo written; true"
    )
    data = {"data": {"datasets": [dataset.rpartition("/")[2]]}}
    jobs, staged = [], []
    for _ in range(2):
        job = platform.job(command, eight.region_id, **data)
        platform.until_status(job, "finished")
        events = platform.items(f"{job}/events")
        staged += [each["details"] for each in events if each["type"] == "job.data-staged"]
        jobs.append(job)
    assert [each["fetched_bytes"] > len(content) for each in staged] == [True, False]
    assert [each["bytes"] for each in staged] == [staged[0]["fetched_bytes"]] * 2
    assert staged[1]["fetched_bytes"] == 0
    lines = {tuple(platform.log(job).splitlines()[:1]) for job in jobs}
    assert lines == {(f"{hashlib.md5(content).hexdigest()}  -",)}
    assert all("written" not in platform.log(job) for job in jobs)
    root = eight.machine.disk / "var/lib/baseload"
    assert [path.name for path in (root / "contents").iterdir() if path.is_dir()] == [
        platform.get(dataset)["content_sha256"]
    ]
    assert (root / "contents").stat().st_mode & 0o777 == 0o700
    platform.ask("DELETE", dataset)
    platform.until_status(dataset, "archived")


def test_a_job_waits_for_its_input_from_the_web_and_reads_it_as_it_reads_an_own_dataset(
    platform: Platform, eight: Eight
) -> None:
    """Transferred for the job alone; a source that answers 404 fails the job with that reason."""
    packed = platform.packed({"train/images": b"images", "labels": b"0123"})
    command = (
        'cd "$BASELOAD_INPUT"; cat train/images labels; touch new 2>/dev/null && echo written; true'
    )
    with FileServer(files={"/digits.tar": packed}).serving() as server:
        web = {"type": "web", "url": server.url("/digits.tar")}
        job = platform.job(command, eight.region_id, data={"input": web})
        finished = platform.until_status(job, "finished")
        away = {"type": "web", "url": server.url("/none.tar")}
        refused = platform.job(command, eight.region_id, data={"input": away})
        failed = platform.until_status(refused, "failed")
    assert platform.log(job) == "images0123"
    made = platform.get(f"/v1/datasets/{finished['input_id']}")
    assert (made["made_for_job_id"], made["file_count"]) == (finished["id"], 2)
    assert "job.awaits-data" in platform.events(job)
    assert failed["status_reason"].startswith(f"its input ({failed['input_id']}) is failed: ")
    assert "404" in failed["status_reason"]
    again = platform.job(
        command, eight.region_id, data={"input": {"type": "dataset", "id": made["id"]}}
    )
    platform.until_status(again, "finished")
    assert platform.log(again) == platform.log(job)
