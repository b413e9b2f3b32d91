"""The activities that create, describe and terminate machines at their providers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.db.session import database
from activities.db.tables import Lease
from activities.providers.base import Driver, NotYet, ProviderError
from activities.providers.call_slots import urgent
from activities.providers.calls import call_provider
from activities.providers.deletions import AcceptedDeletion, NamesNoEnd
from activities.providers.registry import driver_of
from activities.providers.renting import confirm_offer
from workflows.contracts.errors import STALE
from workflows.contracts.machines import MachineObservation
from workflows.contracts.statuses import MachineState
from workflows.effects.machines import (
    CreateMachine,
    DescribeMachine,
    NamedMachine,
    TerminateMachine,
    TerminateOrphanedMachine,
)
from workflows.effects.providers import ListOwnedMachines, OwnedMachinesListed

GONE = MachineObservation(state=MachineState.GONE)
PERIOD_LIMIT = timedelta(minutes=2)
"""How long the billed period of a machine that is gone is asked for."""
LONGEST_PAUSE = timedelta(minutes=5)
"""How long a provider may have a call wait that it refuses as one too many."""

Found = TypeVar("Found")


@activity.defn
async def create_machine(command: CreateMachine) -> MachineObservation:
    """Find the machine by its name, or else create it; a retry finds what was created before.

    Raises: NotYet, while a machine that was created for an earlier offer has the name; Stale, when
    the lease's row is ahead of the command.
    """

    def create(driver: Driver) -> MachineObservation:
        _raise_if_stale(command, "create")
        return _find_or_create(driver, command)

    return await asked_of(command, create)


@activity.defn
async def describe_machine(command: DescribeMachine) -> MachineObservation:
    """The provider's observation of the machine; gone, when no machine has the name."""
    return await asked_of(command, lambda driver: _find(driver, command) or GONE)


@activity.defn
async def wait_for_machine(command: DescribeMachine) -> MachineObservation:
    """The observation of a machine that is reachable, or will never be.

    Raises: NotYet, while the machine is being created or is not reachable yet.
    """

    def observe(driver: Driver) -> MachineObservation:
        observation = _find(driver, command) or GONE
        state = observation.state
        if state is MachineState.MAKING or (
            state is MachineState.RUNNING
            and not observation.is_reachable
            and not _is_internal_alone(observation)
        ):
            why = observation.reason or "no address or no host key yet"
            raise NotYet(f"{command.machine_name}: {state}, {why}")
        return observation

    return await asked_of(command, observe)


@activity.defn
async def terminate_machine(command: TerminateMachine) -> MachineObservation:
    """Terminate the machine, and return its billed period, with the driver's remark as the reason.

    Raises: NotYet, while the provider still lists the machine, or cannot say yet when it ended;
    Stale, when the lease's row is ahead of the command.
    """
    # An earlier attempt leaves its remark in its last heartbeat.
    remarks = [str(each) for each in activity.info().heartbeat_details]

    def terminate(driver: Driver) -> MachineObservation:
        _raise_if_stale(command, "terminate")
        if isinstance(driver, NamesNoEnd):
            driver.carry_out = deletion.carry_out
        with urgent():
            if remark := driver.terminate(command.machine_name, command.zone):
                remarks[:] = [remark]
            left = _find(driver, command)
        if left is not None:
            raise NotYet(f"{command.machine_name}: the machine is {left.state}, and not gone")
        if isinstance(driver, NamesNoEnd):
            return GONE.model_copy(update={"ended_at": deletion.at()})
        return _billed_period(driver, command, or_none=waited > PERIOD_LIMIT)

    deletion = AcceptedDeletion(command.lease_id)
    waited = datetime.now(UTC) - activity.info().scheduled_time
    try:
        gone = await asked_of(command, terminate)
    except ApplicationError:
        activity.heartbeat(*remarks)
        raise
    return gone.model_copy(update={"reason": "".join(remarks)})


@activity.defn
async def list_owned_machines(command: ListOwnedMachines) -> OwnedMachinesListed:
    """The names of a provider's machines that carry our ownership label, whatever their state.

    Raises: ApplicationError, with the kind of the provider's error as its type.
    """
    try:
        owned = await call_provider(
            command.provider_id,
            lambda: driver_of(command.provider_kind, command.provider_id).list_owned(),
        )
    except ProviderError as error:
        raise ApplicationError(str(error), type=error.kind) from error
    return OwnedMachinesListed(names=tuple(sorted(machine.machine_name for machine in owned)))


def _raise_if_stale(command: CreateMachine | TerminateMachine, verb: str) -> None:
    """Raises: Stale, when the lease's row is ahead of the command: then a newer workflow run owns
    the machine of this name, which may be of a later offer.

    verb: what the command asks, for the message.
    """
    if not command.sequence:
        return
    with database().read() as session:
        row = session.get(Lease, command.lease_id)
    if row is not None and row.sequence > command.sequence:
        raise ApplicationError(
            f"{command.lease_id}: asked to {verb} its machine in step {command.sequence}, its row "
            f"has step {row.sequence}",
            type=STALE,
            non_retryable=True,
        )


def _billed_period(
    driver: Driver, command: TerminateMachine, *, or_none: bool
) -> MachineObservation:
    """The billed period of a machine that is gone.

    or_none: without its times where the provider does not answer; else that is tried again, because
    a lease whose machine's end is unknown is billed until now.

    Raises: NotYet, when the provider does not answer.
    """
    if command.provider_machine_id is None and not command.was_unseen:
        return GONE
    try:
        return driver.billed_period(command.machine_name, command.zone, command.provider_machine_id)
    except ProviderError as error:
        if not or_none:
            raise NotYet(f"{command.machine_name}: gone, not known since when: {error}") from error
        activity.logger.warning("%s is gone, but not when: %s", command.machine_name, error)
        return GONE


def _find_or_create(driver: Driver, command: CreateMachine) -> MachineObservation:
    """Raises: NotYet, while a machine that was created for an earlier offer has the name;
    CapacityExhausted, PriceCap, as `confirm_offer`."""
    found = _find(driver, command)
    if found is None:
        confirm_offer(command)
        _raise_if_stale(command, "create")  # It may have waited for its turn for long.
        if isinstance(driver, NamesNoEnd):
            AcceptedDeletion(command.lease_id).forget()  # Of an earlier machine.
        created = driver.create(command.machine_name, command.offer, command.spec)
        found = _reached(created, command)
    if found.offer_label in ("", command.offer.label):
        return found
    # An earlier insert took effect late. Its machine is of another offer, and is not used.
    driver.terminate(command.machine_name, command.zone)
    raise NotYet(
        f"{command.machine_name}: created as {found.offer_label}, and is being terminated first"
    )


def _find(driver: Driver, command: NamedMachine) -> MachineObservation | None:
    found = driver.find(command.machine_name, command.zone)
    return None if found is None else _reached(found, command)


def _reached(found: MachineObservation, command: NamedMachine) -> MachineObservation:
    """The observation with the address at which the machine's region reaches it, or why not."""
    if found.host is not None or found.internal_host is None:
        return found
    if command.uses_internal_addresses:
        return found.model_copy(update={"host": found.internal_host})
    reason = (
        f"{command.machine_name}: has no external address, and its region does not use internal "
        f"ones (uses_internal_addresses); found {found.internal_host}"
    )
    return found.model_copy(update={"reason": found.reason or reason})


def _is_internal_alone(seen: MachineObservation) -> bool:
    """Whether a machine has booted, as its host key shows, and has only an internal address."""
    return seen.host is None and seen.internal_host is not None and seen.minion_id is not None


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
        raise ApplicationError(
            f"{command.machine_name}: {error}",
            type=error.kind,
            next_retry_delay=_delay_of(error),
        ) from error


def _delay_of(error: ProviderError) -> timedelta | None:
    """The pause that a provider asks for, at most `LONGEST_PAUSE`; None: Temporal's own."""
    if error.retry_after_s is None:
        return None
    return timedelta(seconds=min(error.retry_after_s, LONGEST_PAUSE.total_seconds()))
