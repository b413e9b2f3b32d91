"""Billing: money equals the seconds that supervisors have measured, and the ledger balances."""

from collections.abc import Iterable

from tests.simulation.contracts import Process
from tests.simulation.life import Life, machines_given_up
from tests.simulation.lifecycles.part import Part, calls_fail
from workflows.contracts.jobs import parse_run_id

SHUTDOWN_S = 120.0
"""What a lost machine may cost after its commands were cut off, until it has ended."""
TOLERANCE_S = 1.0
"""A started second counts, or does not."""


def _always(life: Life) -> Iterable[str]:
    if (sum_of_all := life.rows.imbalance()) != 0:
        yield f"the ledger does not balance: {sum_of_all} microcredits"


def _at_rest(life: Life) -> Iterable[str]:
    charged: dict[str, int] = {}
    for usage in life.rows.usage():
        charged[usage.run_id] = charged.get(usage.run_id, 0) + usage.seconds
    rented_s = _rented_seconds(life)
    given_up = machines_given_up(life)
    for process in life.world.processes():
        charged_s = charged.pop(process.run_id, 0)
        is_given_up = process.machine in given_up
        yield from _charged_as_measured(life, process, charged_s, rented_s, is_given_up=is_given_up)
    jobs = life.views()
    for one in life.engine.running():
        job = jobs.get(one.workflow_id.split("/")[1]) if one.workflow == "JobBilling" else None
        if job is not None and not job.is_open:
            yield f"{job.job_id} is {job.status}, and its billing runs on"
    for run_id, seconds in charged.items():
        yield f"{run_id} was charged for {seconds} s, and has never run"


def _rented_seconds(life: Life) -> dict[str, float]:
    """How long each rented machine that has ended was there, by its minion id."""
    leases = {lease.lease_id: lease for lease in life.rows.leases()}
    found: dict[str, float] = {}
    for node in life.rows.nodes():
        lease = leases.get(node.lease_id or "")
        if lease is not None and lease.began_at and lease.ended_at and node.minion_id:
            found[node.minion_id] = (lease.ended_at - lease.began_at).total_seconds()
    return found


def _charged_as_measured(
    life: Life,
    process: Process,
    charged_s: int,
    rented_s: dict[str, float],
    *,
    is_given_up: bool,
) -> Iterable[str]:
    """What was measured is charged once; of a machine that was cut off at most that.

    A rented machine that ends before its exit was heard is charged until it ended at most.
    """
    unsettled_s = life.rows.unsettled_of(parse_run_id(process.run_id)[0])
    lost_s = rented_s.get(process.machine, 0.0)  # The exit may have been lost with its machine.
    most_s = max(process.measured_s + (SHUTDOWN_S if process.was_cut else TOLERANCE_S), lost_s)
    if charged_s > most_s:
        yield f"{process.run_id} ran {process.measured_s:.0f} s, and was charged for {charged_s} s"
    is_unknown = is_given_up or process.was_cut or process.state == "running" or unsettled_s > 0
    if not is_unknown and charged_s < process.measured_s - TOLERANCE_S:
        yield f"{process.run_id} ran {process.measured_s:.0f} s, and was charged {charged_s} s only"


BILLING = Part(
    name="billing",
    workflows=("JobBilling",),
    drawers=((6, calls_fail("JobBilling")),),
    always=_always,
    at_rest=_at_rest,
)
