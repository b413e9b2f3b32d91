"""Replay: a run's recorded activations on a new instance, whose commands must be the same."""

from dataclasses import replace

from temporalio.bridge.proto.workflow_activation import NotifyHasPatch

from tests.simulation.engine.commands import ACTIVITY, LOCAL, SIGNAL, TIMER, Commands
from tests.simulation.engine.execution import Job, Run
from tests.simulation.engine.instances import Activation, Instance


class NondeterminismError(Exception):
    """A replay has given other commands than the history has."""


def replay(instance: Instance, run: Run) -> None:
    """Bring a new instance to where its run is.

    Raises: NondeterminismError.
    """
    for task in run.done:
        commands = Commands()
        patches = task.patches
        for recorded, signatures in task.activations:
            again = _replayed(recorded, run, patches)
            patches = ()
            for job in recorded.jobs:
                concerns(instance, job)
            answer = instance.activate(again)
            if answer.HasField("failed"):
                raise NondeterminismError(answer.failed.failure.message)
            given = commands.read(answer.successful, instance)
            if given != signatures:
                raise NondeterminismError(f"{run.workflow_id}: {given} instead of {signatures}")
        instance.last = task


_ENDS = {
    "resolve_activity": ACTIVITY,
    "fire_timer": TIMER,
    "resolve_signal_external_workflow": SIGNAL,
}


def concerns(instance: Instance, job: Job) -> bool:
    """Whether the workflow still waits for it; what has ended for it ends only once."""
    kind = job.WhichOneof("variant")
    if kind not in _ENDS:
        return True
    ended = getattr(job, kind)
    is_local = kind == "resolve_activity" and ended.is_local
    return instance.open.pop((LOCAL if is_local else _ENDS[kind], ended.seq), None) is not None


def _replayed(recorded: Activation, run: Run, patches: tuple[str, ...]) -> Activation:
    """The activation as a replay has it; patches: of its task, which a replay is told first."""
    notices = [Job(notify_has_patch=NotifyHasPatch(patch_id=patch)) for patch in patches]
    return replace(
        recorded,
        jobs=(*notices, *recorded.jobs),
        available_internal_flags=tuple(run.flags),
        is_replaying=True,
    )
