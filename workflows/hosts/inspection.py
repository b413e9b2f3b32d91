"""The inspection of a host: its hardware, compared with what is required of it."""

from collections.abc import Callable
from datetime import timedelta

from temporalio import workflow

from workflows.contracts.events import Event
from workflows.contracts.hosts import HostRequest
from workflows.contracts.lifecycles import HostChanges
from workflows.contracts.nodes import Hardware, Requirement
from workflows.effects.nodes import InspectNode, inspect_again, inspect_node
from workflows.hosts.location import HostLocation
from workflows.hosts.steps import ChangeWriter
from workflows.rules.nodes.onboarding import missed_of, summary_of

DRIVERS_LIMIT = timedelta(minutes=30)
DRIVERS_POLL_MIN = timedelta(seconds=10)
DRIVERS_POLL_MAX = timedelta(minutes=1)


class Inspection:
    """The inspection of one host.

    record: writes changes and events that leave the host's status as it is; requirements: those of
    the host, each with what was found.
    """

    def __init__(
        self,
        request: HostRequest,
        location: HostLocation,
        record: ChangeWriter,
        requirements: Callable[[Hardware], tuple[Requirement, ...]],
    ) -> None:
        self._events = request.events
        self._location = location
        self._record = record
        self._requirements = requirements
        self._last: Hardware | None = None

    @property
    def asks_for_a_restart(self) -> bool:
        return self._last is not None and self._last.reboot_required

    async def first(
        self, lacking: Callable[[Hardware], str], *, waits: bool = True, tries_speeds: bool = False
    ) -> str:
        """Inspect the host, and return the requirements that it misses; empty: none.

        lacking: what the machine was created with and does not have yet. The inspection waits for
        that if `waits`, because the drivers of GPUs are installed during the first boot of a
        machine.
        tries_speeds: whether the machine tries how fast its disk and its CPU are.
        """
        limit = DRIVERS_LIMIT if waits else timedelta(0)
        deadline, pause = workflow.now() + limit, DRIVERS_POLL_MIN
        hardware = await self._inspect(tries_speeds=tries_speeds)
        while (lacks := lacking(hardware)) and workflow.now() < deadline:
            if pause == DRIVERS_POLL_MIN:
                await self._record(
                    HostChanges(), (Event(type=self._events.incomplete, message=lacks),)
                )
            await workflow.sleep(pause, summary=lacks)
            pause = min(2 * pause, DRIVERS_POLL_MAX)
            hardware = await self._inspect()
        return await self._evaluate(hardware) or lacks

    async def _inspect(self, *, tries_speeds: bool = False) -> Hardware:
        command = InspectNode(node=self._location.address(), tries_speeds=tries_speeds)
        return (await inspect_node(command)).hardware

    async def again(self) -> str:
        """Inspect a host in use, with a shorter limit; record an event when its hardware changed.

        Returns the requirements that the host misses, empty when there are none.
        """
        command = InspectNode(node=self._location.address())
        return await self._evaluate((await inspect_again(command)).hardware)

    async def _evaluate(self, hardware: Hardware) -> str:
        requirements = self._requirements(hardware)
        before, self._last = self._last, hardware
        self._location.inspected_boot_id = self._location.boot_id
        is_new = before is None or summary_of(before) != summary_of(hardware)
        events = (
            (Event(type=self._events.inspected, message=summary_of(hardware)),) if is_new else ()
        )
        await self._record(HostChanges(hardware=hardware, requirements=requirements), events)
        return missed_of(requirements)
