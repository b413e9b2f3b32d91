"""What is wrong with a round that is over; nothing when all is as it should be."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime

from tests.chaos.cloud.markets.market import Charge
from tests.chaos.cloud.round import Seen
from tests.chaos.cloud.runs import SAID
from tests.chaos.cloud.tally import Wrong
from tests.e2e.platform import Resource
from workflows.rules.billing.metering import cumulative_microcredits

Verdict = tuple[Wrong, str]
AGREES_S = 1.0


def machines_made(seen: Seen) -> int:
    return len({charge.instance_id for charge in seen.charges})


def machines_refused(seen: Seen) -> int:
    """Those that were made and that nobody ever got."""
    refused = {lease["name"] for lease in seen.leases if lease["status"] == "refused"}
    return len({charge.instance_id for charge in seen.charges if charge.name in refused})


def verdicts(seen: Seen, job_count: int) -> Iterator[Verdict]:
    for left in seen.left:
        yield "leaked", left
    yield from _machines(seen, job_count)
    for job in seen.jobs:
        yield from _job(job, seen)
    begun = {job["id"]: seen.begun.get(job["id"], 0) for job in seen.jobs}
    if sum(count - 1 for count in begun.values() if count) > seen.lost:
        again = {name: count for name, count in begun.items() if count > 1}
        yield "doubled", f"commands began again, {seen.lost} machines lost: {again}"
    if len(seen.jobs) != job_count:
        yield "doubled", f"{len(seen.jobs)} jobs, {job_count} were submitted"
    for lease in seen.leases:
        yield from _cost(lease, [each for each in seen.charges if each.name == lease["name"]])


def _machines(seen: Seen, job_count: int) -> Iterator[Verdict]:
    by_name: dict[str, set[str]] = defaultdict(set)
    for charge in seen.charges:
        by_name[charge.name].add(charge.instance_id)
    used = machines_made(seen) - machines_refused(seen)
    for more in range(job_count + seen.lost + 1, used + 1):
        twice = {name: sorted(ids) for name, ids in by_name.items() if len(ids) > 1}
        yield "doubled", f"machine {more} for {job_count} jobs, twice of one name: {twice}"
    for name in by_name.keys() - {lease["name"] for lease in seen.leases}:
        yield "doubled", f"machine {name}: was made, and no lease names it"


def _job(job: Resource, seen: Seen) -> Iterator[Verdict]:
    name = job["id"]
    if job["status"] != "finished":
        yield "lost", f"{name}: {job['status']} ({job.get('status_reason')})"
        return
    log = seen.logs.get(name, "")
    if log != SAID and not (seen.begun.get(name, 0) > 1 and log.endswith(SAID)):
        yield "lost", f"{name}: its log is {log!r}"
    if seen.ended.get(name, 0) == 0:
        yield "lost", f"{name}: finished, and its command did not"


def _cost(lease: Resource, charges: list[Charge]) -> Iterator[Verdict]:
    """What a lease says that it has cost against what the cloud has charged for its machines.

    Its seconds are those of its last machine; its cost includes the machines of earlier offers.
    """
    if lease["status"] == "refused" or any(charge.ended_at is None for charge in charges):
        return
    last = charges[-1].instance_id if charges else ""
    charged_s = sum(charge.seconds(0) for charge in charges if charge.instance_id == last)
    leased_s = 0.0
    if lease["began_at"] is not None and lease["ended_at"] is not None:
        leased_s = (_instant(lease["ended_at"]) - _instant(lease["began_at"])).total_seconds()
    if abs(leased_s - charged_s) >= AGREES_S:
        yield "billed", f"{lease['name']}: {leased_s:.3f} s, the cloud charged {charged_s:.3f} s"
    price = lease["microcredits_per_hour"] or 0
    cost = cumulative_microcredits(price, int(leased_s))
    earlier = [charge.seconds(0) for charge in charges if charge.instance_id != last]
    least, most = (
        cost + sum(cumulative_microcredits(price, max(0, int(s + by))) for s in earlier)
        for by in (-AGREES_S, AGREES_S)
    )
    if not least <= lease["cost_microcredits"] <= most:
        yield "billed", f"{lease['name']}: costs {lease['cost_microcredits']}, asked {least}–{most}"


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text)
