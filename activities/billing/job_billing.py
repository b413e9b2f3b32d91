"""Job billing for workflows: starting it, posting usage, ending it."""

import asyncio
from datetime import UTC, datetime, timedelta

from temporalio import activity
from temporalio.client import WorkflowExecutionStatus
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError

from activities.billing.guests import end_for_credits
from activities.billing.runway import (
    balance_forecast,
    creator_forecast,
    lock_balance,
    of_party,
    recheck_of_creator,
    recheck_other_jobs,
    shorter,
)
from activities.billing.runway_warnings import warn_of_runway
from activities.billing.usage import is_over, open_meter, post_on_meter
from activities.db.session import database
from activities.outbox.dispatcher import relay_soon
from activities.temporal.client import CALL_LIMIT_S, client, id_of_this_activity, limited, tell
from activities.temporal.stuck_workflows import terminate_if_stuck
from workflows.contracts import queues
from workflows.contracts.base import Done
from workflows.contracts.billing import BalanceForecast, BillingRequest
from workflows.contracts.errors import REFUSED
from workflows.effects.billing import BillingDone, PostUsage, TellJobToEnd

ATTEMPT = "attempt"
_BILLING = "/billing"


def billing_id(job_id: str) -> str:
    return f"job/{job_id}{_BILLING}"


def is_billing_id(workflow_id: str) -> bool:
    """Whether a workflow is the job billing of any job."""
    return workflow_id.endswith(_BILLING)


@activity.defn
async def begin_billing(request: BillingRequest) -> Done:
    """Start the job billing of an attempt.

    If the job billing of this attempt runs already, it receives the present node addresses. If
    the job billing of an earlier attempt still runs, it is asked to end; if it is stuck, it is
    terminated.

    Raises: ApplicationError, to be retried, while an earlier attempt's job billing ends.
    """
    workflow_id = billing_id(request.job_id)
    start = client().start_workflow(
        "JobBilling",
        request,
        id=workflow_id,
        task_queue=queues.MAIN,
        id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
        memo={ATTEMPT: request.attempt},
        static_summary=f"bill of attempt {request.attempt}",
        rpc_timeout=timedelta(seconds=CALL_LIMIT_S),
    )
    try:
        await limited(start, f"{workflow_id}: start")
    except WorkflowAlreadyStartedError:
        await _update_or_end(request)
    return Done()


@activity.defn
def post_usage(command: PostUsage) -> BalanceForecast:
    """Post the usage of each run that is not posted yet, whole and part billing periods.

    If this shortens the runway of the payer to another runway level, the job billings of the
    payer's other jobs are asked to recheck the balance. The payer is warned of a short runway.

    Raises: Refused, when there is no usage; NotFound, when there is no such job.
    """
    if not command.usages:
        raise ApplicationError("usage: asked to post, found no usage", type=REFUSED)
    posted = 0
    while True:
        forecast, is_all = _post(command)
        posted += forecast.posted_microcredits
        if is_all:
            return forecast.model_copy(update={"posted_microcredits": posted})


def _post(command: PostUsage) -> tuple[BalanceForecast, bool]:
    """Post what fits into one transaction; return the forecast, and whether that was all."""
    with database().write() as session:
        opened = [open_meter(session, usage) for usage in command.usages]
        meters = [meter for meter, _ in opened]
        added = sum(meter.microcredits_per_hour for meter, new in opened if new and meter.running)
        posted = [
            post_on_meter(session, meter, usage.through_s)
            for meter, usage in zip(meters, command.usages, strict=True)
        ]
        first, began = meters[0], any(is_new for _, is_new in opened)
        if added or (began and first.federated_payer_id is not None):
            lock_balance(session, first.payer_id, first.federated_payer_id or first.payer_id)
        forecast = balance_forecast(session, meters, sum(each.microcredits for each in posted))
        request_ids = recheck_other_jobs(session, meters, forecast, added)
        of_creator = creator_forecast(session, meters, forecast.posted_microcredits)
        known = {first.payer_id: forecast}
        if of_creator is not None and first.federated_payer_id is not None:
            known.setdefault(first.federated_payer_id, of_creator)
        for payer_id in sorted(known):  # In the order in which the balance guard warns.
            warn_of_runway(session, payer_id, known[payer_id])
        if began:
            request_ids += recheck_of_creator(session, meters, of_creator)
        forecast = of_party(session, first, shorter(forecast, of_creator), of_creator)
        over = is_over(session, command.usages[0])
    relay_soon(request_ids)
    is_all = all(each.is_all for each in posted)
    return forecast.model_copy(update={"over": over}), is_all


@activity.defn
async def end_billing(done: BillingDone) -> Done:
    """Signal the job billing that all usage is posted; silent when its workflow has ended."""
    await tell(billing_id(done.job_id), "settled", done)
    return Done()


@activity.defn
async def tell_job_to_end(command: TellJobToEnd) -> Done:
    """Signal `stop` to the job, as the credits of its payer are used up; silent when it has ended.

    From then on a guest is not billed for long, also where the node does not hear of it.
    """
    request_id = id_of_this_activity()
    await tell(f"job/{command.job_id}", "stop", command.request, request_id=request_id)
    now = datetime.now(UTC)
    asked_at = activity.info().scheduled_time if activity.in_activity() else now
    await asyncio.to_thread(_record_end, command.job_id, asked_at)
    return Done()


def _record_end(job_id: str, asked_at: datetime) -> None:
    with database().write() as session:
        end_for_credits(session, job_id, datetime.now(UTC), asked_at=asked_at)


async def _update_or_end(request: BillingRequest) -> None:
    """Send the node addresses to the job billing of this attempt, or end that of an earlier one."""
    workflow_id = billing_id(request.job_id)
    describe = client().get_workflow_handle(workflow_id).describe()
    found = await limited(describe, f"{workflow_id}: describe")
    attempt = await found.memo_value(ATTEMPT, default=0)
    if found.status is WorkflowExecutionStatus.RUNNING and attempt >= request.attempt:
        await tell(workflow_id, "nodes_moved", request)
        return
    if not await limited(terminate_if_stuck(client(), workflow_id), f"{workflow_id}: describe"):
        await tell(workflow_id, "settled", BillingDone(job_id=request.job_id, attempt=attempt))
    raise ApplicationError(
        f"{workflow_id}: asked to bill attempt {request.attempt}, attempt {attempt} is just ending"
    )
