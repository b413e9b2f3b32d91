"""Effects of a machine that costs money: made, looked at, given back; what is short; its holder."""

from workflows.contracts.base import Contract, Done
from workflows.contracts.errors import NON_RETRYABLE_AT_PROVIDERS
from workflows.contracts.machines import MachineObservation, MachineOffer, MachineSpec, Shortage
from workflows.contracts.statuses import ProviderKind
from workflows.effects.effect import HEARTBEAT_S, Effect


class NamedMachine(Contract):
    """A machine by the name that its lease gave it."""

    lease_id: str
    provider_id: str
    provider_kind: ProviderKind
    machine_name: str
    zone: str = ""


class CreateMachine(NamedMachine):
    """Find it by its name, else make it."""

    offer: MachineOffer
    spec: MachineSpec


class DescribeMachine(NamedMachine):
    pass


class TerminateMachine(NamedMachine):
    """End it; answered when the provider says that it is gone."""

    provider_machine_id: str | None = None
    """By it the provider may still say since when and until when a machine cost that is gone."""
    was_unseen: bool = False
    """It may have been there although nobody saw it: the last of its name there is meant."""


class TerminateOrphanedMachine(Contract):
    """End a machine that no lease names; refused when there is one that does."""

    provider_id: str
    provider_kind: ProviderKind
    machine_name: str
    zone: str


class FindShortages(Contract):
    provider_id: str


class ShortagesFound(Contract):
    shortages: tuple[Shortage, ...] = ()


class RememberShortage(Contract):
    provider_id: str
    scope: str
    reason: str


"""What a provider has decided; all else is asked again."""

create_machine = Effect(
    "create_machine",
    CreateMachine,
    MachineObservation,
    start_to_close_s=300,
    schedule_to_close_s=900,
    heartbeat_s=HEARTBEAT_S,
    non_retryable=NON_RETRYABLE_AT_PROVIDERS,
    waits_for_cancellation=True,
)
"""Given up, it is left only when its attempt is over: nothing is made behind its release."""

describe_machine = Effect(
    "describe_machine",
    DescribeMachine,
    MachineObservation,
    start_to_close_s=60,
    schedule_to_close_s=600,
    heartbeat_s=HEARTBEAT_S,
    non_retryable=NON_RETRYABLE_AT_PROVIDERS,
)

describe_machine_briefly = Effect(
    "describe_machine",
    DescribeMachine,
    MachineObservation,
    start_to_close_s=20,
    schedule_to_close_s=40,
    heartbeat_s=HEARTBEAT_S,
    attempts=2,
    non_retryable=NON_RETRYABLE_AT_PROVIDERS,
)
"""What it was, before its end is asked for; that does not wait for an answer."""

wait_for_machine = Effect(
    "wait_for_machine",
    DescribeMachine,
    MachineObservation,
    start_to_close_s=60,
    schedule_to_close_s=900,
    heartbeat_s=HEARTBEAT_S,
    retry_first_s=2,
    retry_max_s=10,
    non_retryable=NON_RETRYABLE_AT_PROVIDERS,
)
"""Until it has an address and a key, or is no more: `NotYet` is asked again by the engine."""

terminate_machine = Effect(
    "terminate_machine",
    TerminateMachine,
    MachineObservation,
    start_to_close_s=120,
    heartbeat_s=HEARTBEAT_S,
    retry_first_s=2,
    non_retryable=NON_RETRYABLE_AT_PROVIDERS,
)
"""For ever: it costs money until its provider says that it is gone."""

terminate_orphaned_machine = Effect(
    "terminate_orphaned_machine",
    TerminateOrphanedMachine,
    MachineObservation,
    start_to_close_s=120,
    schedule_to_close_s=900,
    heartbeat_s=HEARTBEAT_S,
    retry_first_s=2,
    non_retryable=NON_RETRYABLE_AT_PROVIDERS,
)
"""Answered when its provider says that it is gone."""

find_shortages = Effect("find_shortages", FindShortages, ShortagesFound)

remember_shortage = Effect("remember_shortage", RememberShortage, Done)
