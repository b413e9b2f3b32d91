"""Effects of a lease at its provider: create, describe and terminate a machine; shortages."""

from workflows.contracts import queues
from workflows.contracts.base import Contract, Done
from workflows.contracts.errors import NON_RETRYABLE_AT_PROVIDERS
from workflows.contracts.machines import MachineObservation, MachineOffer, MachineSpec, Shortage
from workflows.effects.effect import HEARTBEAT_S, CloudCommand, Effect


class NamedMachine(CloudCommand):
    """A machine, identified by the name that its lease gave it."""

    lease_id: str
    provider_id: str
    machine_name: str
    zone: str = ""
    uses_internal_addresses: bool = False
    """Whether a machine without an external address is reached at its internal one."""


class CreateMachine(NamedMachine):
    """Find the machine by its name, or create it."""

    offer: MachineOffer
    spec: MachineSpec
    price_cap_microcredits_per_hour: int | None = None
    """The most that a rental offer may cost, which is read again before; None: no cap, or an
    earlier release has not said it."""
    sequence: int = 0
    """As that of `TerminateMachine`; the lease may have a machine of a later offer already."""


class DescribeMachine(NamedMachine):
    pass


class TerminateMachine(NamedMachine):
    """Terminate the machine, and answer when the provider says that the machine is gone."""

    provider_machine_id: str | None = None
    """The provider's id, by which it may still say from when to when a gone machine cost money."""
    was_unseen: bool = False
    """Whether the machine may have existed without an observation of it. Then the billed period of
    the last machine of this name is returned."""
    sequence: int = 0
    """The sequence of the lease's last recorded step. If the row is ahead, the command fails as
    `Stale`, because the machine of this name may be of a later offer. 0: an earlier release has not
    said it."""


class TerminateOrphanedMachine(CloudCommand):
    """Terminate an orphaned machine; refused when a lease names the machine after all."""

    provider_id: str
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
    kept_s: int | None = None
    """For how long it is remembered, in seconds; None: as long as a usual shortage."""


create_machine = Effect(
    "create_machine",
    CreateMachine,
    MachineObservation,
    queue=queues.CLOUD,
    start_to_close_s=300,
    schedule_to_close_s=1800,
    heartbeat_s=HEARTBEAT_S,
    non_retryable=NON_RETRYABLE_AT_PROVIDERS,
    waits_for_cancellation=True,
)
"""When cancelled, wait for the running attempt, because a machine that it creates later would
escape its release. The limit of all attempts leaves time for the slots: some thousand machines of
one provider may be asked for at once, and each is created for up to a minute."""

describe_machine = Effect(
    "describe_machine",
    DescribeMachine,
    MachineObservation,
    queue=queues.CLOUD,
    start_to_close_s=60,
    schedule_to_close_s=600,
    heartbeat_s=HEARTBEAT_S,
    non_retryable=NON_RETRYABLE_AT_PROVIDERS,
)

describe_machine_briefly = Effect(
    "describe_machine",
    DescribeMachine,
    MachineObservation,
    queue=queues.RELEASES,
    start_to_close_s=20,
    schedule_to_close_s=60,
    heartbeat_s=HEARTBEAT_S,
    non_retryable=NON_RETRYABLE_AT_PROVIDERS,
)
"""A last observation before the termination, which must not wait long for the answer."""

wait_for_machine = Effect(
    "wait_for_machine",
    DescribeMachine,
    MachineObservation,
    queue=queues.CLOUD,
    start_to_close_s=60,
    schedule_to_close_s=900,
    heartbeat_s=HEARTBEAT_S,
    retry_first_s=2,
    retry_max_s=10,
    non_retryable=NON_RETRYABLE_AT_PROVIDERS,
)
"""Wait until the machine has an address and a host key, or is gone; Temporal retries `NotYet`."""

wait_for_image_machine = Effect(
    "wait_for_machine",
    DescribeMachine,
    MachineObservation,
    queue=queues.CLOUD,
    start_to_close_s=60,
    schedule_to_close_s=1800,
    heartbeat_s=HEARTBEAT_S,
    retry_first_s=5,
    retry_max_s=20,
    non_retryable=NON_RETRYABLE_AT_PROVIDERS,
)
"""The same for a machine that first pulls its image, which takes minutes, at a marketplace, which
limits how often it may be asked."""

terminate_machine = Effect(
    "terminate_machine",
    TerminateMachine,
    MachineObservation,
    queue=queues.RELEASES,
    start_to_close_s=120,
    heartbeat_s=HEARTBEAT_S,
    retry_first_s=2,
    non_retryable=NON_RETRYABLE_AT_PROVIDERS,
)
"""No limit: the machine costs money until its provider says that the machine is gone."""

terminate_orphaned_machine = Effect(
    "terminate_orphaned_machine",
    TerminateOrphanedMachine,
    MachineObservation,
    queue=queues.RELEASES,
    start_to_close_s=120,
    schedule_to_close_s=900,
    heartbeat_s=HEARTBEAT_S,
    retry_first_s=2,
    non_retryable=NON_RETRYABLE_AT_PROVIDERS,
)
"""Answers when the provider says that the machine is gone."""

find_shortages = Effect("find_shortages", FindShortages, ShortagesFound)

remember_shortage = Effect("remember_shortage", RememberShortage, Done)
