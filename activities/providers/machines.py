"""Machines at their providers: found or made, looked at, ended and seen to be gone."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from typing import TypeVar

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.providers.base import Driver, NotYet, ProviderError
from activities.providers.registry import driver_of
from activities.temporal.heartbeats import heartbeating
from workflows.contracts.machines import MachineObservation
from workflows.contracts.statuses import MachineState
from workflows.effects.machines import (
    CreateMachine,
    DescribeMachine,
    NamedMachine,
    TerminateMachine,
    TerminateOrphanedMachine,
)

CALLS_AT_ONCE = 64
"""As many as this worker's activities: none waits for a thread while its limit runs."""
GONE = MachineObservation(state=MachineState.GONE)

Found = TypeVar("Found")


@activity.defn
async def create_machine(command: CreateMachine) -> MachineObservation:
    """Find it by its name, else make it; what came of an answer that was lost is found again."""
    return await asked_of(command, lambda driver: _find_or_create(driver, command))


@activity.defn
async def describe_machine(command: DescribeMachine) -> MachineObservation:
    """What its provider says of it; gone, when there is none of that name."""
    return await asked_of(command, lambda driver: _find(driver, command) or GONE)


@activity.defn
async def wait_for_machine(command: DescribeMachine) -> MachineObservation:
    """As `describe_machine`, once it can be reached or never will be. Raises: NotYet."""

    def look(driver: Driver) -> MachineObservation:
        seen = _find(driver, command) or GONE
        on_its_way = seen.state is MachineState.MAKING
        if on_its_way or (seen.state is MachineState.RUNNING and not seen.is_reachable):
            why = seen.reason or "no address or no host key yet"
            raise NotYet(f"{command.machine_name}: {seen.state}, {why}")
        return seen

    return await asked_of(command, look)


@activity.defn
async def terminate_machine(command: TerminateMachine) -> MachineObservation:
    """End it, whatever else can be known of it. Raises: NotYet, while its provider knows it."""

    def terminate(driver: Driver) -> MachineObservation:
        driver.terminate(command.machine_name, command.zone)
        if (left := _find(driver, command)) is not None:
            raise NotYet(f"{command.machine_name}: it is {left.state}, and not gone")
        return _billed_period(driver, command)

    return await asked_of(command, terminate)


def _billed_period(driver: Driver, command: TerminateMachine) -> MachineObservation:
    """It is gone: since when and until when it cost, where that can be had without more ado."""
    if command.provider_machine_id is None and not command.was_unseen:
        return GONE
    try:
        return driver.billed_period(command.machine_name, command.zone, command.provider_machine_id)
    except ProviderError as error:
        activity.logger.warning("%s is gone, but not when: %s", command.machine_name, error)
        return GONE


def _find_or_create(driver: Driver, command: CreateMachine) -> MachineObservation:
    """Raises: NotYet, while a machine that was made for an earlier offer is in the way."""
    seen = _find(driver, command)
    if seen is None:
        seen = driver.create(command.machine_name, command.offer, command.spec)
    if seen.offer_label in ("", command.offer.label):
        return seen
    # Its insert was lost and came late: it is not what is asked for now, and nobody wants it.
    driver.terminate(command.machine_name, command.zone)
    raise NotYet(f"{command.machine_name}: it was made as {seen.offer_label}, and is ended first")


def _find(driver: Driver, command: NamedMachine) -> MachineObservation | None:
    return driver.find(command.machine_name, command.zone)


async def asked_of(
    command: NamedMachine | TerminateOrphanedMachine, question: Callable[[Driver], Found]
) -> Found:
    """A provider's answer, or its refusal as the workflow knows it."""
    async with heartbeating():
        with _translated_errors(command):
            return await _to_its_end(
                lambda: question(driver_of(command.provider_kind, command.provider_id))
            )


async def _to_its_end(question: Callable[[], Found]) -> Found:
    """In a thread, which nobody can stop: given up, it is left when it is over, and not before.

    What is made by a call that was given up would else be made behind its release. One that has
    not begun never does.
    """
    work = provider_threads().submit(question)
    try:
        return await asyncio.shield(asyncio.wrap_future(work))
    except asyncio.CancelledError:
        if not work.cancel():
            await asyncio.wait([asyncio.wrap_future(work)])
        raise


@lru_cache(maxsize=1)
def provider_threads() -> ThreadPoolExecutor:
    """Of their own: providers answer in a minute, and rows are not to wait for them, nor is a
    process that stops.
    """
    return ThreadPoolExecutor(CALLS_AT_ONCE, thread_name_prefix="providers")


@contextmanager
def _translated_errors(command: NamedMachine | TerminateOrphanedMachine) -> Iterator[None]:
    try:
        yield
    except ProviderError as error:
        raise ApplicationError(f"{command.machine_name}: {error}", type=error.kind) from error
