"""The activities by which a job starts, polls, ends and cleans the run of a worker."""

from typing import Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.site.answers.reading import refusal_code
from activities.site.answers.verbs import Cleaned, RunStatus
from activities.site.node_client import NodeClient
from activities.site.run_names import RunNames
from activities.site.sealed_models import model_key
from activities.site.staging import open_spec
from activities.storage.names import run_spec_name
from activities.temporal.heartbeats import heartbeating
from workflows.contracts import errors
from workflows.contracts.base import Done
from workflows.contracts.jobs import RunReport, parse_run_id
from workflows.contracts.statuses import RunState
from workflows.effects.jobs import CleanWorker, EndWorker, GetRunStatus, StartWorker

START_S = 16.0
STATUS_S = 10.0
END_S = 170.0
CLEAN_S = 110.0
STARTED = frozenset({RunState.RUNNING, RunState.EXITED, RunState.LOST})


@activity.defn
async def start_worker(command: StartWorker) -> RunReport:
    """Start the run's command, or find it started.

    After an unknown outcome, the run's status decides.
    Raises: ApplicationError, as `NodeClient`, when the run has not started.
    """
    request = {"run_id": RunNames(command.node).of(command.run_id)}
    try:
        answer = await _start(command, request)
    except ApplicationError as failure:
        if failure.type != errors.OUTCOME_UNKNOWN:
            raise
        report = await _status(GetRunStatus(node=command.node, run_id=command.run_id))
        if report.state not in STARTED:
            raise
        return report
    return answer.report(command.run_id)


async def _start(command: StartWorker, request: dict[str, Any]) -> RunStatus:
    """Start the run; with the key of its model, if it has one that is sealed."""
    client = NodeClient(command.node)
    try:
        return await client.call("start", request, RunStatus, limit_s=START_S)
    except ApplicationError as failure:
        if refusal_code(failure) != "no-model-key":
            raise
    job_id, worker, attempt = parse_run_id(command.run_id)
    reference = run_spec_name(job_id, attempt, worker)
    run_spec = await open_spec(reference, command.run_id, command.node.region_id)
    key = await model_key(command.node, command.run_id, run_spec)
    return await client.call("start", {**request, "model_key": key}, RunStatus, limit_s=START_S)


@activity.defn
async def get_run_status(command: GetRunStatus) -> RunReport:
    """The status of the run on its node."""
    return await _status(command)


@activity.defn
async def end_worker(command: EndWorker) -> RunReport:
    """End the run's whole process tree and verify its end; a repeat returns the same exit."""
    name = RunNames(command.node).of(command.run_id)
    request = {"run_id": name, "grace_s": command.grace_s}
    async with heartbeating():
        answer = await NodeClient(command.node).call("end", request, RunStatus, limit_s=END_S)
    return answer.report(command.run_id)


@activity.defn
async def clean_worker(command: CleanWorker) -> Done:
    """Remove the run's folder; silent when it does not exist.

    Raises: NODE_REFUSED when the command still runs.
    """
    request = {"run_ids": [RunNames(command.node).of(command.run_id)]}
    async with heartbeating():
        answer = await NodeClient(command.node).call("clean", request, Cleaned, limit_s=CLEAN_S)
    if answer.kept:
        raise ApplicationError(
            f"{command.node.node_id}: {command.run_id} still runs, so its folder is kept",
            type=errors.NODE_REFUSED,
        )
    return Done()


async def _status(command: GetRunStatus) -> RunReport:
    name = RunNames(command.node).of(command.run_id)
    status = await NodeClient(command.node).run_status(name, limit_s=STATUS_S)
    return status.report(command.run_id)
