"""Placing jobs and telling them; the rules are in `workflows/rules/placement/planner.py`.

A round reads, plans without any lock, then reserves in one transaction that fails as a whole where
the rows have moved on meanwhile. Two rounds at once are safe and one of them is repeated, the last
time with nobody beside it.
"""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import and_, case, func, update
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlmodel import Session, col, select
from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from activities.db.session import database
from activities.db.tables import Allocation, Job, Node, OutboxRow
from activities.outbox.dispatcher import relay_soon
from activities.outbox.requests import enqueue
from activities.placement.allocations import (
    ContendedError,
    changed_refusals,
    placed_of,
    release_allocations,
    reserve,
    still_waiting,
    write_refusals,
)
from activities.placement.assignments import placements_of
from activities.placement.burst_nodes import make_nodes
from activities.placement.cloud_market import market
from activities.placement.inventory import SHOWN, held, node_offers
from activities.placement.queue import WaitingJob, waiting_jobs
from activities.placement.wake import wake_placement
from activities.temporal.client import tell
from activities.temporal.heartbeats import beating_aside
from workflows.contracts.jobs import EndRequest, MachineGone, Placement
from workflows.contracts.lifecycles import workflow_id_of
from workflows.contracts.placement import JobRefusals, NodeOffer, Plan, PlanningRound
from workflows.effects.jobs import FindPlacement, PlacementFound
from workflows.effects.placement import (
    NotifyPlacedJobs,
    PlacedJobsNotified,
    PlanPlacements,
)
from workflows.rules.placement.cloud_market import Market
from workflows.rules.placement.planner import PlanningContext, plan

TRIES = 5
LOOK_AHEAD = 4
"""Jobs that are looked at for each one that may be placed, so that the head of a queue that does
not fit does not hide what does."""
SIGNALS_AT_ONCE = 32
_TURN = "placement"


@dataclass(frozen=True, slots=True)
class _Seen:
    """What a round plans with."""

    now: datetime
    offers: dict[str, NodeOffer]
    jobs: dict[str, WaitingJob]
    weights: dict[str, int]
    market: Market


@activity.defn
def plan_placements(command: PlanPlacements) -> PlanningRound:
    """Place waiting jobs: a job has all of its workers reserved, or none of them.

    Raises: ApplicationError, to be tried again, when every try met reservations of others.
    """
    with beating_aside():
        for number in range(1, TRIES + 1):
            try:
                return _one_round(command.limit, alone=number == TRIES)
            except (ContendedError, IntegrityError, OperationalError) as cause:
                met = cause
    raise ApplicationError(f"placement: {TRIES} rounds in a row met others' changes: {met}")


def _one_round(limit: int, *, alone: bool) -> PlanningRound:
    """alone: keep every other planner out from the first look on, and with SQLite every writer."""
    if alone:
        with database().write(serialised=_TURN) as session:
            seen = _look(session, limit)
            made = _plan(seen, limit)
            placed, requests = _write(session, made, seen)
    else:
        with database().read() as session:
            seen = _look(session, limit)
        made = _plan(seen, limit)
        if made == Plan():
            return PlanningRound()
        with database().write(serialised=_TURN) as session:
            placed, requests = _write(session, made, seen)
    relay_soon(requests)
    taken = len(made.assignments) + len(made.bursts)
    looked_at_all = len(seen.jobs) < limit * LOOK_AHEAD and taken < limit
    return PlanningRound(
        placed=placed, waiting=len(seen.jobs) - placed, more=placed > 0 and not looked_at_all
    )


def _look(session: Session, limit: int) -> _Seen:
    now = datetime.now(UTC)
    holds = held(session)
    sold = market(session, now)
    offers = {
        offer.node_id: offer.model_copy(update={"preferred": True})
        if offer.provider_id in sold.preferred
        else offer
        for offer in node_offers(session, now, holds)
    }
    gpu_types = {offer.gpu_type for offer in offers.values() if offer.gpu_type}
    jobs = waiting_jobs(session, gpu_types, limit * LOOK_AHEAD)
    return _Seen(now, offers, {job.pending.job_id: job for job in jobs}, holds.weights, sold)


def _plan(seen: _Seen, limit: int) -> Plan:
    situation = PlanningContext(now=seen.now, held=seen.weights, market=seen.market, limit=limit)
    return plan([job.pending for job in seen.jobs.values()], seen.offers.values(), situation)


def _write(session: Session, made: Plan, seen: _Seen) -> tuple[int, list[str]]:
    """The plan, as far as its jobs still wait: how many jobs it has placed, and the requests that
    are to be relayed after the commit."""
    jobs = seen.jobs
    chosen = [placed_of(assignment, jobs, seen.offers) for assignment in made.assignments]
    bursts = [(burst, jobs[burst.job_id].pending) for burst in made.bursts]
    told = (*made.refused, *made.failed)
    refusals = changed_refusals((jobs[each.job_id], each.refusals) for each in told)
    concerned = [placed.job for placed in chosen] + [job for _, job in bursts]
    concerned += [jobs[job_id].pending for job_id in {*refusals, *(f.job_id for f in made.failed)}]
    waiting = still_waiting(session, concerned)
    chosen = [placed for placed in chosen if placed.job.job_id in waiting]
    bursts = [(burst, job) for burst, job in bursts if job.job_id in waiting]
    reserve(session, chosen, seen.now)
    write_refusals(session, {job: why for job, why in refusals.items() if job in waiting})
    failed = [each for each in made.failed if each.job_id in waiting]
    requests = _fail(session, failed, seen.now)
    requests += make_nodes(session, bursts, seen.market, seen.now)
    return len(chosen) + len(bursts), requests


def _fail(session: Session, failed: list[JobRefusals], now: datetime) -> list[str]:
    """Ask these jobs to end for the reasons for which they are not placed; once."""
    reasons = {each.job_id: each.refusals[0].detail for each in failed}
    if not reasons:
        return []
    asked = select(OutboxRow.resource_id).where(
        col(OutboxRow.resource_id).in_(reasons), OutboxRow.verb == "cancel"
    )
    known = set(session.exec(asked))
    return [
        enqueue(session, job_id, "cancel", EndRequest(reason=reason, code="quota-exhausted"), now)
        for job_id, reason in reasons.items()
        if job_id not in known
    ]


@activity.defn
def find_placement(command: FindPlacement) -> PlacementFound:
    """What is reserved for this attempt of a job; nothing, while it waits."""
    with database().read() as session:
        found = placements_of(session, [command.job_id])
    placement = next((p for p in found if p.attempt == command.attempt), None)
    return PlacementFound(placement=placement)


@activity.defn
async def notify_placed_jobs(command: NotifyPlacedJobs) -> PlacedJobsNotified:
    """Tell every job that has a place and does not know. Twice told is once heard.

    A job whose workflow has ended gives its place back. One that could not be told is named, and
    left for the next round: the others do not wait for it, and it looks by itself.
    """
    placements = await asyncio.to_thread(_unannounced, command.limit)
    turns = asyncio.Semaphore(SIGNALS_AT_ONCE)
    heard = await asyncio.gather(*(_announce(placement, turns) for placement in placements))
    answers = list(zip(placements, heard, strict=True))
    told = [placement for placement, answer in answers if answer is True]
    closed = [placement.job_id for placement, answer in answers if answer is False]
    untold = tuple(placement.job_id for placement, answer in answers if answer is None)
    relay_soon(await asyncio.to_thread(_mark_announced, told, closed))
    if closed:
        wake_placement()
    heard_of = len(told) + len(closed)
    more = len(placements) >= command.limit and heard_of > 0
    return PlacedJobsNotified(announced=len(told), more=more, untold=untold)


async def _announce(placement: Placement, turns: asyncio.Semaphore) -> bool | None:
    """Whether the job was there to hear it; None when nobody can say."""
    async with turns:
        try:
            return await tell(workflow_id_of(placement.job_id), "placed", placement)
        except (RPCError, ApplicationError) as cause:
            activity.logger.warning("job %s was not told: %s", placement.job_id, cause)
            return None


def _unannounced(limit: int) -> list[Placement]:
    """Those who wait longest first; not those of whose machines one is still being made."""
    oldest = func.min(col(Allocation.created_at))
    is_there = and_(col(Node.status).in_(SHOWN), col(Node.host).is_not(None))
    with database().read() as session:
        job_ids = session.exec(
            select(Allocation.job_id)
            .join(Node, col(Node.id) == Allocation.node_id)
            .where(col(Allocation.notified_at).is_(None), col(Allocation.released_at).is_(None))
            .group_by(col(Allocation.job_id))
            .having(func.min(case((is_there, 1), else_=0)) == 1)
            .order_by(oldest, col(Allocation.job_id))
            .limit(limit)
        ).all()
        return placements_of(session, list(job_ids))


def _mark_announced(told: list[Placement], closed: list[str]) -> list[str]:
    """A job that has ended gives back what was reserved for it, and is not placed again.

    Answers the requests that are to be relayed.
    """
    if not told and not closed:
        return []
    now = datetime.now(UTC)
    job_ids = [placement.job_id for placement in told]
    of_them = (
        col(Allocation.job_id).in_([*job_ids, *closed]),
        col(Allocation.released_at).is_(None),
    )
    with database().write() as session:
        session.execute(
            update(Allocation)
            .where(*of_them, col(Allocation.notified_at).is_(None))
            .values(notified_at=now)
        )
        placed = set(session.exec(select(Allocation.job_id).where(*of_them)))
        session.execute(  # a machine that was made for it is not being made any more
            update(Job).where(col(Job.id).in_(placed)).values(placement_refusals=[])
        )
        requests = _take_back(session, [one for one in told if one.job_id not in placed], now)
        for job_id in sorted(closed):
            requests += release_allocations(session, job_id, now)
    return requests


def _take_back(session: Session, told: list[Placement], now: datetime) -> list[str]:
    """Tell jobs that were told of machines which were lost in that moment, with all there."""
    reason = "was lost as the job was told of it"
    return [
        enqueue(
            session,
            placement.job_id,
            "machine_gone",
            MachineGone(node_id=made.node.node_id, reason=reason),
            now,
        )
        for placement in told
        if (made := next((one for one in placement.assignments if one.ephemeral), None))
    ]
