"""Billing: money equals the seconds that supervisors have measured, the ledger balances, and who
has no credits runs into no debt."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from activities.settings import settings
from tests.simulation.contracts import AccountView, Process
from tests.simulation.life import Life, machines_given_up
from tests.simulation.lifecycles.part import Part, calls_fail, calls_keep_failing
from workflows.billing.job_billing import ENDING_WAIT
from workflows.contracts.jobs import parse_run_id
from workflows.rules.catalogue.providers import preemption_notices_s

SHUTDOWN_S = 120.0
"""What a lost machine may cost after its commands were cut off, until it has ended."""
PREEMPTION_NOTICE = timedelta(seconds=preemption_notices_s()[1])
"""How long before its end a machine is preempted, which is when its jobs stop being charged."""
ENDS_S = 2 * ENDING_WAIT.total_seconds()
"""What it may take until a job has ended that was asked to, as its credits are used up."""
OUT_OF_REACH = "not reachable for"
"""In the reason of a job that has failed because its node could not be asked for an hour."""
HOLDS_UP = (": engine ", "machine_", "site_away", "process_hangs", "late", "slow")
"""In acts after which a node may not be metered for a billing period."""
SEEN_S = 60.0
"""What may pass until the platform sees that a command has begun."""
TOLERANCE_S = 1.0
"""A started second counts, or does not."""


def _always(life: Life) -> Iterable[str]:
    if (sum_of_all := life.rows.imbalance()) != 0:
        yield f"the ledger does not balance: {sum_of_all} microcredits"
    for account in life.rows.accounts():
        burn = account.burn_microcredits_per_hour
        life.most_burn[account.account_id] = max(life.most_burn[account.account_id], burn)
        if account.microcredits <= 0:
            yield from _stops_without_credits(life, account)


def _stops_without_credits(life: Life, account: AccountView) -> Iterable[str]:
    """The debt is what was running can have cost until it was metered and ended, and no more."""
    own = {job.job_id for job in life.rows.jobs() if job.account_id == account.account_id}
    # Guests end by the clock, whether or not their nodes can be metered.
    is_held_up = _is_held_up(life) and not all(life.jobs[each].in_container for each in own)
    most_s = ENDS_S + (settings().billing_period_s if is_held_up else 0)
    if not _costs_longer(life, account, most_s):
        return
    resisted_s = sum(  # What nobody can end costs on.
        process.measured_s
        for process in life.world.processes()
        if process.has_resisted and parse_run_id(process.run_id)[0] in own
    )
    if _costs_longer(life, account, most_s + resisted_s):
        burn = life.most_burn[account.account_id]
        debt = f"{-account.microcredits} microcredits, {burn} an hour at most"
        yield f"{account.account_id} has run into debt: {debt}"


def _costs_longer(life: Life, account: AccountView, seconds: float) -> bool:
    """Whether the debt is more than all that the account had at once costs in so many seconds."""
    return -account.microcredits * 3600 > life.most_burn[account.account_id] * seconds


def _is_held_up(life: Life) -> bool:
    """Whether anything has gone wrong that keeps nodes from being metered."""
    return any(words in act for act in life.struck for words in HOLDS_UP)


def _at_rest(life: Life) -> Iterable[str]:
    charged: dict[str, int] = {}
    billed_until: dict[str, datetime] = {}
    for usage in life.rows.usage():
        charged[usage.run_id] = charged.get(usage.run_id, 0) + usage.seconds
        if usage.billed_until is not None:
            billed_until[usage.run_id] = usage.billed_until
    rented = _ended_rents(life)
    given_up, jobs = machines_given_up(life), life.views()
    for process in life.world.processes():
        charged_s = charged.pop(process.run_id, 0)
        rent, job = rented.get(process.machine), jobs.get(parse_run_id(process.run_id)[0])
        # Whose region's site was away until its machine was terminated, nobody has measured.
        is_unseen = (
            rent is not None and job is not None and OUT_OF_REACH in (job.status_reason or "")
        )
        is_given_up = is_unseen or process.machine in given_up
        until = billed_until.get(process.run_id)
        if until is not None and process.began_at is not None:
            yield from _charged_until(process, charged_s, until - process.began_at)
            continue
        yield from _charged_as_measured(life, process, charged_s, rent, is_given_up=is_given_up)
    for one in life.engine.running():
        job = jobs.get(one.workflow_id.split("/")[1]) if one.workflow == "JobBilling" else None
        if job is not None and not job.is_open:
            yield f"{job.job_id} is {job.status}, and its billing runs on"
    for run_id, seconds in charged.items():
        yield f"{run_id} was charged for {seconds} s, and has never run"


def _charged_until(process: Process, charged_s: int, billed: timedelta) -> Iterable[str]:
    """A guest whose payer has no credits is charged what it ran until shortly after its end was
    ordered, by the clock of its node or that of the platform."""
    least_s = min(process.measured_s, billed.total_seconds() - SEEN_S)
    most_s = min(process.measured_s, billed.total_seconds()) + TOLERANCE_S
    if not least_s <= charged_s + TOLERANCE_S or charged_s > most_s:
        ran = f"ran {process.measured_s:.0f} s, {billed.total_seconds():.0f} s until it was to end"
        yield f"{process.run_id} {ran}, and was charged for {charged_s} s"


class Rent(NamedTuple):
    """From when to when a rented machine that has ended was there, as its lease knows."""

    began_at: datetime
    ended_at: datetime

    @property
    def seconds(self) -> float:
        return (self.ended_at - self.began_at).total_seconds()


def _ended_rents(life: Life) -> dict[str, Rent]:
    """By the minion id of the machine."""
    leases = {lease.lease_id: lease for lease in life.rows.leases()}
    found: dict[str, Rent] = {}
    for node in life.rows.nodes():
        lease = leases.get(node.lease_id or "")
        if lease is not None and lease.began_at and lease.ended_at and node.minion_id:
            found[node.minion_id] = Rent(lease.began_at, lease.ended_at)
    return found


def _charged_as_measured(
    life: Life,
    process: Process,
    charged_s: int,
    rent: Rent | None,
    *,
    is_given_up: bool,
) -> Iterable[str]:
    """What was measured is charged once; of a machine that was cut off at most that.

    A rented machine that ends before its exit was heard is charged until it ended at most, and at
    least until its provider said that it preempts it.
    """
    unsettled_s = life.rows.unsettled_of(parse_run_id(process.run_id)[0])
    lost_s = rent.seconds if rent else 0.0  # The exit may have been lost with its machine.
    if process.machine in life.disbelieved:
        lost_s = float("inf")  # Its measurements are not believed: the wall time is charged.
    most_s = max(process.measured_s + (SHUTDOWN_S if process.was_cut else TOLERANCE_S), lost_s)
    if charged_s > most_s:
        yield f"{process.run_id} ran {process.measured_s:.0f} s, and was charged for {charged_s} s"
    is_unknown = is_given_up or process.was_cut or process.state == "running" or unsettled_s > 0
    least_s = process.measured_s
    if rent is not None and process.began_at is not None:
        told_at = rent.ended_at - PREEMPTION_NOTICE
        least_s = min(least_s, (told_at - process.began_at).total_seconds())
    if not is_unknown and charged_s < least_s - TOLERANCE_S:
        yield f"{process.run_id} ran {process.measured_s:.0f} s, and was charged {charged_s} s only"


BILLING = Part(
    name="billing",
    workflows=("JobBilling",),
    drawers=((6, calls_fail("JobBilling")), (2, calls_keep_failing("JobBilling"))),
    always=_always,
    at_rest=_at_rest,
)
