"""Stories of what belongs to no lifecycle: the bills, and what runs at an interval or once."""

from datetime import UTC, datetime
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHandle

from tests.waiting import eventually
from tests.workflows.conftest import Stage
from tests.workflows.fake_machines import node_address
from tests.workflows.jobs import test_job_lifecycle as jobs
from workflows.billing.balance_guard import BalanceGuard
from workflows.billing.device_fees import DeviceFees
from workflows.billing.job_billing import JobBilling
from workflows.billing.payouts import Payouts
from workflows.contracts import queues
from workflows.contracts.base import Contract
from workflows.contracts.billing import BilledWorker, BillingRequest
from workflows.contracts.providers import NotificationsRequest
from workflows.contracts.schedules import (
    BalanceGuardRequest,
    DeviceFeesRequest,
    PayoutsRequest,
    ReconciliationRequest,
)
from workflows.contracts.statuses import JobStatus, JobType, ProviderKind
from workflows.effects.billing import BillingDone
from workflows.effects.sessions import OpenTrunk
from workflows.providers.notifications import ProviderNotifications
from workflows.providers.offer_refresh import OfferRefresh
from workflows.providers.price_refresh import PriceRefresh
from workflows.reconciliation.reconcilers import Housekeeping, LifecycleReconciliation
from workflows.rules.billing.utc_days import DAY, last_closed_day
from workflows.sessions.trunk_opening import TrunkOpening


async def device_days_charged(stage: Stage) -> WorkflowHandle[Any, Any]:
    stage.world.first_device_day = last_closed_day(datetime.now(UTC)) - 40 * DAY
    handle = await stage.client.start_workflow(
        DeviceFees.run, DeviceFeesRequest(), id="device-fees", task_queue=queues.MAIN
    )
    await sleeps(handle)
    return handle


async def earnings_paid_out(stage: Stage) -> WorkflowHandle[Any, Any]:
    stage.world.unpaid.add("prv-1")
    handle = await stage.client.start_workflow(
        Payouts.run, PayoutsRequest(), id="payouts", task_queue=queues.MAIN
    )
    await sleeps(handle)
    return handle


async def payers_of_devices_warned(stage: Stage) -> WorkflowHandle[Any, Any]:
    stage.world.short.add("acc-1")
    handle = await stage.client.start_workflow(
        BalanceGuard.run, BalanceGuardRequest(), id="balance-guard", task_queue=queues.MAIN
    )
    await sleeps(handle)
    return handle


async def sleeps(handle: WorkflowHandle[Any, Any]) -> None:
    """It has done the work of its day, and waits for the next one."""

    async def waits() -> bool:
        events = (await handle.fetch_history()).events
        return events[-1].event_type == EventType.EVENT_TYPE_TIMER_STARTED

    await eventually(waits, f"{handle.id} waits for the next day")


async def billing_until_the_credits_are_used_up(stage: Stage) -> WorkflowHandle[Any, Any]:
    job = await stage.job(JobType.NOTEBOOK, keeps_output=False)
    await jobs.at_running(stage, job)
    job_id, began = job.id.partition("/")[2], datetime.now(UTC)
    worker = BilledWorker(worker=0, run_id=f"{job_id}-0-1", node=node_address(), started_at=began)
    asked = BillingRequest(
        job_id=job_id, account_id="acc-1", attempt=1, started_at=began, workers=(worker,)
    )
    handle = await stage.client.start_workflow(
        JobBilling.run, asked, id=f"{job.id}/billing", task_queue=queues.MAIN
    )
    stage.world.balance_microcredits, stage.world.burn_microcredits_per_hour = -1, 3600
    await handle.signal(JobBilling.recheck_balance)
    await jobs.reaches(stage, job, JobStatus.STOPPED)
    await handle.signal(JobBilling.settled, BillingDone(job_id=job_id, attempt=1))
    await handle.result()
    return handle


async def notifications_until_the_provider_is_gone(stage: Stage) -> WorkflowHandle[Any, Any]:
    handle = await _listen(stage)
    await eventually(lambda: stage.world.cloud.listened > 1, "it has listened twice")
    stage.world.cloud.provider_is_gone = True
    await handle.result()
    return handle


async def notifications_without_a_subscription(stage: Stage) -> WorkflowHandle[Any, Any]:
    stage.world.cloud.subscription_is_lost = True
    handle = await _listen(stage)
    await sleeps(handle)
    return handle


async def lost_workflows_restarted(stage: Stage) -> WorkflowHandle[Any, Any]:
    return await _done(stage, LifecycleReconciliation.run, ReconciliationRequest())


async def prices_refreshed(stage: Stage) -> WorkflowHandle[Any, Any]:
    return await _done(stage, PriceRefresh.run, ReconciliationRequest())


async def offers_refreshed(stage: Stage) -> WorkflowHandle[Any, Any]:
    return await _done(stage, OfferRefresh.run, ReconciliationRequest())


async def expired_rows_removed(stage: Stage) -> WorkflowHandle[Any, Any]:
    return await _done(stage, Housekeeping.run, ReconciliationRequest())


async def trunk_opened(stage: Stage) -> WorkflowHandle[Any, Any]:
    asked = OpenTrunk(node=node_address(), trunk_id="trk-1", run_id="job-1-0-1", sealed="sealed")
    return await _done(stage, TrunkOpening.run, asked)


STORIES = (
    device_days_charged,
    earnings_paid_out,
    payers_of_devices_warned,
    billing_until_the_credits_are_used_up,
    notifications_until_the_provider_is_gone,
    notifications_without_a_subscription,
    lost_workflows_restarted,
    prices_refreshed,
    offers_refreshed,
    expired_rows_removed,
    trunk_opened,
)


async def _done(stage: Stage, run: Any, asked: Contract) -> WorkflowHandle[Any, Any]:
    """A workflow that does one thing, after it has done it."""
    handle: WorkflowHandle[Any, Any] = await stage.client.start_workflow(
        run, asked, id="once", task_queue=queues.MAIN
    )
    await handle.result()
    return handle


async def _listen(stage: Stage) -> WorkflowHandle[Any, Any]:
    asked = NotificationsRequest(provider_id="prv-1", kind=ProviderKind.GCP)
    return await stage.client.start_workflow(
        ProviderNotifications.run, asked, id="provider/prv-1/notifications", task_queue=queues.MAIN
    )
