"""kill -9 of our own processes in the middle: nothing is lost, doubled or left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import httpx
import pytest

from tests.e2e.conftest import CPU_CORE_HOUR_MICROCREDITS
from tests.e2e.platform import Platform, Site
from tests.e2e.stack import RunningStack
from tests.lab.fixtures import BootMachine
from tests.lab.machine import Machine
from tests.lab.machines import Lab
from tests.lab.waiting import wait_until

pytestmark = pytest.mark.timeout(600)

SECONDS = 7
SHARED = "/srv/shared"
"""A folder of the machine that every job may write to; each job's /tmp is its own."""
COMMAND = (
    f"echo run >> {SHARED}/runs; for n in $(seq 1 {SECONDS}); do echo $n; sleep 1; done; "
    "hostname > $BASELOAD_OUTPUT/host"
)


@dataclass(frozen=True)
class Node:
    """The only node of its region."""

    machine: Machine
    region_id: str


@pytest.fixture(scope="module")
def node(lab: Lab, make_site: Callable[..., Site]) -> Iterator[Node]:
    site, machine = make_site(), lab.add("survivor")
    site.join(machine)
    yield Node(machine, site.region_id)
    lab.remove(machine.name)


@pytest.mark.parametrize("victims", [("worker", "planning", "api"), ("temporal",)])
def test_killed_processes_come_back_and_the_job_has_run_once(
    stack: RunningStack, platform: Platform, node: Node, victims: tuple[str, ...]
) -> None:
    machine, region_id = node.machine, node.region_id
    machine.run("rm", "-rf", SHARED)
    machine.run("mkdir", "--mode=1777", SHARED)
    job = platform.job(COMMAND, region_id)
    platform.until_status(job, "running")
    short = [platform.job(f"echo run >> {SHARED}/runs-{n}", region_id) for n in range(4)]
    platform.until_status(short[1], "waiting_for_data", "running", "uploading", "finished")
    stack.kill(*victims)
    wait_until(lambda: answers(platform), "the API answers", 150)
    other = platform.job("true", region_id)
    finished = platform.until_status(job, "finished", limit_s=150)
    assert finished["workers"][0]["exit_code"] == 0
    for each in short:
        platform.until_status(each, "finished", limit_s=150)
    assert machine.run("sh", "-c", f"cat {SHARED}/runs*") == "run\n" * 5
    assert platform.log(job) == "".join(f"{n}\n" for n in range(1, SECONDS + 1))
    assert [text.strip() for text in platform.output(job).values()] == [machine.name.encode()]
    per_second = CPU_CORE_HOUR_MICROCREDITS // 3600
    charged = finished["charged_microcredits"]
    assert SECONDS * per_second <= charged <= (SECONDS + 2) * per_second
    platform.until_status(other, "finished", limit_s=150)
    stack.wait_until_ready()


def test_a_machine_becomes_a_node_though_the_worker_is_killed_on_the_way(
    stack: RunningStack, platform: Platform, site: Site, boot_machine: BootMachine
) -> None:
    machine = boot_machine("systemd")
    site.announce(machine)
    node = site.add(machine)
    platform.until_status(node, "connecting", "inspecting", "preparing", "maintenance")
    stack.kill("worker")
    platform.until_status(node, "maintenance", limit_s=150)
    told = platform.events(node)
    assert "node.failed" not in told
    assert told.count("node.prepared") == 1
    stack.wait_until_ready()


def answers(platform: Platform) -> bool:
    try:
        return platform.http.get("/healthz").status_code == 200
    except httpx.TransportError:
        return False
