"""The outages of a node: from the probe that fails until the node can be reached again."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial

from workflows.contracts.events import Event, NodeEvent
from workflows.contracts.lifecycles import Wake
from workflows.contracts.nodes import NodeNotice
from workflows.contracts.statuses import NodeStatus
from workflows.nodes.connection import NodeConnection, loss_type
from workflows.nodes.region import NodeRegion
from workflows.nodes.relocation import Relocation
from workflows.nodes.running_jobs import RunningJobs
from workflows.nodes.steps import NodeSteps
from workflows.primitives.failures import UNSERVED, cause_of
from workflows.primitives.inbox import Inbox
from workflows.primitives.waiting import wait_until, while_handling
from workflows.rules.nodes.onboarding import describe_loss

REFUSED_KEY_INTERVAL = timedelta(seconds=60)
LAST_REFUSED_KEY_INTERVAL = timedelta(minutes=10)
"""Between two tries of a node that shows another key: at first, and the longest."""


class Outage:
    """The outages of one node, one after another; an offline node keeps its jobs."""

    def __init__(
        self,
        steps: NodeSteps,
        region: NodeRegion,
        connection: NodeConnection,
        relocation: Relocation,
        running_jobs: RunningJobs,
    ) -> None:
        self._steps = steps
        self._region = region
        self._connection = connection
        self._relocation = relocation
        self._running_jobs = running_jobs
        self._pause = REFUSED_KEY_INTERVAL

    async def begin(self, failure: BaseException, symptom: str) -> None:
        """Record that the node is offline and notify its jobs; their runs are not ended.

        symptom: the failure before, which is shown where this one says nothing.
        """
        kind, message = cause_of(failure)
        reason = describe_loss(kind, message) or symptom
        if kind == UNSERVED:
            reason = f"no worker serves the site of {self._region.id} ({message})"
        self._steps.status = NodeStatus.OFFLINE
        await self._steps.write(Event(type=loss_type(failure), message=reason), reason=reason)
        await self._running_jobs.notify(NodeNotice.UNREACHABLE, reason)
        if kind == UNSERVED:
            await self._region.refresh()

    def begin_tries(self, inbox: Inbox) -> None:
        """Prepare for tries to reconnect, the first of which are close to each other."""
        self._relocation.start(inbox)
        self._pause = REFUSED_KEY_INTERVAL

    async def reconnect(self, inbox: Inbox) -> None:
        """Reconnect to the node, at its address or at an announced one.

        Announcements are verified beside the tries at the node's own address, which they therefore
        never hold up.

        Raises: the failure of the last try; Interrupted, when the node has moved, or its history
        is long.
        """
        await while_handling(
            self._connection.reconnect(),
            partial(inbox.holds, Wake),
            partial(self._relocation.follow, inbox),
        )

    async def wait_after(self, failure: BaseException, is_news: Callable[[], bool]) -> None:
        """Record why the reconnection failed, and wait before the next; runs are not touched.

        is_news: whether a message has arrived that ends the pause.
        """
        kind, message = cause_of(failure)
        reason = describe_loss(kind, message)
        if self._steps.reason != reason:
            event = Event(type=loss_type(failure), message=reason, details={"cause": kind})
            await self._steps.write(event, reason=reason)
        await wait_until(is_news, self._pause, "before the next try")
        self._pause = min(2 * self._pause, LAST_REFUSED_KEY_INTERVAL)

    async def repeat_tries(self, inbox: Inbox) -> None:
        """Prepare for the next try to reconnect, also at an announced address."""
        await self._relocation.try_again(inbox)

    async def end(self) -> None:
        """Record that the node can be reached again, and notify its jobs."""
        self._steps.status = self._steps.resume_status
        back = Event(type=NodeEvent.BACK, message="can be reached again")
        await self._steps.write(back, reason=self._steps.withheld)
        await self._running_jobs.notify(NodeNotice.REACHABLE)
