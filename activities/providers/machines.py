"""The activities that create, describe and terminate machines at their providers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.providers.base import Driver, NotYet, ProviderError
from activities.providers.calls import call_provider
from activities.providers.registry import driver_of
from workflows.contracts.machines import MachineObservation
from workflows.contracts.statuses import MachineState
from workflows.effects.machines import (
    CreateMachine,
    DescribeMachine,
    NamedMachine,
    TerminateMachine,
    TerminateOrphanedMachine,
)

GONE = MachineObservation(state=MachineState.GONE)

Found = TypeVar("Found")


@activity.defn
async def create_machine(command: CreateMachine) -> MachineObservation:
    """Find the machine by its name, or else create it; a retry finds what was created before."""
    return await asked_of(command, lambda driver: _find_or_create(driver, command))


@activity.defn
async def describe_machine(command: DescribeMachine) -> MachineObservation:
    """The provider's observation of the machine; gone, when no machine has the name."""
    return await asked_of(command, lambda driver: _find(driver, command) or GONE)


@activity.defn
async def wait_for_machine(command: DescribeMachine) -> MachineObservation:
    """The observation of a machine that is reachable, or will never be.

    Raises: NotYet, while the machine is being created or is not reachable.
    """

    def observe(driver: Driver) -> MachineObservation:
        observation = _find(driver, command) or GONE
        state = observation.state
        if state is MachineState.MAKING or (
            state is MachineState.RUNNING and not observation.is_reachable
        ):
            why = observation.reason or "no address or no host key yet"
            raise NotYet(f"{command.machine_name}: {state}, {why}")
        return observation

    return await asked_of(command, observe)


@activity.defn
async def terminate_machine(command: TerminateMachine) -> MachineObservation:
    """Terminate the machine, and return its billed period.

    Raises: NotYet, while the provider still lists the machine.
    """

    def terminate(driver: Driver) -> MachineObservation:
        driver.terminate(command.machine_name, command.zone)
        if (left := _find(driver, command)) is not None:
            raise NotYet(f"{command.machine_name}: the machine is {left.state}, and not gone")
        return _billed_period(driver, command)

    return await asked_of(command, terminate)


def _billed_period(driver: Driver, command: TerminateMachine) -> MachineObservation:
    """The billed period of a machine that is gone; without times when they are not available."""
    if command.provider_machine_id is None and not command.was_unseen:
        return GONE
    try:
        return driver.billed_period(command.machine_name, command.zone, command.provider_machine_id)
    except ProviderError as error:
        activity.logger.warning("%s is gone, but not when: %s", command.machine_name, error)
        return GONE


def _find_or_create(driver: Driver, command: CreateMachine) -> MachineObservation:
    """Raises: NotYet, while a machine that was created for an earlier offer has the name."""
    found = _find(driver, command)
    if found is None:
        found = driver.create(command.machine_name, command.offer, command.spec)
    if found.offer_label in ("", command.offer.label):
        return found
    # An earlier insert took effect late. Its machine is of another offer, and is not used.
    driver.terminate(command.machine_name, command.zone)
    raise NotYet(
        f"{command.machine_name}: created as {found.offer_label}, and is being terminated first"
    )


def _find(driver: Driver, command: NamedMachine) -> MachineObservation | None:
    return driver.find(command.machine_name, command.zone)


async def asked_of(
    command: NamedMachine | TerminateOrphanedMachine, question: Callable[[Driver], Found]
) -> Found:
    """A provider's answer.

    Raises: ApplicationError, with the kind of the provider's error as its type.
    """
    with _translated_errors(command):
        return await call_provider(
            command.provider_id,
            lambda: question(driver_of(command.provider_kind, command.provider_id)),
        )


@contextmanager
def _translated_errors(command: NamedMachine | TerminateOrphanedMachine) -> Iterator[None]:
    try:
        yield
    except ProviderError as error:
        raise ApplicationError(f"{command.machine_name}: {error}", type=error.kind) from error
