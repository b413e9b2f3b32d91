"""Queries, which change nothing."""

from typing import TYPE_CHECKING, Any

from temporalio.bridge.proto.workflow_activation import QueryWorkflow

from tests.simulation.engine.execution import Job, Run
from tests.simulation.engine.instances import Instance
from tests.simulation.engine.replay import replay

if TYPE_CHECKING:
    from tests.simulation.engine.engine import Engine


def query(engine: "Engine", run: Run, name: str) -> Any:
    """Ask the cached instance of a run, or one that replays.

    Raises: RuntimeError, when the workflow refuses; NondeterminismError.
    """
    if not run.done:
        raise RuntimeError(f"{run.workflow_id}: no history to ask")
    cached = None
    if run.sticky is not None:
        process = engine.processes[run.sticky[0]]
        cached = process.cache.get(run.run_id)
    code = engine.processes["main"].workflows
    instance = cached or Instance(run, code[run.workflow], engine.values)
    if cached is None:
        replay(instance, run)
    job = Job(query_workflow=QueryWorkflow(query_id=name, query_type=name))
    answer = instance.activate(instance.activation((job,), engine.clock.now, 0, 1, ()))
    if cached is None:
        instance.evict()
    if answer.HasField("failed"):
        raise RuntimeError(answer.failed.failure.message)
    told = answer.successful.commands[0].respond_to_query
    if told.HasField("failed"):
        raise RuntimeError(told.failed.message)
    return engine.values.value(told.succeeded.response)
