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
AGREES_MICROCREDITS = 1
"""Prices are of whole microcredits."""


def machines_made(seen: Seen) -> int:
    return len({charge.instance_id for charge in seen.charges})


def machines_refused(seen: Seen) -> int:
    """Those that were made and that nobody ever got."""
    refused = {lease["name"] for lease in seen.leases if lease["status"] == "refused"}
    return len({charge.instance_id for charge in seen.charges if charge.name in refused})


def verdicts(seen: Seen, job_count: int) -> Iterator[Verdict]:
    for left in seen.left:
        yield "leaked", left
    for name in seen.touched:
        yield "lost", f"machine {name}: is of another installation, and is gone"
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
        charges = [each for each in seen.charges if each.name == lease["name"]]
        yield from _cost(lease, charges, is_end_told=seen.is_end_told)


def seconds_beyond(seen: Seen) -> float:
    """For how long leases lasted after their machines were gone, where the provider does not say
    when one has ended."""
    lasted = (_seconds(lease, seen.charges) for lease in seen.leases)
    return sum(max(0.0, leased - charged) for leased, charged in lasted)


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


def _cost(lease: Resource, charges: list[Charge], *, is_end_told: bool) -> Iterator[Verdict]:
    """What a lease says that it has cost against what the provider has charged for its machines.

    Its seconds are those of its last machine; its cost includes the machines of earlier offers.
    A provider that says when a machine has ended is believed, to the second. Without that the end
    is when the platform has seen that the machine is gone, by its own clock: never before the end
    on the meter, and later only for as long as that took.
    """
    if lease["status"] == "refused" or any(charge.ended_at is None for charge in charges):
        return
    leased_s, charged_s = _seconds(lease, charges)
    beyond_s = leased_s - charged_s
    if beyond_s <= -AGREES_S or (beyond_s >= AGREES_S and is_end_told):
        yield "billed", f"{lease['name']}: {leased_s:.3f} s, the cloud charged {charged_s:.3f} s"
    yield from _price(lease, charges)
    price = lease["microcredits_per_hour"] or 0
    cost = cumulative_microcredits(price, int(leased_s))
    last = charges[-1:]
    earlier = [each for each in charges if each.instance_id != last[0].instance_id]
    lasted = [each.seconds(0) for each in earlier]
    at_most = lasted if is_end_told else [last[0].started_at - each.started_at for each in earlier]
    least = cost + sum(cumulative_microcredits(price, max(0, int(s - AGREES_S))) for s in lasted)
    most = cost + sum(cumulative_microcredits(price, int(s + AGREES_S)) for s in at_most)
    if not least <= lease["cost_microcredits"] <= most:
        yield "billed", f"{lease['name']}: costs {lease['cost_microcredits']}, asked {least}–{most}"


def _price(lease: Resource, charges: list[Charge]) -> Iterator[Verdict]:
    """The price of its last machine, and from when on it counts."""
    if not charges:
        return
    last, price = charges[-1], lease["microcredits_per_hour"] or 0
    if last.price is not None and abs(price - last.price) > AGREES_MICROCREDITS:
        yield "billed", f"{lease['name']}: {price} an hour, the cloud charged {last.price}"
    began_at = lease["began_at"] and _instant(lease["began_at"]).timestamp()
    first = min(each.started_at for each in charges if each.instance_id == last.instance_id)
    if began_at is None or abs(began_at - first) >= AGREES_S:
        yield "billed", f"{lease['name']}: from {lease['began_at']}, the cloud from {first:.3f}"


def _seconds(lease: Resource, charges: list[Charge]) -> tuple[float, float]:
    """The seconds of a lease, and those that its last machine was charged for."""
    own = [charge for charge in charges if charge.name == lease["name"]]
    charged_s = sum(each.seconds(0) for each in own if each.instance_id == own[-1].instance_id)
    if lease["began_at"] is None or lease["ended_at"] is None:
        return 0.0, charged_s
    lasted = _instant(lease["ended_at"]) - _instant(lease["began_at"])
    return lasted.total_seconds(), charged_s


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text)
