"""The typed stub of an activity: its name, models, task queue, time limits and retries."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Generic, TypeVar

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception
from temporalio.exceptions import TimeoutError as OutOfTime

from workflows.contracts import queues
from workflows.contracts.base import Contract
from workflows.contracts.errors import NON_RETRYABLE
from workflows.contracts.nodes import NodeAddress
from workflows.contracts.statuses import ProviderKind
from workflows.effects.cancellation import cancellable

HEARTBEAT_S = 10.0
"""The heartbeat timeout: after the kill of a worker process, Temporal retries its activity then."""

_TRY_CANCEL = workflow.ActivityCancellationType.TRY_CANCEL
_WAIT_COMPLETED = workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED

Asked = TypeVar("Asked", bound=Contract)
Answered = TypeVar("Answered", bound=Contract)


class SiteCommand(Contract):
    """A command for one node; it runs on the queue of the sites, or of the node's own region."""

    node: NodeAddress


class CloudCommand(Contract):
    """A command that calls the API of a provider; it runs on a cloud queue of the kind."""

    provider_kind: ProviderKind


@dataclass(frozen=True)
class Effect(Generic[Asked, Answered]):
    """A typed activity stub: a call in a workflow runs the activity and returns its answer.

    name: of the activity;
    asked, answered: the models of its request and its answer;
    queue: the task queue, for a `CloudCommand` that of its provider kind; None: the site queue of
    `asked.node`;
    start_to_close_s: limit of one attempt;
    schedule_to_close_s: limit of all attempts together; None: no limit;
    schedule_to_start_s: limit until a worker process takes the activity; None: no own limit;
    heartbeat_s: longest time between two heartbeats of an attempt;
    retry_first_s, retry_max_s: the first and the longest pause between attempts;
    non_retryable: types of failure that are not retried;
    attempts: how many at most; 0: no limit;
    waits_for_cancellation: when cancelled, wait until the running attempt has finished, so that a
    late attempt cannot act after the compensation;
    is_watch: run on the site's queue of watches.

    Raises: ActivityError, when the activity fails; `run_locally` also ApplicationError;
    CancelledError, when the workflow is cancelled.
    """

    name: str
    asked: type[Asked]
    answered: type[Answered]
    queue: str | None = queues.MAIN
    start_to_close_s: float = 30
    schedule_to_close_s: float | None = None
    schedule_to_start_s: float | None = None
    heartbeat_s: float | None = None
    retry_first_s: float = 1
    retry_max_s: float = 30
    non_retryable: Sequence[str] = field(default=NON_RETRYABLE)
    attempts: int = 0
    waits_for_cancellation: bool = False
    is_watch: bool = False

    async def __call__(self, command: Asked, *, summary: str | None = None) -> Answered:
        with cancellable():
            answer: Answered = await workflow.execute_activity(
                self.name, command, summary=summary, **self._options(command)
            )
        return answer

    def start(
        self, command: Asked, *, summary: str | None = None
    ) -> "workflow.ActivityHandle[Answered]":
        """Start the activity without waiting; await or cancel the returned handle later.

        Nobody needs to await a handle that was cancelled.
        """
        handle: workflow.ActivityHandle[Answered] = workflow.start_activity(
            self.name, command, summary=summary, **self._options(command)
        )
        handle.add_done_callback(_retrieve)
        return handle

    async def run_locally(self, command: Asked, *, summary: str | None = None) -> Answered:
        """Run as a local activity with three attempts of 2 s, then as an ordinary activity.

        A local activity that keeps failing would hold its task slot, and the Temporal UI would not
        show it.

        Raises: ActivityError or ApplicationError, when the activity fails.
        """
        try:
            with cancellable():
                answer: Answered = await workflow.execute_local_activity(
                    self.name,
                    command,
                    result_type=self.answered,
                    start_to_close_timeout=timedelta(seconds=2),
                    retry_policy=RetryPolicy(
                        maximum_attempts=3, non_retryable_error_types=list(self.non_retryable)
                    ),
                    summary=summary,
                )
        except (ActivityError, ApplicationError, OutOfTime) as failure:
            # A timeout is an ActivityError when it happens, and the bare cause in a replay.
            if is_cancelled_exception(failure):
                raise
            return await self(command, summary=summary)
        return answer

    def _options(self, command: Asked) -> dict[str, Any]:
        return {
            "result_type": self.answered,
            "task_queue": self.queue_of(command),
            "start_to_close_timeout": timedelta(seconds=self.start_to_close_s),
            "schedule_to_close_timeout": _seconds(self.schedule_to_close_s),
            "schedule_to_start_timeout": _seconds(self.schedule_to_start_s),
            "heartbeat_timeout": _seconds(self.heartbeat_s),
            "cancellation_type": _WAIT_COMPLETED if self.waits_for_cancellation else _TRY_CANCEL,
            "retry_policy": RetryPolicy(
                initial_interval=timedelta(seconds=self.retry_first_s),
                maximum_interval=timedelta(seconds=self.retry_max_s),
                maximum_attempts=self.attempts,
                non_retryable_error_types=list(self.non_retryable),
            ),
        }

    def queue_of(self, command: Asked) -> str:
        """The task queue that serves this command."""
        if isinstance(command, CloudCommand) and self.queue is not None:
            return queues.of_kind(self.queue, command.provider_kind)
        if self.queue is not None:
            return self.queue
        where = command.node if isinstance(command, SiteCommand) else command
        region_id, own_worker = getattr(where, "region_id"), getattr(where, "own_worker")  # noqa: B009
        site = queues.own_site(region_id) if own_worker else queues.SITE
        return queues.watches_of(site) if self.is_watch else site


def _retrieve(ended: "asyncio.Task[Any]") -> None:
    """Mark the failure of an ended activity as seen, so that asyncio does not log it as lost."""
    if not ended.cancelled():
        ended.exception()


def _seconds(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)
