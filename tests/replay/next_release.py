"""The workflows as a next release might have them: more steps, each behind a patch mark.

Each change adds commands of another kind: a job and a lease write an event, a node waits and looks
at its row, and the relay relays twice.
"""

from datetime import timedelta

from temporalio import workflow

from workers.registry import WORKFLOWS
from workflows.contracts.base import Done
from workflows.contracts.deployments import DeploymentReport, DeploymentRequest
from workflows.contracts.devices import DeviceAssignment, DeviceReport, DeviceRequest
from workflows.contracts.events import Event
from workflows.contracts.jobs import JobReport, JobRequest
from workflows.contracts.leases import LeaseReport, LeaseRequest
from workflows.contracts.machines import MachineOffer
from workflows.contracts.nodes import NodeReport, NodeRequest
from workflows.contracts.schedules import ReconciliationRequest
from workflows.devices.deployment_lifecycle import DeploymentLifecycle
from workflows.devices.device_lifecycle import DeviceLifecycle
from workflows.effects.reconciliation import RelayOutbox, relay_outbox
from workflows.jobs.job_lifecycle import JobLifecycle
from workflows.leases.lease_lifecycle import LeaseLifecycle
from workflows.nodes.node_lifecycle import NodeLifecycle
from workflows.reconciliation.reconcilers import RELAY_INTERVAL, OutboxRelay

NEW_STEP = "job.reviewed"
NEW_NODE_STEP = "node.reviewed"
NEW_LEASE_STEP = "lease.reviewed"
NEW_DEVICE_STEP = "device.reviewed"
NEW_DEPLOYMENT_STEP = "deployment.reviewed"
NEW_PATCHES = (
    "review-before-fetch",
    "review-before-release",
    "pause-before-tidying",
    "review-before-removal",
    "pause-before-an-offer",
    "relay-twice",
    "review-before-a-deployment",
    "review-before-the-next-devices",
)
REVIEW = timedelta(seconds=1)


def _step(name: str) -> Event:
    return Event(type=name, message="a step of the next release")


class _Reviewed(JobLifecycle):
    async def _review(self) -> None:
        await self._write(_step(NEW_STEP))


@workflow.defn(name="JobLifecycle")
class PatchedJob(_Reviewed):
    """A step before the data comes, and one before the end: both only where they are news."""

    @workflow.run
    async def run(self, request: JobRequest) -> JobReport:
        return await super().run(request)

    async def _stage(self) -> None:
        if workflow.patched("review-before-fetch"):
            await self._review()
        await super()._stage()

    async def _release(self) -> None:
        if workflow.patched("review-before-release"):
            await self._review()
        await super()._release()


@workflow.defn(name="JobLifecycle")
class UnpatchedJob(_Reviewed):
    """The same change as it must not be made."""

    @workflow.run
    async def run(self, request: JobRequest) -> JobReport:
        return await super().run(request)

    async def _stage(self) -> None:
        await self._review()
        await super()._stage()


@workflow.defn(name="NodeLifecycle")
class PatchedNode(NodeLifecycle):
    """A pause before each tidying, and a step before the end."""

    @workflow.run
    async def run(self, request: NodeRequest) -> NodeReport:
        return await super().run(request)

    async def _tidy(self) -> None:
        if workflow.patched("pause-before-tidying"):
            await workflow.sleep(REVIEW)
        await super()._tidy()

    async def _remove(self) -> None:
        if workflow.patched("review-before-removal"):
            await self._steps.record_event(_step(NEW_NODE_STEP))
        await super()._remove()


@workflow.defn(name="LeaseLifecycle")
class PatchedLease(LeaseLifecycle):
    """A pause before each offer is tried, and a step before the machine is released."""

    @workflow.run
    async def run(self, request: LeaseRequest) -> LeaseReport:
        return await super().run(request)

    async def _try(self, offer: MachineOffer) -> str | None:
        if workflow.patched("pause-before-an-offer"):
            await self._interruptible(workflow.sleep(REVIEW))
        return await super()._try(offer)

    async def _release(self) -> None:
        if workflow.patched("review-before-release"):
            await self._record_event(_step(NEW_LEASE_STEP))
        await super()._release()


class _ReviewedDevice(DeviceLifecycle):
    async def _review(self) -> None:
        await self._steps.record_event(_step(NEW_DEVICE_STEP))


@workflow.defn(name="DeviceLifecycle")
class PatchedDevice(_ReviewedDevice):
    """A step before each assignment is followed."""

    @workflow.run
    async def run(self, request: DeviceRequest) -> DeviceReport:
        return await super().run(request)

    async def _follow(self, assignment: DeviceAssignment) -> bool:
        if workflow.patched("review-before-a-deployment"):
            await self._review()
        return await super()._follow(assignment)


@workflow.defn(name="DeviceLifecycle")
class UnpatchedDevice(_ReviewedDevice):
    """The same change as it must not be made."""

    @workflow.run
    async def run(self, request: DeviceRequest) -> DeviceReport:
        return await super().run(request)

    async def _follow(self, assignment: DeviceAssignment) -> bool:
        await self._review()
        return await super()._follow(assignment)


@workflow.defn(name="DeploymentLifecycle")
class PatchedDeployment(DeploymentLifecycle):
    """A step before each look at its devices."""

    @workflow.run
    async def run(self, request: DeploymentRequest) -> DeploymentReport:
        return await super().run(request)

    async def _roll_out(self) -> None:
        if workflow.patched("review-before-the-next-devices"):
            await self._write(_step(NEW_DEPLOYMENT_STEP))
        await super()._roll_out()


@workflow.defn(name="OutboxRelay")
class PatchedRelay(OutboxRelay):
    """An endless loop, which has passed this step often before it is upgraded."""

    @workflow.run
    async def run(self, request: ReconciliationRequest) -> Done:
        while not workflow.info().is_continue_as_new_suggested():
            delivered = await relay_outbox.run_locally(RelayOutbox())
            if workflow.patched("relay-twice"):
                delivered = await relay_outbox.run_locally(RelayOutbox())
            if not delivered.more:
                await workflow.sleep(RELAY_INTERVAL, summary="next relay")
        workflow.continue_as_new(request)


def _with(*changed: type) -> tuple[type, ...]:
    """The workflows with these in the place of their base classes."""
    return tuple(next((new for new in changed if one in new.__mro__), one) for one in WORKFLOWS)


PATCHED = _with(
    PatchedJob, PatchedNode, PatchedLease, PatchedDevice, PatchedDeployment, PatchedRelay
)
UNPATCHED = _with(UnpatchedJob)
UNPATCHED_DEVICES = _with(UnpatchedDevice)
