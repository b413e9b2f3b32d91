"""Stories of federated jobs, whose histories are recorded."""

from typing import Any

from temporalio.client import WorkflowHandle

from tests.waiting import eventually
from tests.workflows.conftest import Stage
from tests.workflows.fake_federation import FederatedFacts
from workflows.contracts import queues
from workflows.contracts.base import Contract
from workflows.contracts.federation import FederatedRequest
from workflows.contracts.statuses import JobStatus
from workflows.federation.federated_lifecycle import FederatedLifecycle

FEDERATED = "fed-1"
REFUSED = "project reads: the creator has no permission to create jobs in it"


async def federated_job_settled(stage: Stage) -> WorkflowHandle[Any, Any]:
    handle = await _begin(stage)
    await _reaches(stage, "running")
    _facts(stage).job = JobStatus.FINISHED
    await handle.signal(FederatedLifecycle.wake)
    await handle.result()
    return handle


async def federated_job_whose_consent_is_withdrawn(stage: Stage) -> WorkflowHandle[Any, Any]:
    """Its job ends for it, and its usage is posted a little later."""
    handle = await _begin(stage)
    await _reaches(stage, "running")
    facts = _facts(stage)
    facts.refusals, facts.is_billed = (REFUSED,), False
    await handle.signal(FederatedLifecycle.wake)
    await eventually(lambda: facts.has_ended, "its job is asked to end")
    await handle.signal(FederatedLifecycle.wake)
    await eventually(lambda: not facts.is_sealed, "its model is taken back")
    facts.is_billed = True
    await handle.signal(FederatedLifecycle.wake)
    await handle.result()
    return handle


async def federated_job_refused_at_once(stage: Stage) -> WorkflowHandle[Any, Any]:
    _facts(stage).refusals = (REFUSED,)
    handle = await _begin(stage)
    await handle.result()
    return handle


async def federated_job_refused_after_its_model_is_sealed(
    stage: Stage,
) -> WorkflowHandle[Any, Any]:
    async def withdraw(_: Contract) -> None:
        _facts(stage).refusals = (REFUSED,)

    stage.world.faults["create_federated_job"] = [withdraw]
    handle = await _begin(stage)
    await handle.result()
    return handle


async def federated_job_ended_before_it_has_a_job(stage: Stage) -> WorkflowHandle[Any, Any]:
    _facts(stage).end_reason = "canceled for the creator"
    handle = await _begin(stage)
    await handle.result()
    return handle


STORIES = (
    federated_job_settled,
    federated_job_whose_consent_is_withdrawn,
    federated_job_refused_at_once,
    federated_job_refused_after_its_model_is_sealed,
    federated_job_ended_before_it_has_a_job,
)


def _facts(stage: Stage) -> FederatedFacts:
    return stage.world.federated[FEDERATED]


async def _begin(stage: Stage) -> WorkflowHandle[Any, Any]:
    request = FederatedRequest(
        federated_id=FEDERATED,
        account_id="acc-maker",
        consumer_account_id="acc-clinic",
        project_id="prj-1",
        job_id="job-1",
        name="reads",
    )
    return await stage.client.start_workflow(
        FederatedLifecycle.run, request, id=f"federated/{FEDERATED}", task_queue=queues.MAIN
    )


async def _reaches(stage: Stage, status: str) -> None:
    reached = stage.world.statuses[FEDERATED]
    await eventually(lambda: status in reached, f"the federated job is {status}")
