"""Three tenants, one of whom owns a machine that lies: nobody else is touched by what it says."""

from __future__ import annotations

import contextlib
import os
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from activities.site.signal_rates import MOST_OF_RUN_PER_MINUTE
from tests.e2e.conftest import CPU_CORE_HOUR_MICROCREDITS
from tests.e2e.platform import Platform, Refused, Site
from tests.e2e.stack import RunningStack
from tests.failure.hostile_machine import HostileMachine
from tests.failure.lies import FORGED, FORGERIES, MARK, Lie, flood, forgeries, paths, violations
from tests.lab.machine import Machine
from tests.lab.machines import Lab
from tests.lab.waiting import wait_until

pytestmark = pytest.mark.timeout(600)

SEED = int(os.environ.get("BASELOAD_LIES_SEED", "7"))
GRANTED = 10**9
PER_SECOND = CPU_CORE_HOUR_MICROCREDITS // 3600
DONE = "/srv/done"
"""A file on a machine; while it is missing, the command there counts on."""
COUNTING = (
    f"n=0; while [ ! -e {DONE} ]; do n=$((n+1)); echo line $n; sleep 0.25; done; "
    "echo lines $n; exit {0}"
)
PROGRAMS = ("worker", "planning", "api")
MOST_GROWTH = 1.5


@dataclass(frozen=True)
class Tenant:
    """An account with a machine of its own, and a view of the platform."""

    name: str
    platform: Platform
    account_id: str
    site: Site
    machine: Machine
    node: str


@pytest.fixture(scope="module")
def tenants(lab: Lab, stack: RunningStack, platform: Platform) -> Iterator[dict[str, Tenant]]:
    made = {name: tenant(lab, stack, platform, name) for name in ("ada", "bea", "eve")}
    yield made
    for each in made.values():
        each.platform.http.close()
        lab.remove(each.machine.name)


def tenant(lab: Lab, stack: RunningStack, platform: Platform, name: str) -> Tenant:
    account_id = str(platform.post("/v1/accounts", {"name": name})["id"])
    granted = {"amount_microcredits": GRANTED}
    platform.post(f"/v1/accounts/{account_id}/credits", granted)
    own = Platform(stack.url, stack.administrator_key)
    own.http.headers["X-Baseload-Account"] = account_id
    provider = own.post("/v1/providers", {"kind": "physical"})["id"]
    own.until_status(f"/v1/providers/{provider}", "ready")
    body = {"provider_id": provider, "name": name, "relaxed_requirements": ["all"]}
    region_id = str(own.post("/v1/regions", body)["id"])
    own.until_status(f"/v1/regions/{region_id}", "healthy")
    site, machine = Site(own, region_id), lab.add(name)
    return Tenant(name, own, account_id, site, machine, site.join(machine)[0])


class Memory:
    """The resident memory of the stack's processes, and its peaks."""

    def __init__(self, stack: RunningStack) -> None:
        pids = {name: stack.pid(name) for name in PROGRAMS}
        self._folders = {name: Path(f"/proc/{pid}") for name, pid in pids.items()}
        for folder in self._folders.values():
            (folder / "clear_refs").write_text("5")  # From here the kernel notes the peak anew.
        self._quiet = {name: self._kib(name, "VmRSS") for name in self._folders}

    def growth(self) -> dict[str, float]:
        """The peak of each process since, as a multiple of what it had."""
        return {name: self._kib(name, "VmHWM") / self._quiet[name] for name in self._folders}

    def _kib(self, name: str, field: str) -> int:
        status = (self._folders[name] / "status").read_text()
        found = re.search(rf"^{field}:\s+(\d+) kB", status, re.MULTILINE)
        assert found is not None, f"{name} has ended"
        return int(found.group(1))


@dataclass
class Story:
    """The jobs of the two honest tenants, and the lies of the third."""

    tenants: dict[str, Tenant]
    hostile: HostileMachine
    jobs: dict[str, str]
    dice: random.Random

    @property
    def eve(self) -> Tenant:
        return self.tenants["eve"]

    def victims(self) -> list[str]:
        """The run ids of the others' jobs."""
        return [f"{path.rsplit('/', 1)[1]}-0-1" for path in self.jobs.values()]

    def tell(self, lie: Lie) -> None:
        """Tell a lie until the node has failed for it; the jobs of the others run on.

        Forgeries break no rule: they are told until the node's own job is heard after them.
        """
        own = self.be_a_node()
        heard = len(self.eve.platform.log(own)) + len("own\n" * 3)
        self.hostile.lie(lie)

        def is_met() -> bool:
            if lie.name != FORGERIES:
                return self.has_failed()
            return bool(self.hostile.asked(lie.verb)) and len(self.eve.platform.log(own)) > heard

        wait_until(is_met, f"{lie.name}: met", 120)
        self.see_others_run(lie)
        self.cancel(own)

    def cancel(self, job: str) -> None:
        with contextlib.suppress(Refused):  # It has ended with its machine.
            self.eve.platform.post(f"{job}/cancel")

    def has_failed(self) -> bool:
        return bool(self.eve.platform.get(self.eve.node)["status"] == "failed")

    def be_a_node(self) -> str:
        """Be honest until a job runs there; a person brings the node back if it has failed."""
        self.hostile.be_honest()
        self.hostile.end_watch()
        eve = self.eve
        job = eve.platform.job("while sleep 0.2; do echo own; done", eve.site.region_id)

        def runs() -> bool:
            if self.has_failed():
                eve.site.announce(eve.machine)
                eve.platform.until_status(eve.node, "maintenance")
                eve.site.activate(eve.node)
            return bool(eve.platform.get(job)["status"] == "running")

        wait_until(runs, "the hostile machine is a node with a job", 150)
        return job

    def see_others_run(self, lie: Lie) -> None:
        for name, job in self.jobs.items():
            found = self.tenants[name].platform.get(job)
            assert (found["status"], found["attempt"]) == ("running", 1), (SEED, lie.name, found)


@pytest.fixture(scope="module")
def story(tenants: dict[str, Tenant]) -> Story:
    jobs = {}
    for name, code in (("ada", 0), ("bea", 3)):
        command = COUNTING.replace("{0}", str(code))
        jobs[name] = tenants[name].platform.job(command, tenants[name].site.region_id)
    for name, job in jobs.items():
        tenants[name].platform.until_status(job, "running")
    return Story(tenants, HostileMachine(tenants["eve"].machine), jobs, random.Random(SEED))


def test_a_machine_that_lies_fails_and_the_jobs_of_others_end_as_if_it_were_not_there(
    story: Story, stack: RunningStack, platform: Platform
) -> None:
    memory, before = Memory(stack), paths_under(stack.home)
    first = story.be_a_node()
    own, victims = story.hostile.names(), story.victims()
    story.cancel(first)
    for lie in (
        forgeries(story.dice, victims, own),
        paths(story.dice, victims),
        *violations(story.dice, own[0]),
    ):
        story.tell(lie)
    fails_for_a_flood(story, platform)
    assert {name: growth for name, growth in memory.growth().items() if growth >= MOST_GROWTH} == {}
    assert [path for path in paths_under(stack.home) - before if MARK in path] == []
    assert not list(Path("/var/tmp").glob(f"{MARK}*"))
    for tenant, code in (("ada", 0), ("bea", 3)):
        ends_as_its_own(story, tenant, code)


def fails_for_a_flood(story: Story, platform: Platform) -> None:
    """The node fails, its job loses the machine, and its owner and administrators are told."""
    eve = story.eve
    job = story.be_a_node()
    (name,) = [one for one in story.hostile.names() if one.startswith(job.rsplit("/", 1)[1])]
    story.hostile.lie(flood(name, MOST_OF_RUN_PER_MINUTE + 1))
    failed = eve.platform.until_status(eve.node, "failed")
    assert f"more than {MOST_OF_RUN_PER_MINUTE} reports of" in failed["status_reason"]
    assert "node.protocol-violated" in eve.platform.events(eve.node)
    words = "its runs are not believed any more"
    eve.platform.until(job, lambda found: words in str(found["status_reason"]), "it hears of it")
    story.cancel(job)
    told = [one for one in platform.items("/v1/events") if one["type"] == PLATFORM_EVENT]
    assert [one["details"]["node_id"] for one in told] == [eve.node.rsplit("/", 1)[1]]


PLATFORM_EVENT = "platform.protocol-violated"


def ends_as_its_own(story: Story, name: str, code: int) -> None:
    """The job ends when its own command does, with its exit, its log, and its bill."""
    tenant, job = story.tenants[name], story.jobs[name]
    tenant.machine.run("touch", DONE)
    ended = tenant.platform.until_status(job, "failed" if code else "finished")
    (worker,) = ended["workers"]
    assert worker["exit_code"] == code
    log = tenant.platform.log(job)
    assert FORGED.decode() not in log
    *lines, last = log.splitlines()
    assert lines == [f"line {n}" for n in range(1, len(lines) + 1)]
    assert last == f"lines {len(lines)}"
    charged = int(worker["elapsed_s"]) * PER_SECOND
    charges = tenant.platform.get(f"{job}/charges")["charges"]
    assert sum(charge["amount_microcredits"] for charge in charges) == charged
    balance = tenant.platform.get("/v1/account")["balance_microcredits"]
    assert balance == GRANTED - charged, "nothing else was charged"


def paths_under(folder: Path) -> set[str]:
    """Every file under a folder, and beside it."""
    return {str(path) for path in (*folder.rglob("*"), *folder.parent.iterdir())}
