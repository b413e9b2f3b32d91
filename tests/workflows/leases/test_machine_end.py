"""The machine of a lease is terminated for certain, and never that of a later offer."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from temporalio.exceptions import ApplicationError

from tests.simulation.contracts import Attempt, Handler
from tests.waiting import eventually
from tests.workflows.conftest import Stage
from tests.workflows.jobs.test_races import Gate
from tests.workflows.leases.test_lease_lifecycle import LEASE, NAME, lease, offer, reaches
from tests.workflows.leases.test_machine import OFFER, REQUEST, seen
from tests.workflows.primitives.played import ID, played
from workflows.contracts import errors
from workflows.contracts.base import Contract
from workflows.contracts.events import Event
from workflows.contracts.leases import LeaseRelease
from workflows.contracts.machines import MachineObservation
from workflows.contracts.statuses import LeaseStatus, MachineState
from workflows.effects.machines import DescribeMachine, TerminateMachine
from workflows.leases.lease_lifecycle import LeaseLifecycle
from workflows.leases.machine import Machine
from workflows.leases.machine_end import MachineEnd
from workflows.primitives.journal import RESOURCE_STATUS, STALE, Journal


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    interval = "workflows.leases.machine_end.TERMINATION_INTERVAL"
    monkeypatch.setattr(interval, timedelta(milliseconds=50))


async def refuse(_: Contract) -> None:
    raise ApplicationError("not reachable over SSH", type=errors.REFUSED)


async def test_a_workflow_that_is_restored_in_an_earlier_offer_leaves_the_machine_of_the_present(
    stage: Stage,
) -> None:
    stage.world.faults["reach_node"].append(refuse)
    gate = Gate(stage, "terminate_machine")
    larger = offer("zone-a").model_copy(update={"machine_type": "larger"})
    handle = await lease(stage, offer("zone-a"), larger)
    await gate.entered()
    row = stage.world.rows[LEASE]  # The lease has gone on, with a machine of its second offer.
    ahead = {"sequence": row.sequence + 7, "status": "ready"}
    stage.world.rows[LEASE] = row.model_copy(update=ahead)
    gate.open()

    async def is_decided() -> bool:
        found = await handle.describe()
        is_stale = found.typed_search_attributes.get(RESOURCE_STATUS) == STALE
        return is_stale or not stage.world.cloud.machines

    await eventually(is_decided, "the reconciliation can tell that its row is ahead")
    assert list(stage.world.cloud.machines) == [(NAME, "zone-a")]


async def test_a_workflow_that_is_restored_in_an_earlier_offer_creates_no_other_machine(
    stage: Stage,
) -> None:
    gate = Gate(stage, "create_machine")
    handle = await lease(stage, offer("zone-a"), offer("zone-b"))
    await gate.entered()
    row = stage.world.rows[LEASE]  # The lease has gone on, with a machine of its second offer.
    ahead = {"sequence": row.sequence + 7, "status": "ready"}
    stage.world.rows[LEASE] = row.model_copy(update=ahead)
    gate.open()

    async def is_stale() -> bool:
        found = await handle.describe()
        return found.typed_search_attributes.get(RESOURCE_STATUS) == STALE

    await eventually(is_stale, "the reconciliation can tell that its row is ahead")
    assert stage.world.cloud.made == {}


async def test_a_release_while_a_machine_is_created_does_not_keep_it(stage: Stage) -> None:
    """The release is a step of the same workflow, before which the creation was asked for."""
    gate = Gate(stage, "create_machine")
    handle = await lease(stage, offer("zone-a"), offer("zone-b"))
    await gate.entered()
    await handle.signal(LeaseLifecycle.release, LeaseRelease(reason="its job has ended"))
    await reaches(stage, LeaseStatus.RELEASING)
    gate.open()
    report = await handle.result()
    assert (report.status, report.status_reason) == ("released", "its job has ended")
    assert stage.world.cloud.machines == {}


async def test_a_release_while_a_machine_is_terminated_does_not_keep_it(stage: Stage) -> None:
    """The release is a step of the same workflow, after which the termination is told of it."""
    stage.world.faults["reach_node"].append(refuse)
    gate = Gate(stage, "terminate_machine")
    handle = await lease(stage)
    await gate.entered()
    await handle.signal(LeaseLifecycle.release, LeaseRelease(reason="its job has ended"))
    await reaches(stage, LeaseStatus.RELEASING)
    gate.open()
    report = await handle.result()
    assert (report.status, report.status_reason) == ("released", "its job has ended")
    assert stage.world.cloud.machines == {}
    assert "lease.not-released" not in stage.world.events[LEASE]


GONE = MachineObservation(state=MachineState.GONE)


class Cloud:
    """A provider that ends a machine at last, and what the lease has recorded meanwhile."""

    def __init__(
        self, *answers: MachineObservation | str, found: MachineObservation | None
    ) -> None:
        self.commands: list[TerminateMachine] = []
        self.recorded: list[tuple[str, str, str | None]] = []
        self.ended: MachineObservation | None = None
        self._answers, self._found = list(answers), found

    def play(
        self, was_seen: MachineObservation | None, between: Callable[[Journal], None] | None = None
    ) -> str:
        """The status of the workflow at last."""

        async def story() -> None:
            machine = Machine(REQUEST, None)
            machine.offer, machine.seen = OFFER, was_seen
            journal = Journal("lea-1", "acc-1", 4, "its job has ended")

            async def write(event: Event, *, reason: str | None = None) -> None:
                self.recorded.append((event.type, event.message, reason))
                if between is not None:
                    between(journal)

            async def observe(found: MachineObservation) -> None:
                machine.observe(found)

            self._between, self._journal = between, journal
            self.ended = await MachineEnd(machine, journal, write, observe).terminate()

        effects: dict[str, Handler] = {
            "terminate_machine": self._terminate,
            "describe_machine": self._describe,
        }
        return played(story, effects, most_s=24 * 3600).describe(ID).status

    def _terminate(self, _: Attempt, command: TerminateMachine) -> MachineObservation:
        self.commands.append(command)
        if self._between is not None:
            self._between(self._journal)
        answer = self._answers.pop(0)
        if isinstance(answer, str):
            raise ApplicationError("503", type=answer, non_retryable=True)
        return answer

    def _describe(self, _: Attempt, command: DescribeMachine) -> MachineObservation:
        if self._found is None:
            raise ApplicationError("no route", type=errors.REFUSED, non_retryable=True)
        return self._found


def test_a_machine_that_was_seen_is_terminated_by_its_id() -> None:
    cloud = Cloud(GONE, found=None)
    assert cloud.play(seen()) == "completed"
    (command,) = cloud.commands
    assert (command.provider_machine_id, command.was_unseen) == ("vm-1", False)
    assert (command.machine_name, command.zone, command.sequence) == (
        "baseload-lea-1", "zone-a", 4,
    )  # fmt: skip
    assert cloud.recorded == []
    assert cloud.ended is not None
    assert (cloud.ended.state, cloud.ended.provider_machine_id) == (MachineState.GONE, "vm-1")


def test_a_machine_that_was_never_seen_is_looked_at_for_its_cost() -> None:
    cloud = Cloud(GONE, found=seen(microcredits_per_hour=7))
    assert cloud.play(None) == "completed"
    (command,) = cloud.commands
    assert (command.provider_machine_id, command.was_unseen) == ("vm-1", False)
    assert cloud.ended is not None
    assert cloud.ended.microcredits_per_hour == 7


def test_a_machine_that_is_not_there_is_terminated_as_unseen() -> None:
    cloud = Cloud(GONE, found=GONE)
    assert cloud.play(None) == "completed"
    (command,) = cloud.commands
    assert (command.provider_machine_id, command.was_unseen) == (None, False)


def test_a_machine_that_cannot_be_looked_at_has_an_unknown_cost() -> None:
    cloud = Cloud(GONE, found=None)
    assert cloud.play(None) == "completed"
    assert [command.was_unseen for command in cloud.commands] == [True]
    assert cloud.recorded == [
        ("lease.cost-unknown", "the cost of the machine is unknown: no route", "its job has ended")
    ]


def test_people_are_told_once_of_a_machine_that_may_still_cost_money() -> None:
    cloud = Cloud(*[errors.UNAVAILABLE] * 3, GONE, found=None)
    assert cloud.play(seen()) == "completed"
    told = "the machine could not be terminated and may still cost money: 503"
    assert cloud.recorded == [("lease.not-released", told, told)]
    assert len(cloud.commands) == 4


def test_how_a_machine_ended_otherwise_is_told() -> None:
    otherwise = GONE.model_copy(update={"reason": "its project is gone"})
    cloud = Cloud(otherwise, found=None)
    assert cloud.play(seen()) == "completed"
    assert cloud.recorded == [
        ("lease.terminated-otherwise", "its project is gone", "its job has ended")
    ]


def test_a_termination_stops_when_the_row_has_a_step_of_another() -> None:
    cloud = Cloud(errors.STALE, GONE, found=None)
    assert cloud.play(seen()) == "running"
    assert len(cloud.commands) == 1


def test_a_termination_goes_on_when_the_step_was_its_own() -> None:
    def steps(journal: Journal) -> None:
        journal.sequence += 1

    cloud = Cloud(errors.STALE, GONE, found=None)
    assert cloud.play(seen(), steps) == "completed"
    assert [command.sequence for command in cloud.commands] == [4, 5]
    assert cloud.recorded == []
