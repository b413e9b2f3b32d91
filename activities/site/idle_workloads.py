"""Signals from the watch of a node to the node's lifecycle about its idle workload."""

import asyncio
import contextlib
import time
from types import TracebackType
from typing import Self

from temporalio import activity
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

from activities.site.answers.frames import IdleWorkloadFrame
from activities.temporal.client import tell
from workflows.contracts.nodes import IdleWorkloadFacts, IdleWorkloadReported

CHANGE_PAUSE_S = 60.0
"""Between two signals, when the state, the revision or the reason has changed."""
FIGURES_PAUSE_S = 300.0
"""Between two signals, when only the seconds or the energy have changed."""


class IdleWorkloadSignals:
    """What one node says of its idle workload, signalled to its lifecycle when that has changed.

    However often the node says something, its lifecycle hears of it twelve times an hour, or sixty
    times when the state changes each time. A signal that fails is sent again with a later frame.
    """

    def __init__(self, node_id: str) -> None:
        self._node_id = node_id
        self._sent: IdleWorkloadReported | None = None
        self._sent_s = 0.0
        self._under_way: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._under_way is not None:
            self._under_way.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._under_way

    def note(self, frame: IdleWorkloadFrame) -> None:
        """Signal what the frame says, if that is due."""
        is_under_way = self._under_way is not None and not self._under_way.done()
        facts = IdleWorkloadFacts(**frame.model_dump(exclude={"kind", "revision"}))
        report = IdleWorkloadReported(revision=frame.revision, facts=facts)
        if not is_under_way and self._is_due(report):
            self._sent_s = time.monotonic()
            self._under_way = asyncio.create_task(self._send(report))

    def _is_due(self, report: IdleWorkloadReported) -> bool:
        if report == self._sent:
            return False
        if self._sent is None:
            return not self._sent_s or time.monotonic() >= self._sent_s + CHANGE_PAUSE_S
        is_changed = _kind_of(report) != _kind_of(self._sent)
        pause_s = CHANGE_PAUSE_S if is_changed else FIGURES_PAUSE_S
        return time.monotonic() >= self._sent_s + pause_s

    async def _send(self, report: IdleWorkloadReported) -> None:
        try:
            await tell(f"node/{self._node_id}", "idle_workload_reported", report)
        except (RPCError, ApplicationError) as error:
            activity.logger.warning("node %s: its idle workload: %s", self._node_id, error)
        else:
            self._sent = report


def _kind_of(report: IdleWorkloadReported) -> tuple[str, ...]:
    return report.revision, report.facts.state, report.facts.reason
