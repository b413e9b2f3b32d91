"""Providers and regions."""

from workflows.contracts.base import Contract
from workflows.contracts.machines import OrphanedMachine
from workflows.contracts.statuses import ProviderKind, ProviderStatus


class Check(Contract):
    """One thing that was looked at while a provider was enabled."""

    name: str
    status: str
    """`passed`, `failed` or `warning`."""
    detail: str = ""
    """What was found."""
    fix: str = ""
    """What a person does about it: the role, the link, the command."""


class CloudResource(Contract):
    """One thing that a provider has once in its cloud, such as the network of its machines."""

    name: str
    """What of the provider it is, such as `network`; see `Traits.resources`."""
    path: str
    """What the cloud calls it; of one that could not be removed, why."""


class ProviderRequest(Contract):
    """Input of `provider/{id}`."""

    provider_id: str
    account_id: str
    kind: ProviderKind
    sequence: int = 0
    resumed_status: ProviderStatus | None = None
    resumed_reason: str | None = None
    known_orphans: tuple[OrphanedMachine, ...] = ()
    """Machines that no lease names, and of which people were told."""
    feed_error: str = ""
    """Why nothing is heard of its machines, as people were told."""
    price_trouble: str = ""
    """What was wrong with its prices, as it was told."""


class NotificationsRequest(Contract):
    """Input of `provider/{id}/notifications`."""

    provider_id: str
    kind: ProviderKind
    feed_error: str | None = None
    """What the provider was told last, see `FeedStatus`; None: nothing, or nobody knows."""


class NotificationsReport(Contract):
    provider_id: str
    feed_error: str | None = None


class FeedStatus(Contract):
    """Signal `feed_status` to a provider: whether its cloud's news of its machines comes to us."""

    feed_error: str = ""
    """Why it does not; empty: it does."""


class PricesState(Contract):
    """Signal `prices_state` to a provider: how its cloud's prices were read with its key."""

    trouble: str = ""
    """Why those that are known stay, all or some of them; empty: all were read."""


class ProviderReport(Contract):
    provider_id: str
    status: ProviderStatus
    status_reason: str | None = None


class Recheck(Contract):
    """A person wants every check run again."""
