"""The job billing of a running job."""

from datetime import timedelta

from temporalio import workflow

from workflows.contracts.billing import (
    MICROCREDITS,
    BalanceForecast,
    BilledWorker,
    BillingReport,
    BillingRequest,
    WorkerUsage,
)
from workflows.contracts.jobs import EndRequest
from workflows.effects.billing import (
    BillingDone,
    PostUsage,
    TellJobToEnd,
    post_usage,
    tell_job_to_end,
)
from workflows.effects.jobs import GetRunStatus, get_run_status
from workflows.primitives.failures import EFFECT_FAILED, cause_of
from workflows.primitives.waiting import gather_bounded, wait_until
from workflows.rules.billing.wakeups import next_wakeup_s

SHORTEST_WAIT = timedelta(seconds=2)
UNSURE_WAIT = timedelta(seconds=30)
"""The pause while the credits are used up by the estimate, and not by the postings of all jobs."""
MEASURED_AT_ONCE = 16
"""Workers of one job that are measured concurrently; all of them share the site's workers."""
ENDING_WAIT = timedelta(minutes=5)
"""The pause after the job was asked to end, because its teardown may take hours."""


@workflow.defn(name="JobBilling")
class JobBilling:
    """The job billing of one attempt: posts the usage of a running job.

    metering → settled

    It wakes up at the end of each billing period, when the payer's runway may end or is to be
    warned of, and at a recheck, after another job of the payer has shortened the runway. Of the
    payer's jobs the newest ends first. It posts only what nodes have
    measured; usage on an unreachable node is posted later. The job settles the rest itself and
    then ends this workflow.
    """

    @workflow.init
    def __init__(self, request: BillingRequest) -> None:
        self._request = request
        self._done = False
        self._asked_to_end = False
        self._rechecks = False
        self._posted_microcredits = request.resumed_microcredits

    @workflow.run
    async def run(self, request: BillingRequest) -> BillingReport:
        forecast = await post_usage.run_locally(PostUsage(usages=self._nothing_yet()))
        while not (self._done or forecast.over):
            await wait_until(self._is_woken, self._until_next(forecast), "next wakeup")
            if self._done:
                break
            forecast = await (self._check_balance() if self._rechecks else self._meter())
            self._asked_to_end = forecast.is_used_up
            if self._asked_to_end:
                await self._out_of_credits(forecast)
            # The next workflow run would not receive a `settled` that has arrived meanwhile.
            if workflow.info().is_continue_as_new_suggested() and not self._done:
                resumed_from = {"resumed_microcredits": self._posted_microcredits}
                workflow.continue_as_new(self._request.model_copy(update=resumed_from))
        return BillingReport(job_id=request.job_id, posted_microcredits=self._posted_microcredits)

    async def _check_balance(self) -> BalanceForecast:
        """Forecast the balance anew, and meter at once if it may be used up."""
        self._rechecks = False
        forecast = await post_usage.run_locally(PostUsage(usages=self._nothing_yet()))
        return await self._meter() if forecast.may_be_used_up else forecast

    async def _meter(self) -> BalanceForecast:
        """Post the usage that each reachable node has measured."""
        measured = await gather_bounded(self._measured, self._request.workers, MEASURED_AT_ONCE)
        usages = tuple(usage for usage in measured if usage is not None)
        posted = await post_usage.run_locally(PostUsage(usages=usages or self._nothing_yet()))
        self._posted_microcredits += posted.posted_microcredits
        return posted

    async def _measured(self, worker: BilledWorker) -> WorkerUsage | None:
        question = GetRunStatus(node=worker.node, run_id=worker.run_id)
        try:
            report = await get_run_status(question, summary=f"meter worker {worker.worker}")
        except EFFECT_FAILED as failure:
            workflow.logger.warning(
                "worker %s is not metered now: %s", worker.run_id, cause_of(failure)[1]
            )
            return None
        return self._usage(worker, int(report.elapsed_s)).model_copy(
            update={
                "node_started_at": report.started_at,
                "node_ended_at": report.exit and report.exit.finished_at,
            }
        )

    async def _out_of_credits(self, forecast: BalanceForecast) -> None:
        request = EndRequest(reason=reason_of_end(forecast), code="insufficient-credits")
        await tell_job_to_end(TellJobToEnd(job_id=self._request.job_id, request=request))

    def _until_next(self, forecast: BalanceForecast) -> timedelta:
        elapsed_s = (workflow.now() - self._request.started_at).total_seconds()
        wait_s = next_wakeup_s(
            elapsed_s,
            period_s=self._request.period_s,
            balance_microcredits=forecast.spendable_microcredits,
            burn_microcredits_per_hour=forecast.burn_microcredits_per_hour * forecast.costs,
        )
        if forecast.costs and forecast.to_warning_s is not None:
            wait_s = min(wait_s, forecast.to_warning_s)
        return max(timedelta(seconds=wait_s), self._pause(forecast))

    def _pause(self, forecast: BalanceForecast) -> timedelta:
        if self._asked_to_end:
            return ENDING_WAIT
        unsure = forecast.may_be_used_up and not forecast.is_used_up
        return UNSURE_WAIT if unsure else SHORTEST_WAIT

    def _is_woken(self) -> bool:
        return self._done or self._rechecks

    def _nothing_yet(self) -> tuple[WorkerUsage, ...]:
        return tuple(self._usage(worker, 0) for worker in self._request.workers)

    def _usage(self, worker: BilledWorker, through_s: int) -> WorkerUsage:
        return WorkerUsage(
            job_id=self._request.job_id,
            worker=worker.worker,
            attempt=self._request.attempt,
            started_at=worker.started_at,
            through_s=through_s,
        )

    @workflow.signal(description="The job has settled this attempt.")
    def settled(self, done: BillingDone) -> None:
        self._done = self._done or done.attempt >= self._request.attempt

    @workflow.signal(description="Something else of the payer has shortened the runway.")
    def recheck_balance(self) -> None:
        self._rechecks = True

    @workflow.signal(description="A node of the job has a new address.")
    def nodes_moved(self, request: BillingRequest) -> None:
        if request.attempt == self._request.attempt:
            self._request = self._request.model_copy(update={"workers": request.workers})

    @workflow.query(description="The posted usage of this attempt, in microcredits.")
    def posted_microcredits(self) -> int:
        return self._posted_microcredits


def reason_of_end(forecast: BalanceForecast) -> str:
    """Why the job ends; of a federated job, whose credits are used up and not the balance."""
    left = forecast.left_microcredits / MICROCREDITS
    state = "nearly used up, and newer jobs end first" if left > 0 else "used up"
    if forecast.federated_payer is not None:
        whose = f"the federated job's {forecast.federated_payer}"
        return f"the credits of {whose} are {state}: once there are more, create it again"
    return f"the credits are {state} (balance {left:g}): add some, then start or submit again"
