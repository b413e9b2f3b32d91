"""The commands of a workflow, as Core takes them: what goes to the server, what is decided here."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from temporalio.bridge.proto.workflow_commands import (
    ActivityCancellationType,
    ScheduleLocalActivity,
    WorkflowCommand,
)
from temporalio.bridge.proto.workflow_completion import Success

from tests.simulation.engine import failures
from tests.simulation.engine.execution import Job, Key, Signature
from tests.simulation.engine.instances import Instance

TIMER, ACTIVITY, LOCAL, SIGNAL, END = "timer", "activity", "local", "signal", "end"
_TRY_CANCEL = ActivityCancellationType.TRY_CANCEL
_ABANDON = ActivityCancellationType.ABANDON


class LocalEnd(NamedTuple):
    """How a local activity has ended, as its marker keeps it.

    activation: the number of its task's activation that tells it, from 0 on; began_at, ended_at: in
    microseconds, 0: at the time of its marker.
    """

    asked: ScheduleLocalActivity
    job: Job
    activation: int
    attempt: int = 1
    began_at: int = 0
    ended_at: int = 0


class UnknownCommandError(Exception):
    """The workflow uses a command that this engine does not model."""


@dataclass(eq=False)
class Commands:
    """What one workflow task has commanded so far.

    sent: to the server, when the task completes, in order; told: what the workflow is told at once;
    started_locals, dropped_locals: local activities to run, or to forget.
    """

    sent: dict[Key, tuple[str, Any]] = field(default_factory=dict)
    told: list[Job] = field(default_factory=list)
    started_locals: list[ScheduleLocalActivity] = field(default_factory=list)
    dropped_locals: list[int] = field(default_factory=list)
    patches: list[str] = field(default_factory=list)
    activations: int = 0
    has_ended: bool = False
    _count: int = 0

    def read(self, answer: Success, instance: Instance) -> tuple[Signature, ...]:
        """Take the commands of one activation. Returns what a replay compares.

        The command that ends the workflow is sent last, whatever comes after it, as by Core.
        """
        self.activations += 1
        taken = tuple(self._one(command, instance) for command in answer.commands)
        if self.has_ended:
            self.sent[(END, 0)] = self.sent.pop((END, 0))
        return taken

    def send(self, kind: str, what: Any = None) -> None:
        """Send something that nothing takes back."""
        self._count += 1
        self.sent[(kind, -self._count)] = (kind, what)

    def _one(self, command: WorkflowCommand, instance: Instance) -> Signature:
        kind = command.WhichOneof("variant") or ""
        read = _READERS.get(kind)
        if read is None:
            raise UnknownCommandError(kind)
        return read(self, kind, getattr(command, kind), instance)

    # Each reader takes one kind of command.

    def _start_timer(self, kind: str, what: Any, instance: Instance) -> Signature:
        instance.open[(TIMER, what.seq)] = what
        self.sent[(TIMER, what.seq)] = (kind, what)
        return kind, what.seq

    def _cancel_timer(self, kind: str, what: Any, instance: Instance) -> Signature:
        """One that has fired in the same activation, after a signal there, stays as it is."""
        is_open = instance.open.pop((TIMER, what.seq), None) is not None
        if self.sent.pop((TIMER, what.seq), None) is None and is_open:
            self.send(kind, what)
        return kind, what.seq

    def _schedule_activity(self, kind: str, what: Any, instance: Instance) -> Signature:
        if what.cancellation_type == _ABANDON:
            raise UnknownCommandError("abandon an activity")
        instance.open[(ACTIVITY, what.seq)] = what
        self.sent[(ACTIVITY, what.seq)] = (kind, what)
        return kind, what.seq, what.activity_type, what.activity_id

    def _cancel_activity(self, kind: str, what: Any, instance: Instance) -> Signature:
        """One that was not sent yet never is. TRY_CANCEL tells the workflow at once."""
        asked = instance.open.get((ACTIVITY, what.seq))
        if asked is None:
            return kind, what.seq
        was_unsent = self.sent.pop((ACTIVITY, what.seq), None) is not None
        if not was_unsent:
            self.send(kind, what)
        if was_unsent or asked.cancellation_type == _TRY_CANCEL:
            self._tell_canceled(asked, is_local=False)
        return kind, what.seq

    def _schedule_local(self, kind: str, what: Any, instance: Instance) -> Signature:
        instance.open[(LOCAL, what.seq)] = what
        self.started_locals.append(what)
        return kind, what.seq, what.activity_type, what.activity_id

    def _cancel_local(self, kind: str, what: Any, instance: Instance) -> Signature:
        asked = instance.open.get((LOCAL, what.seq))
        if asked is not None:
            self.dropped_locals.append(what.seq)
            self._tell_canceled(asked, is_local=True)
            self.send("local_marker", LocalEnd(asked, self.told[-1], self.activations))
        return kind, what.seq

    def _tell_canceled(self, asked: Any, *, is_local: bool) -> None:
        job = Job()
        job.resolve_activity.seq = asked.seq
        job.resolve_activity.is_local = is_local
        job.resolve_activity.result.cancelled.failure.CopyFrom(
            failures.of_activity(
                failures.of_cancellation(),
                effect=asked.activity_type,
                activity_id=asked.activity_id,
            )
        )
        self.told.append(job)

    def _patch(self, kind: str, what: Any, _instance: Instance) -> Signature:
        self.patches.append(what.patch_id)
        self.send(kind, what)
        return kind, what.patch_id

    def _signal_external(self, kind: str, what: Any, instance: Instance) -> Signature:
        instance.open[(SIGNAL, what.seq)] = what
        self.sent[(SIGNAL, what.seq)] = (kind, what)
        return kind, what.seq, what.workflow_execution.workflow_id, what.signal_name

    def _cancel_signal(self, kind: str, what: Any, instance: Instance) -> Signature:
        """Only a signal that was not sent yet can be taken back."""
        if self.sent.pop((SIGNAL, what.seq), None) is not None:
            instance.open.pop((SIGNAL, what.seq), None)
            job = Job()
            job.resolve_signal_external_workflow.seq = what.seq
            job.resolve_signal_external_workflow.failure.CopyFrom(failures.of_cancellation())
            self.told.append(job)
        return kind, what.seq

    def _plain(self, kind: str, what: Any, _instance: Instance) -> Signature:
        self.send(kind, what)
        return (kind,)

    def _end(self, kind: str, what: Any, _instance: Instance) -> Signature:
        """Of the commands that end the workflow the first counts."""
        if not self.has_ended:
            self.has_ended = True
            self.sent[(END, 0)] = (kind, what)
        return (kind,)


_READERS: dict[str, Callable[[Commands, str, Any, Instance], Signature]] = {
    "start_timer": Commands._start_timer,
    "cancel_timer": Commands._cancel_timer,
    "schedule_activity": Commands._schedule_activity,
    "request_cancel_activity": Commands._cancel_activity,
    "schedule_local_activity": Commands._schedule_local,
    "request_cancel_local_activity": Commands._cancel_local,
    "set_patch_marker": Commands._patch,
    "upsert_workflow_search_attributes": Commands._plain,
    "signal_external_workflow_execution": Commands._signal_external,
    "cancel_signal_workflow": Commands._cancel_signal,
    "complete_workflow_execution": Commands._end,
    "fail_workflow_execution": Commands._end,
    "cancel_workflow_execution": Commands._end,
    "continue_as_new_workflow_execution": Commands._end,
}
