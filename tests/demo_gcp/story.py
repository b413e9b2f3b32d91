"""What is told, from a machine of one's own and a key to the bill."""

from __future__ import annotations

import re

from tests.demo_gcp.bill import disagreements, table
from tests.demo_gcp.own_machine import OWN_NODE, own_machine
from tests.demo_gcp.stack import Stage
from tests.demo_gcp.telling import Telling
from workers.runner.commands import Resource
from workers.runner.local_node import shortened
from workers.runner.narration import Story
from workers.runner.settings import CHECKOUT

CLOUD_REGION, BURST_REGION = "us-central1", "burst"
JOBS = CHECKOUT / "tests" / "demo_gcp" / "training"
LONG_JOB, JOB = "long-training", "training"
EPOCHS_BEFORE = 4
"""How many are seen before the cloud takes the machine back."""
LASTING_NODES = [f"{BURST_REGION}-storage", OWN_NODE]
_EPOCH = re.compile(r"^epoch ", re.MULTILINE)
WENT_ON = "goes on after epoch"
"""What training/train.py says where it finds its state."""


def play(stage: Stage, story: Story) -> None:
    """All of it. Raises: StackError, at the first thing that is not as it should be."""
    telling = Telling(stage, story)
    with story.step("A machine of your own, with one A100"):
        own_machine(telling, stage.lab, stage.settings.api_url)
    with story.step("Enable Google Cloud (simulated)"):
        key = shortened(stage.key)
        telling.baseload("provider", "enable", "gcp", "--key", key, "--wait")
        telling.baseload("provider", "checks", "gcp")
    with story.step("Quotas: what may run there"):
        telling.baseload("quotas", "gcp", CLOUD_REGION)
    with story.step("A region in the cloud, with its storage node"):
        cloud_region(telling)
    with story.step("Your own machine is full"):
        fill_own_machine(telling)
    with story.step("Burst: the next job has a machine made for it"):
        job = burst(telling)
    with story.step("Preemption: the cloud takes the machine back"):
        lose_the_machine(telling, job)
    with story.step("It runs to its end on another one"):
        finish(telling, job)
    with story.step("All gone"):
        remove_everything(telling)
    with story.step("The bill"):
        settle(telling, job)


def cloud_region(telling: Telling) -> None:
    """Its storage node runs all the time; nothing else does."""
    where = BURST_REGION, CLOUD_REGION, "--provider", "gcp", "--storage-class", "micro"
    telling.baseload("region", "add", *where, "--wait", "--timeout", "180")
    telling.baseload("node", "ls")
    telling.baseload("leases")
    telling.expect("the cloud runs one machine", len(telling.cloud.machines()) == 1)


def fill_own_machine(telling: Telling) -> None:
    """The cheapest place is one's own."""
    telling.baseload("submit", shortened(JOBS / "long.yaml"))
    job = telling.reached("jobs", LONG_JOB, "running")
    telling.baseload("placement", LONG_JOB)
    telling.expect(f"it runs on {OWN_NODE}", _place(telling, job) == OWN_NODE)


def burst(telling: Telling) -> Resource:
    """It waits, says for what, and runs on a machine that was made for it."""
    telling.baseload("submit", shortened(JOBS / "job.yaml"))
    job = telling.reached("jobs", JOB, "waiting_for_resources", "provisioning", "running")
    path = f"/v1/jobs/{job['id']}"
    telling.until("its machine is being made", lambda: telling.cloud.machines()[1:])
    telling.baseload("placement", JOB)
    job = telling.path_reached(path, "running")
    telling.baseload("leases")
    telling.expect(f"{OWN_NODE} had no room for it", _place(telling, job) != OWN_NODE)
    learnt = f"it has learnt for {EPOCHS_BEFORE} epochs"
    telling.until(learnt, lambda: _epochs(telling, job) >= EPOCHS_BEFORE)
    return job


def lose_the_machine(telling: Telling, job: Resource) -> None:
    """Nobody has to do anything: it waits again, and goes on where it was on another machine."""
    path = f"/v1/jobs/{job['id']}"
    name = telling.cloud.spot_machine()
    telling.expect("its machine is a spot one, which Google may take back", name)
    copied = "what it keeps in $BASELOAD_STATE is copied off that machine"
    telling.until(copied, lambda: "job.state-saved" in _events(telling, job))
    telling.cloud.preempt(str(name))
    telling.tell(f"the simulated cloud has preempted {name}")
    telling.until("the job has left it", lambda: telling.api.get(path)["attempt"] == 2)
    telling.path_reached(path, "running")
    telling.baseload("leases", "--ended")
    again = telling.cloud.spot_machine()
    telling.expect("another machine was made for it", again not in (None, name))


def finish(telling: Telling, job: Resource) -> None:
    """With what it had kept; its own machine goes with it."""
    path = f"/v1/jobs/{job['id']}"
    telling.path_reached(path, "finished")
    telling.baseload("logs", JOB)
    telling.baseload("events", JOB)
    went_on = WENT_ON in telling.api.text(_log_of(job))
    telling.expect("it went on from the state that it had kept", went_on)
    telling.until("its machine is gone", lambda: len(telling.cloud.machines()) == 1)
    telling.until("its node is gone", lambda: len(_nodes(telling)) == len(LASTING_NODES))
    telling.expect(f"only {' and '.join(LASTING_NODES)} are left", _nodes(telling) == LASTING_NODES)


def remove_everything(telling: Telling) -> None:
    """Region, provider and whatever else was made in the cloud; then the cloud itself is asked."""
    job = telling.reached("jobs", LONG_JOB, "running")
    telling.baseload("cancel", LONG_JOB)
    telling.path_reached(f"/v1/jobs/{job['id']}", "canceled")
    region = telling.reached("regions", BURST_REGION, "healthy")
    telling.baseload("region", "rm", BURST_REGION)
    telling.path_reached(f"/v1/regions/{region['id']}", "archived")
    telling.baseload("kill", "--all", "--provider", "gcp", "--yes")
    telling.baseload("provider", "disable", "gcp", "--wait")
    left = telling.cloud.left()
    telling.expect(_and("nothing is left in the cloud", left), not left)


def settle(telling: Telling, job: Resource) -> None:
    """Our fee, the machines' cost, and the cloud's own meter beside it."""
    telling.baseload("charges", str(job["id"]))
    telling.baseload("bill")
    leases = telling.api.get("/v1/leases?limit=100")["items"]
    charges = telling.cloud.charges()
    telling.tell("\nThe machines, paid to the cloud; by leases (dated list prices) and its meter:")
    for line in table(leases, charges):
        telling.tell(line)
    found = disagreements(leases, charges)
    telling.expect(_and("leases and meter agree to the second", found), not found)
    running = [each.name for each in charges if each.is_running]
    telling.expect(_and("the meter has stopped", running), not running)
    listed = telling.cloud.machines()
    telling.expect(_and("the cloud lists no machine", listed), not listed)
    odd = telling.cloud.violations()
    telling.expect(_and("Google's documents know all that was asked", odd), not odd)


def _and(claim: str, exceptions: list[str]) -> str:
    return "\n  ".join((claim, *exceptions))


def _place(telling: Telling, job: Resource) -> str:
    """The name of the node that it has now."""
    assignments = telling.api.get(f"/v1/jobs/{job['id']}/placement")["assignments"]
    return next((str(one["node_name"]) for one in assignments if not one["released_at"]), "")


def _nodes(telling: Telling) -> list[str]:
    """Names of those that are there still."""
    found = telling.api.get("/v1/nodes?limit=100")["items"]
    return sorted(str(node["name"]) for node in found if node["status"] != "archived")


def _epochs(telling: Telling, job: Resource) -> int:
    return len(_EPOCH.findall(telling.api.text(_log_of(job))))


def _events(telling: Telling, job: Resource) -> set[str]:
    """What kinds of events there were of it."""
    found = telling.api.get(f"/v1/jobs/{job['id']}/events?limit=100")["items"]
    return {str(event["type"]) for event in found}


def _log_of(job: Resource) -> str:
    return f"/v1/jobs/{job['id']}/logs?worker=0"
