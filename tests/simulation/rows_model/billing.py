"""The effects of job billing. As activities/billing/job_billing.py and orphaned_runs.py."""

from datetime import timedelta

from temporalio.exceptions import ApplicationError

from activities.billing.job_billing import billing_id
from activities.billing.ledger import LedgerError
from activities.billing.unsettled_jobs import MOST_JOBS
from activities.temporal.stuck_workflows import STUCK_ATTEMPTS
from tests.simulation.contracts import AlreadyStarted, Attempt, Handler, NotFound, Unavailable
from tests.simulation.rows_model import guests
from tests.simulation.rows_model.allocations import Allocations
from tests.simulation.rows_model.connection import Connection, unanswered
from tests.simulation.rows_model.ledger import Ledger
from tests.simulation.rows_model.metering import Metering
from tests.simulation.rows_model.outbox import Outbox
from tests.simulation.rows_model.records import Job
from tests.simulation.rows_model.tables import Tables
from workflows.contracts.base import Done
from workflows.contracts.billing import BalanceForecast, BillingRequest, WorkerUsage
from workflows.contracts.errors import REFUSED
from workflows.contracts.nodes import RunSeen
from workflows.effects.billing import (
    BalancesGuarded,
    BillingDone,
    ChargeDeviceDays,
    DeviceDaysCharged,
    PaidOut,
    PayOut,
    PostUsage,
    TellJobToEnd,
)
from workflows.effects.nodes import BillOrphanedRuns

ATTEMPT = "BilledAttempt"
"""The real one is in the memo of the workflow; the `Temporal` of the simulator has no memo."""


class Billing:
    def __init__(
        self,
        tables: Tables,
        connection: Connection,
        outbox: Outbox,
        ledger: Ledger,
        allocations: Allocations,
    ) -> None:
        self._tables = tables
        self._connection = connection
        self._outbox = outbox
        self._allocations = allocations
        self._metering = Metering(tables, connection, outbox, ledger)

    def effects(self) -> dict[str, Handler]:
        return {
            "begin_billing": lambda _, request: self.begin(request),
            "post_usage": self._post_usage,
            "end_billing": self._end_billing,
            "tell_job_to_end": self._tell_job_to_end,
            "bill_orphaned_runs": self._bill_orphaned_runs,
            "charge_device_days": self._charge_device_days,
            "pay_out": self._pay_out,
            "guard_balances": lambda _, __: BalancesGuarded(),
        }

    def _charge_device_days(self, _: Attempt, asked: ChargeDeviceDays) -> DeviceDaysCharged:
        """These lives have no devices."""
        return DeviceDaysCharged(through=asked.through)

    def _pay_out(self, _: Attempt, __: PayOut) -> PaidOut:
        """Earnings stay where they are in these lives."""
        return PaidOut()

    # ── the billing of an attempt ───────────────────────────────────────────────────────────

    def begin(self, request: BillingRequest) -> Done:
        """As job_billing.py:begin_billing.

        Raises: ApplicationError, to be retried, while an earlier attempt's job billing ends.
        """
        workflow_id = billing_id(request.job_id)
        try:
            self._connection.temporal.start(
                "JobBilling",
                workflow_id,
                request,
                search_attributes={ATTEMPT: request.attempt},
                reuse="allow_duplicate",
                conflict="fail",
            )
        except AlreadyStarted:
            self._update_or_end(workflow_id, request)
        except Unavailable as cause:
            raise unanswered(f"{workflow_id}: start", cause) from cause
        return Done()

    def _update_or_end(self, workflow_id: str, request: BillingRequest) -> None:
        """As job_billing.py:_update_or_end."""
        temporal = self._connection.temporal
        try:
            found = temporal.describe(workflow_id)
        except (NotFound, Unavailable) as cause:
            raise unanswered(f"{workflow_id}: describe", cause) from cause
        billed = int(found.search_attributes.get(ATTEMPT, 0))
        if found.status == "running" and billed >= request.attempt:
            self._connection.tell(workflow_id, "nodes_moved", request)
            return
        if not terminate_if_stuck(self._connection, workflow_id):
            done = BillingDone(job_id=request.job_id, attempt=billed)
            self._connection.tell(workflow_id, "settled", done)
        raise ApplicationError(
            f"{workflow_id}: asked to bill attempt {request.attempt}, attempt {billed} just ends"
        )

    def _end_billing(self, attempt: Attempt, done: BillingDone) -> Done:
        self._connection.tell(billing_id(done.job_id), "settled", done)
        return Done()

    def _tell_job_to_end(self, attempt: Attempt, command: TellJobToEnd) -> Done:
        self._connection.tell(f"job/{command.job_id}", "stop", command.request, attempt.request_id)
        with self._tables.write():
            guests.end_for_credits(self._tables, command.job_id, self._connection.now())
        return Done()

    # ── postings ────────────────────────────────────────────────────────────────────────────

    def _post_usage(self, attempt: Attempt, command: PostUsage) -> BalanceForecast:
        """As job_billing.py:post_usage. Raises: Refused, NotFound, LedgerError."""
        if not command.usages:
            raise ApplicationError("usage: asked to post, found no usage", type=REFUSED)
        posted = 0
        while True:
            try:
                forecast, is_all = self._post(command)
            except LedgerError as cause:
                raise ApplicationError(str(cause), type="LedgerError") from cause
            posted += forecast.posted_microcredits
            if is_all:
                return forecast.model_copy(update={"posted_microcredits": posted})

    def _post(self, command: PostUsage) -> tuple[BalanceForecast, bool]:
        metering = self._metering
        with self._tables.write():
            opened = [metering.open_meter(usage) for usage in command.usages]
            meters = [meter for meter, _ in opened]
            added = sum(each.microcredits_per_hour for each, new in opened if new and each.running)
            posted = [
                metering.post_on_meter(meter, usage.through_s)
                for meter, usage in zip(meters, command.usages, strict=True)
            ]
            forecast = metering.balance_forecast(meters, sum(each.microcredits for each in posted))
            requests = metering.recheck_other_jobs(meters[0], forecast, added)
            metering.warn_of_runway(meters[0].payer_id, forecast)
        if requests:
            self._connection.between()
            self._outbox.relay_soon(requests)
        over = metering.is_over(command.usages[0])
        return forecast.model_copy(update={"over": over}), all(each.is_all for each in posted)

    def post_unsettled(self, quiet_for: timedelta) -> list[str]:
        """As unsettled_jobs.py:post_unsettled, oldest first."""
        before = self._connection.now() - quiet_for
        quiet = [job for job in self._tables.unsettled_jobs.values() if job.updated_at < before]
        quiet.sort(key=lambda job: job.updated_at)
        return [job.id for job in quiet[:MOST_JOBS] if self._post_unsettled_of(job)]

    def _post_unsettled_of(self, job: Job) -> bool:
        try:
            while not self._post_some(job):
                pass
        except (ApplicationError, LedgerError) as cause:
            self._connection.temporal.note("rows", f"usage of {job.id} is not posted: {cause}")
            return False
        return True

    def _post_some(self, job: Job) -> bool:
        with self._tables.write():
            posted = [self._metering.post_worker_usage(usage) for usage in job.unsettled or ()]
            is_all = all(each.is_all for each in posted)
            if is_all:
                self._tables.change(job, unsettled=None)
        return is_all

    # ── orphaned runs ───────────────────────────────────────────────────────────────────────

    def _bill_orphaned_runs(self, attempt: Attempt, command: BillOrphanedRuns) -> Done:
        """As orphaned_runs.py:bill_orphaned_runs.

        Raises: ApplicationError, the first refusal, after all runs were tried.
        """
        refused: ApplicationError | None = None
        freed = False
        for run in command.runs:
            try:
                freed = self._bill(command.node_id, run) or freed
            except ApplicationError as refusal:
                refused = refused or refusal
        if freed:
            self._connection.between()
            self._connection.wake_placement()
        if refused is not None:
            raise refused
        return Done()

    def _bill(self, node_id: str, run: RunSeen) -> bool:
        """Post the usage of a run, then free what it held; whether that was anything."""
        while True:
            with self._tables.write():
                usage = self._usage_of(node_id, run)
                if usage is None or self._metering.post_worker_usage(usage).is_all:
                    return self._free(node_id, run)

    def _free(self, node_id: str, run: RunSeen) -> bool:
        """As orphaned_runs.py:_free, what the node holds for a run that has ended."""
        if run.alive:
            return False
        held = self._tables.allocation_of.get((run.job_id, run.worker, run.attempt))
        if held is None or held.node_id != node_id or not held.is_leaving:
            return False
        self._allocations.free([held], self._connection.now())
        return True

    def _usage_of(self, node_id: str, run: RunSeen) -> WorkerUsage | None:
        """None: it has no allocation on the node, or measured less than a second."""
        held = self._tables.allocation_of.get((run.job_id, run.worker, run.attempt))
        if held is None or held.node_id != node_id or run.elapsed_s < 1:
            return None
        started_at = run.started_at or held.created_at
        return WorkerUsage(
            job_id=run.job_id,
            worker=run.worker,
            attempt=run.attempt,
            started_at=min(max(started_at, held.created_at), self._connection.now()),
            through_s=int(run.elapsed_s),
        )


def terminate_if_stuck(connection: Connection, workflow_id: str) -> bool:
    """As activities/temporal/stuck_workflows.py.

    Raises: ApplicationError, to be retried, when Temporal does not answer.
    """
    try:
        found = connection.temporal.describe(workflow_id)
        if found.task_attempt < STUCK_ATTEMPTS or found.status != "running":
            return False
        connection.temporal.terminate(workflow_id, run_id=found.run_id)
    except NotFound:
        return False
    except Unavailable as cause:
        raise unanswered(f"{workflow_id}: describe", cause) from cause
    return True
