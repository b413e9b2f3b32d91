"""Providers: their checks and cloud resources, and the input and signals of their lifecycle."""

from datetime import datetime

from workflows.contracts.base import Contract
from workflows.contracts.machines import OrphanedMachine
from workflows.contracts.removals import RemovalProgress
from workflows.contracts.statuses import ProviderKind, ProviderStatus


class Check(Contract):
    """The check of one thing while a provider is enabled."""

    name: str
    status: str
    """`passed`, `failed` or `warning`."""
    detail: str = ""
    """What the check found."""
    fix: str = ""
    """How a person mends it: the role, the link, the command."""


class CloudResource(Contract):
    """A cloud resource, which the platform creates once for a provider or a region."""

    name: str
    """What of the provider it is, such as `network`; see `Traits.resources`."""
    path: str
    """The cloud's own name of the resource; if it could not be removed, the reason."""


class ProviderRequest(Contract):
    """Input of `provider/{id}`."""

    provider_id: str
    account_id: str
    kind: ProviderKind
    sequence: int = 0
    resumed_status: ProviderStatus | None = None
    resumed_reason: str | None = None
    known_orphans: tuple[OrphanedMachine, ...] = ()
    """Orphaned machines for which an event is recorded."""
    feed_error: str = ""
    """Why the notification feed fails, as the last event says; empty: it works."""
    price_trouble: str = ""
    """Why prices could not be read, as the last event says; empty: all were read."""
    reconciled_at: datetime | None = None
    """When the last complete reconciliation of its machines began; None: there was none."""
    reconciliation_trouble: str = ""
    """Why its machines are not reconciled, as the last event says; empty: they are."""
    removal: RemovalProgress | None = None
    """The removal that is under way; None: there is none."""


class NotificationsRequest(Contract):
    """Input of `provider/{id}/notifications`."""

    provider_id: str
    kind: ProviderKind
    feed_error: str | None = None
    """The last value that the provider was signalled, see `FeedStatus`; None: unknown."""


class NotificationsReport(Contract):
    provider_id: str
    feed_error: str | None = None


class FeedStatus(Contract):
    """Signal `feed_status` to a provider: whether its notification feed works."""

    feed_error: str = ""
    """Why the notification feed fails; empty: it works."""


class PricesState(Contract):
    """Signal `prices_state` to a provider: how its cloud's prices were read with its key."""

    trouble: str = ""
    """Why some or all prices could not be read, so that older ones stay; empty: all were read."""


class ProviderReport(Contract):
    provider_id: str
    status: ProviderStatus
    status_reason: str | None = None


class Recheck(Contract):
    """A message of a person: run all checks of the provider again."""
