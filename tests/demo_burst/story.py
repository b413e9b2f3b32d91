"""The story: one job file, a full machine of one's own, two marketplaces, and the bill."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial

from tests.demo_burst.bill import disagreements, explained, table
from tests.demo_burst.marketplaces import Charge, Marketplace, make_orphan
from tests.demo_burst.stack import Stage
from tests.demo_gcp.own_machine import OWN_NODE, own_machine
from tests.demo_gcp.telling import Terminal
from workers.runner.commands import Resource
from workers.runner.local_node import shortened
from workers.runner.narration import Story
from workers.runner.settings import CHECKOUT

JOB_FILE = CHECKOUT / "examples" / "burst" / "job.yaml"
OCCUPANT, JOB, POD_JOB, INSTANCE_JOB = "occupies-own-machine", "line", "on-a-pod", "on-an-instance"
FOR_EVER = "environment.variables.EPOCHS=100000"
HIGHER_CAP = "2"
"""Credits an hour, under which RunPod's A100 is."""
EPOCHS_BEFORE = 4
"""How many are seen before the host vanishes."""
ORPHAN = "baseload-lea-of-a-lost-database"
WENT_ON = "goes on after epoch"
"""What examples/burst/train.py says where it finds its state."""
TOO_DEAR = "credits an hour, asked at most 1"
_EPOCH = re.compile(r"^epoch ", re.MULTILINE)


class Telling(Terminal):
    """The terminal, with the simulated marketplaces beside it."""

    def __init__(self, stage: Stage, story: Story) -> None:
        super().__init__(stage.settings, story)
        self.stage = stage
        self.seen = Seen()

    def market(self, kind: str) -> Marketplace:
        return self.stage.markets[kind]

    def machines(self) -> list[str]:
        """The names of all machines that are rented at the marketplaces."""
        return [name for each in self.stage.markets.values() for name in each.machines()]

    def charges(self) -> list[Charge]:
        return [charge for each in self.stage.markets.values() for charge in each.charges()]

    def job(self, name: str) -> Resource:
        return self.api.live("jobs", name=name) or {}

    def log(self, job: Resource) -> str:
        return self.api.text(f"/v1/jobs/{job['id']}/logs?worker=0")

    def node_of(self, job: Resource) -> str:
        """The name of the node that it has now; empty: it has none."""
        found = self.api.get(f"/v1/jobs/{job['id']}/placement")["assignments"]
        return next((str(one["node_name"]) for one in found if not one["released_at"]), "")


@dataclass
class Seen:
    """What the bill needs to know of the story: machine names."""

    vanished: set[str] = field(default_factory=set)
    orphans: set[str] = field(default_factory=set)


def play(stage: Stage, story: Story) -> None:
    """All of it. Raises: StackError, at the first thing that is not as it should be."""
    telling = Telling(stage, story)
    with story.step("A machine of your own, with one A100"):
        own_machine(telling, stage.lab, stage.settings.api_url)
    with story.step("Enable RunPod and Vast.ai (simulated)"):
        enable(telling)
    with story.step("One job file, and your own machine is full"):
        fill_own_machine(telling)
    with story.step("The same file again: RunPod is too dear, Vast.ai rents"):
        job = burst(telling)
    with story.step("The rented machine's host vanishes while it works"):
        lose_the_host(telling, job)
    with story.step("It runs to its end on another one"):
        finish(telling, job)
    with story.step("An orphan: a machine with our mark that no lease names"):
        end_an_orphan(telling)
    with story.step("kill --all, at both marketplaces"):
        kill_everything(telling)
    with story.step("All gone"):
        remove_everything(telling)
    with story.step("The bill, beside the meters of the simulated marketplaces"):
        settle(telling)


def enable(telling: Telling) -> None:
    """With an API key each; their offers are read at once."""
    for kind, market in telling.stage.markets.items():
        key = telling.stage.settings.home / f"{kind}-key"
        market.write_key(key)
        telling.baseload("provider", "enable", kind, "--key", shortened(key), "--wait")
        telling.baseload("provider", "checks", kind)
        known = partial(_offers, telling, kind)
        telling.until(f"the offers of {kind} are known", known)
    telling.baseload("offers", "--gpus", "A100:1", "--cpus", "1", "--memory-gib", "1")


def fill_own_machine(telling: Telling) -> None:
    """The cheapest place is one's own."""
    occupant = "--name", OCCUPANT, "--set", FOR_EVER
    telling.baseload("submit", shortened(JOB_FILE), *occupant)
    job = telling.reached("jobs", OCCUPANT, "running")
    telling.expect(f"it runs on {OWN_NODE}", telling.node_of(job) == OWN_NODE)


def burst(telling: Telling) -> Resource:
    """Under the file's price cap one marketplace alone has a machine for it."""
    file = shortened(JOB_FILE)
    telling.refused(TOO_DEAR, "submit", file, "--provider", "runpod", "--dry-run")
    telling.baseload("submit", file, "--provider", "runpod", "--provider", "vastai")
    job = telling.job(JOB)
    telling.until("Vast.ai has rented one out", telling.market("vastai").machines)
    telling.baseload("placement", JOB)
    telling.path_reached(f"/v1/jobs/{job['id']}", "running")
    telling.baseload("leases")
    telling.expect(f"{OWN_NODE} had no room for it", telling.node_of(job) not in ("", OWN_NODE))
    telling.expect("nothing is rented at RunPod", not telling.market("runpod").machines())
    return job


def lose_the_host(telling: Telling, job: Resource) -> None:
    """Nobody has to do anything: the job is placed again, with what it had kept."""
    path, market = f"/v1/jobs/{job['id']}", telling.market("vastai")
    learnt = f"it has learnt for {EPOCHS_BEFORE} epochs"
    telling.until(learnt, lambda: len(_EPOCH.findall(telling.log(job))) >= EPOCHS_BEFORE)
    copied = "what it keeps in $BASELOAD_STATE is copied off that machine"
    telling.until(copied, lambda: "job.state-saved" in _events(telling, job))
    (lost,) = market.machines()
    telling.seen.vanished.add(lost.rpartition(".")[0])
    market.lose_host(lost)
    telling.tell(f"the host of {lost} has vanished from the simulated marketplace")
    telling.until("the platform sees silence", lambda: telling.api.get(path)["status"] != "running")
    telling.tell(
        "every five minutes the platform compares lists and leases by itself; here at once"
    )
    telling.baseload("reconcile")
    telling.until("the job has left it", lambda: telling.api.get(path)["attempt"] == 2)
    telling.path_reached(path, "running")
    telling.baseload("leases", "--ended")
    rented = market.machines()
    telling.expect("one machine is rented, another one", len(rented) == 1 and lost not in rented)


def finish(telling: Telling, job: Resource) -> None:
    """With what it had kept; its machine goes with it."""
    telling.path_reached(f"/v1/jobs/{job['id']}", "finished")
    telling.baseload("logs", JOB)
    telling.baseload("events", JOB)
    telling.expect("it went on from the state that it had kept", WENT_ON in telling.log(job))
    output = telling.stage.settings.home / "output"
    telling.baseload("output", str(job["id"]), "--to", shortened(output))
    found = [path.name for path in output.rglob("line.json")]
    telling.expect("its output is here", found == ["line.json"])
    telling.until("nothing is rented any more", lambda: not telling.machines())


def end_an_orphan(telling: Telling) -> None:
    """As an installation finds it whose database was restored from an older copy."""
    provider = telling.api.live("providers", name="runpod") or {}
    name = make_orphan(telling.market("runpod"), ORPHAN, str(provider["id"]))
    telling.seen.orphans.add(ORPHAN)
    telling.tell(f"the simulated RunPod has rented out {name}, of which the platform knows nothing")
    telling.refused("--end terminates them", "reconcile", "--provider", "runpod")
    telling.expect("it is left as it is", telling.machines() == [name])
    telling.baseload("reconcile", "--provider", "runpod", "--end", "--yes")
    telling.until("it is gone", lambda: not telling.machines())


def kill_everything(telling: Telling) -> None:
    """Two jobs of the same file, each where its option says; then one command ends it all."""
    for name, kind in ((POD_JOB, "runpod"), (INSTANCE_JOB, "vastai")):
        where = "--provider", kind, "--price-cap", HIGHER_CAP
        telling.baseload("submit", shortened(JOB_FILE), "--name", name, "--set", FOR_EVER, *where)
    for name in (POD_JOB, INSTANCE_JOB):
        telling.reached("jobs", name, "running")
    telling.baseload("leases")
    counts = [len(market.machines()) for market in telling.stage.markets.values()]
    telling.expect("each marketplace has rented out one machine", counts == [1, 1])
    for name in (POD_JOB, INSTANCE_JOB):
        telling.baseload("cancel", name)
    telling.baseload("kill", "--all", "--yes")
    telling.expect("no marketplace lists a machine", not telling.machines())


def remove_everything(telling: Telling) -> None:
    """The job on one's own machine, and the providers with their keys."""
    job = telling.job(OCCUPANT)
    telling.baseload("cancel", OCCUPANT)
    telling.path_reached(f"/v1/jobs/{job['id']}", "canceled")
    for kind in telling.stage.markets:
        telling.baseload("provider", "disable", kind, "--wait")


def settle(telling: Telling) -> None:
    """What the leases have cost and what the meters have counted, machine by machine."""
    seen = telling.seen
    telling.baseload("costs", "--by", "provider")
    leases = telling.api.get("/v1/leases?limit=100")["items"]
    charges = telling.charges()
    telling.tell("\nThe machines, by the platform's leases and by the meters (credits):")
    for line in table(leases, charges, seen.orphans):
        telling.tell(line)
    telling.tell("\nThe difference of the two sums:")
    for line in explained(leases, charges, seen.vanished, seen.orphans):
        telling.tell(line)
    found = disagreements(leases, charges, orphans=seen.orphans, vanished=seen.vanished)
    claim = "leases and meters agree, machine by machine, but for what is named above"
    telling.expect(_and(claim, found), not found)
    running = [each.name for each in charges if each.is_running]
    telling.expect(_and("the meters have stopped", running), not running)
    left = telling.machines()
    telling.expect(_and("the marketplaces list no machine", left), not left)
    for market in telling.stage.markets.values():
        odd = market.violations()
        claim = f"the documents of {market.kind} know all that was asked"
        telling.expect(_and(claim, odd), not odd)


def _and(claim: str, exceptions: list[str]) -> str:
    return "\n  ".join((claim, *exceptions))


def _offers(telling: Telling, kind: str) -> bool:
    found = telling.api.get("/v1/offers?gpus=A100:1&cpu_count=1&memory_gib=1")["offers"]
    return any(each["provider_kind"] == kind for each in found)


def _events(telling: Telling, job: Resource) -> set[str]:
    """What kinds of events there were of it."""
    found = telling.api.get(f"/v1/jobs/{job['id']}/events?limit=100")["items"]
    return {str(event["type"]) for event in found}
