"""Billing: money equals the seconds that supervisors have measured, and the ledger balances."""

from collections.abc import Iterable

from tests.simulation.contracts import Process
from tests.simulation.life import Life
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
    for process in life.world.processes():
        yield from _charged_as_measured(life, process, charged.pop(process.run_id, 0))
    jobs = life.views()
    for one in life.engine.running():
        job = jobs.get(one.workflow_id.split("/")[1]) if one.workflow == "JobBilling" else None
        if job is not None and not job.is_open:
            yield f"{job.job_id} is {job.status}, and its billing runs on"
    for run_id, seconds in charged.items():
        yield f"{run_id} was charged for {seconds} s, and has never run"


def _charged_as_measured(life: Life, process: Process, charged_s: int) -> Iterable[str]:
    """What was measured is charged once; of a machine that was cut off at most that."""
    unsettled_s = life.rows.unsettled_of(parse_run_id(process.run_id)[0])
    most_s = process.measured_s + (SHUTDOWN_S if process.was_cut else TOLERANCE_S)
    if charged_s > most_s:
        yield f"{process.run_id} ran {process.measured_s:.0f} s, and was charged for {charged_s} s"
    is_unknown = process.was_cut or process.state == "running" or unsettled_s > 0
    if not is_unknown and charged_s < process.measured_s - TOLERANCE_S:
        yield f"{process.run_id} ran {process.measured_s:.0f} s, and was charged {charged_s} s only"


BILLING = Part(
    name="billing",
    workflows=("JobBilling",),
    drawers=((6, calls_fail("JobBilling")),),
    always=_always,
    at_rest=_at_rest,
)
