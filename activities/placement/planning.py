"""Planning rounds, and notifying placed jobs; the rules are in `workflows/rules/placement/`.

A planning round reads rows, plans without a lock, and then reserves in one transaction, which fails
as a whole when the rows have changed meanwhile. Two rounds at once are safe: one of them is
repeated, and its last try excludes all other rounds.
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
from activities.placement.allocation_states import is_live
from activities.placement.allocations import (
    ContendedError,
    lock_jobs,
    placed_of,
    release_allocations,
    reserve,
    still_waiting,
)
from activities.placement.assignments import placements_of
from activities.placement.burst_nodes import make_nodes
from activities.placement.cloud_market import market
from activities.placement.inventory import SHOWN, Held, held, node_offers, preferring
from activities.placement.no_planner import accept_unplanned, refuse_unplanned
from activities.placement.preemption import (
    due_guests,
    give_notice,
    preempt,
    running_guests,
    withdraw_notice,
)
from activities.placement.queue import (
    MissingKeysError,
    Queue,
    add_missing_keys,
    waiting_queue,
)
from activities.placement.refusals import (
    Refusals,
    changed_refusals,
    stored_refusals,
    write_job_refusals,
    write_refusals,
)
from activities.placement.volume_holds import volume_holders
from activities.placement.wake import wake_placement
from activities.temporal.client import tell
from activities.temporal.heartbeats import beating_aside
from workflows.contracts.jobs import EndRequest, Placement
from workflows.contracts.lifecycles import JOB, workflow_id_of
from workflows.contracts.placement import (
    JobRefusals,
    NodeOffer,
    Plan,
    PlanningRound,
    RunningGuest,
)
from workflows.contracts.statuses import AllocationState
from workflows.effects.jobs import FindPlacement, PlacementFound
from workflows.effects.placement import (
    NotifyPlacedJobs,
    PlacedJobsNotified,
    PlanPlacements,
)
from workflows.rules.placement.cloud_market import Market
from workflows.rules.placement.planner import PlanningContext, plan
from workflows.rules.placement.volumes import VolumeHolder

TRIES = 5
SIGNALS_AT_ONCE = 32
_AT_ONCE = 1000
_LOCK = "placement"


@dataclass(frozen=True, slots=True)
class _RoundInputs:
    """All that a planning round has read."""

    now: datetime
    offers: dict[str, NodeOffer]
    queue: Queue
    refusals: Refusals
    held: Held
    market: Market
    volumes: dict[str, tuple[VolumeHolder, ...]]
    guests: tuple[RunningGuest, ...]
    """The guests that may be pre-empted."""
    due: list[str]
    """The guests whose notice of pre-emption is over."""


@activity.defn
def plan_placements(command: PlanPlacements) -> PlanningRound:
    """Place waiting jobs; each job gets resources for all its workers, or for none.

    Raises: ApplicationError, to be retried, when the rows changed during every try.
    """
    with beating_aside():
        for number in range(1, TRIES + 1):
            try:
                return _one_round(command.limit, alone=number == TRIES)
            except MissingKeysError as cause:
                add_missing_keys(cause.heads)
                conflict: Exception = cause
            except (ContendedError, IntegrityError, OperationalError) as cause:
                conflict = cause
    raise ApplicationError(f"placement: rows changed during {TRIES} planning rounds: {conflict}")


def _one_round(limit: int, *, alone: bool) -> PlanningRound:
    """One planning round.

    alone: exclude all other rounds from the first read on; on SQLite, this excludes all writers.
    """
    if alone:
        with database().write(serialised=_LOCK) as session:
            inputs = _read_inputs(session)
            made, refusals = _plan(inputs, limit)
            placed, requests = _write(session, made, refusals, inputs)
    else:
        with database().read() as session:  # Which the plan reads on from the queue.
            inputs = _read_inputs(session)
            made, refusals = _plan(inputs, limit)
        placed, requests = 0, []
        if made.assignments or made.bursts or made.failed or refusals:
            with database().write(serialised=_LOCK) as session:
                placed, requests = _write(session, made, refusals, inputs)
    if made.preempted or made.withdrawn or inputs.due:
        with database().write(serialised=_LOCK) as session:  # Its own, for the order of locks.
            give_notice(session, made.preempted, inputs.now)
            withdraw_notice(session, made.withdrawn, inputs.now)
            requests += preempt(session, inputs.due, inputs.now)
    relay_soon(requests)
    waiting = inputs.queue.job_count - placed
    taken = len(made.assignments) + len(made.bursts)
    return PlanningRound(
        placed=placed, waiting=waiting, more=placed > 0 and taken == limit and waiting > 0
    )


def _read_inputs(session: Session) -> _RoundInputs:
    now = datetime.now(UTC)
    holds = held(session)
    sold = market(session, now)
    offers = {
        offer.node_id: offer
        for offer in preferring(node_offers(session, now, holds), sold.preferred)
    }
    gpu_types = {offer.gpu_type for offer in offers.values() if offer.gpu_type} | sold.gpu_types
    named = {each for offer in offers.values() for each in offer.guest_policy.projects}
    queue = waiting_queue(session, gpu_types, named)
    asked = {volume_id for each in queue.demands for volume_id, _ in each.demand.volumes}
    volumes = volume_holders(session, asked)
    refusals = stored_refusals(session)
    guests, due = running_guests(session), due_guests(session, now)
    return _RoundInputs(now, offers, queue, refusals, holds, sold, volumes, guests, due)


def _plan(inputs: _RoundInputs, limit: int) -> tuple[Plan, Refusals]:
    """The plan of the round, and the refusals of demands that it changes."""
    context = PlanningContext(
        now=inputs.now,
        held=inputs.held.weights,
        market=inputs.market,
        reservations=inputs.held.reservations,
        volumes=inputs.volumes,
        guests=inputs.guests,
        limit=limit,
    )
    made = plan(inputs.queue.demands, inputs.offers.values(), context)
    waiting = {(each.project_id, each.demand_key) for each in inputs.queue.demands}
    return made, changed_refusals(made.refused, inputs.refusals, waiting)


def _write(
    session: Session, made: Plan, refusals: Refusals, inputs: _RoundInputs
) -> tuple[int, list[str]]:
    """Write the part of the plan whose jobs still wait.

    Returns how many jobs it has placed, and the ids of the outbox rows to relay after the commit.
    """
    jobs = inputs.queue.read
    chosen = [placed_of(assignment, jobs, inputs.offers) for assignment in made.assignments]
    bursts = [(burst, jobs[burst.job_id]) for burst in made.bursts]
    concerned = [placed.job for placed in chosen] + [job for _, job in bursts]
    waiting = still_waiting(session, concerned + [jobs[each.job_id] for each in made.failed])
    chosen = [placed for placed in chosen if placed.job.job_id in waiting]
    bursts = [(burst, job) for burst, job in bursts if job.job_id in waiting]
    reserve(session, chosen, inputs.now)
    write_refusals(session, refusals)
    failed = [each for each in made.failed if each.job_id in waiting]
    write_job_refusals(session, failed)
    requests = _fail(session, failed, inputs.now)
    requests += make_nodes(session, bursts, inputs.market, inputs.now)
    return len(chosen) + len(bursts), requests


def _fail(session: Session, failed: list[JobRefusals], now: datetime) -> list[str]:
    """Cancel these jobs, once each, with the reasons of their refusals."""
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
    """The placement of this attempt of a job; none while the job waits."""
    with database().read() as session:
        found = placements_of(session, [command.job_id])
        job = session.get(Job, command.job_id)
    placement = next((p for p in found if p.attempt == command.attempt), None)
    return PlacementFound(placement=placement, sequence=job.sequence if job else 0)


@activity.defn
async def notify_placed_jobs(command: NotifyPlacedJobs) -> PlacedJobsNotified:
    """Signal `placed` to all placed jobs that are not notified; a repeated signal does no harm.

    The allocations of a job that has ended are released. A job that could not be notified, or whose
    workflow is lost, is named in the answer and tried in the next planning round; the others do not
    wait.
    """
    if command.has_no_planner:
        await asyncio.to_thread(refuse_unplanned, command.refused_before)
    elif command.refused_before is not None:
        await asyncio.to_thread(accept_unplanned)
    placements = await asyncio.to_thread(_not_notified, command.limit)
    slots = asyncio.Semaphore(SIGNALS_AT_ONCE)
    sent = await asyncio.gather(*(_notify(placement, slots) for placement in placements))
    answers = list(zip(placements, sent, strict=True))
    notified = [placement for placement, answer in answers if answer is True]
    closed = [placement for placement, answer in answers if answer is False]
    failed = [placement.job_id for placement, answer in answers if answer is None]
    ended, requests = await asyncio.to_thread(_set_notified, notified, closed)
    relay_soon(requests)
    if ended:
        wake_placement()
    failed += [placement.job_id for placement in closed if placement.job_id not in ended]
    answered = len(notified) + len(ended)
    more = len(placements) >= command.limit and answered > 0
    return PlacedJobsNotified(announced=len(notified), more=more, untold=tuple(failed))


async def _notify(placement: Placement, slots: asyncio.Semaphore) -> bool | None:
    """Whether the job's workflow has taken the signal; None when this is unknown."""
    async with slots:
        try:
            return await tell(workflow_id_of(placement.job_id), "placed", placement)
        except (RPCError, ApplicationError) as cause:
            activity.logger.warning("job %s was not notified: %s", placement.job_id, cause)
            return None


def _not_notified(limit: int) -> list[Placement]:
    """Placements to notify, oldest first; not those with a machine that is being created."""
    oldest = func.min(col(Allocation.created_at))
    is_there = and_(col(Node.status).in_(SHOWN), col(Node.host).is_not(None))
    with database().read() as session:
        job_ids = session.exec(
            select(Allocation.job_id)
            .join(Node, col(Node.id) == Allocation.node_id)
            .where(col(Allocation.notified_at).is_(None), is_live())
            .group_by(col(Allocation.job_id))
            .having(func.min(case((is_there, 1), else_=0)) == 1)
            .order_by(oldest, col(Allocation.job_id))
            .limit(limit)
        ).all()
        return placements_of(session, list(job_ids))


def _set_notified(notified: list[Placement], closed: list[Placement]) -> tuple[set[str], list[str]]:
    """Record the notifications of these allocations, whatever their jobs hold by now.

    closed: those whose jobs have no workflow. They are released if the job has ended, and kept if
    its workflow is lost, because that is started again.
    Returns the ids of the closed jobs that have ended, and of the outbox rows to relay.
    """
    if not notified and not closed:
        return set(), []
    now = datetime.now(UTC)
    ids = [one for placement in notified for one in placement.allocation_ids]
    requests: list[str] = []
    with database().write() as session:
        lock_jobs(session, (placement.job_id for placement in (*notified, *closed)))
        placed: set[str] = set()
        for start in range(0, len(ids), _AT_ONCE):
            live = (col(Allocation.id).in_(ids[start : start + _AT_ONCE]), is_live())
            session.execute(
                update(Allocation)
                .where(*live, col(Allocation.state) == AllocationState.HELD)
                .values(state=AllocationState.NOTIFIED, notified_at=now)
            )
            placed |= set(session.exec(select(Allocation.job_id).where(*live)))
        session.execute(  # The machines of these jobs are not being created any more.
            update(Job).where(col(Job.id).in_(placed)).values(placement_refusals=[])
        )
        ended = _ended(session, {placement.job_id for placement in closed})
        for job_id in sorted(ended):
            requests += release_allocations(session, job_id, now)
    return ended, requests


def _ended(session: Session, job_ids: set[str]) -> set[str]:
    final = col(Job.status).in_(JOB.final_statuses)
    return set(session.exec(select(Job.id).where(col(Job.id).in_(job_ids), final)))
