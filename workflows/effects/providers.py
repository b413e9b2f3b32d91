"""Effects of providers: checks, cloud resources, notifications and prices."""

from workflows.contracts import queues
from workflows.contracts.base import Contract, Done
from workflows.contracts.errors import NON_RETRYABLE_AT_PROVIDERS
from workflows.contracts.providers import Check, CloudResource, FeedStatus
from workflows.contracts.statuses import ProviderKind
from workflows.effects.effect import HEARTBEAT_S, CloudCommand, Effect


class CheckProvider(CloudCommand):
    provider_id: str


class ProviderChecked(Contract):
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        return all(check.status != "failed" for check in self.checks)


class ProviderResource(CloudCommand):
    """One of the `resources` of a provider, by the traits of its kind."""

    provider_id: str
    resource: str


class CloudResourceReport(Contract):
    resource: CloudResource


class ForgetProviderKey(Contract):
    """Delete the stored credential of a provider; do nothing when there is none."""

    provider_id: str


check_provider = Effect("check_provider", CheckProvider, ProviderChecked, start_to_close_s=60)
"""The checks of a provider that is no cloud, which call nobody."""

check_cloud = Effect(
    "check_cloud",
    CheckProvider,
    ProviderChecked,
    queue=queues.CLOUD,
    start_to_close_s=120,
    schedule_to_close_s=300,
    heartbeat_s=HEARTBEAT_S,
    retry_max_s=60,
)
"""The checks of a cloud, at most five minutes: a cloud may be unreachable for longer."""

ensure_provider_resource = Effect(
    "ensure_provider_resource",
    ProviderResource,
    CloudResourceReport,
    queue=queues.CLOUD,
    start_to_close_s=150,
    schedule_to_close_s=900,
    heartbeat_s=HEARTBEAT_S,
    waits_for_cancellation=True,
)
"""Find the cloud resource, or create it."""

remove_provider_resource = Effect(
    "remove_provider_resource",
    ProviderResource,
    CloudResourceReport,
    queue=queues.CLOUD,
    start_to_close_s=150,
    schedule_to_close_s=900,
    heartbeat_s=HEARTBEAT_S,
)
"""Remove the cloud resource, if it exists and carries our ownership label."""


class ListOwnedMachines(CloudCommand):
    """List the machines of a provider that carry our ownership label."""

    provider_id: str


class OwnedMachinesListed(Contract):
    names: tuple[str, ...] = ()


list_owned_machines = Effect(
    "list_owned_machines",
    ListOwnedMachines,
    OwnedMachinesListed,
    queue=queues.CLOUD,
    start_to_close_s=90,
    schedule_to_close_s=600,
    heartbeat_s=HEARTBEAT_S,
    non_retryable=NON_RETRYABLE_AT_PROVIDERS,
)

forget_provider_key = Effect("forget_provider_key", ForgetProviderKey, Done)


class StartNotifications(Contract):
    """Start the workflow that receives the notifications of a provider."""

    provider_id: str
    kind: ProviderKind


class ReceiveNotifications(Contract):
    """Receive notifications for `for_s` seconds, and signal them to the leases of the machines."""

    provider_id: str
    kind: ProviderKind
    for_s: float


class NotificationsReceived(Contract):
    """The number of notifications that arrived; all of them are acknowledged."""

    told: int = 0
    """Notifications that were signalled to the lease of their machine."""
    ignored: int = 0
    """Notifications about other machines, without meaning for us, or unreadable."""
    is_over: bool = False
    """Whether the provider is being removed, so that its notification feed ends."""


class ReportFeedStatus(Contract):
    """Signal the state of the notification feed to the provider's lifecycle."""

    provider_id: str
    state: FeedStatus


LISTEN_S = 3600.0
"""How long one call receives notifications; an hour adds few events to the workflow's history."""

start_notifications = Effect(
    "start_notifications", StartNotifications, Done, schedule_to_close_s=600
)

receive_notifications = Effect(
    "receive_notifications",
    ReceiveNotifications,
    NotificationsReceived,
    queue=queues.NOTIFICATIONS,
    start_to_close_s=2 * LISTEN_S,
    schedule_to_start_s=600,
    heartbeat_s=HEARTBEAT_S,
    attempts=5,
    non_retryable=NON_RETRYABLE_AT_PROVIDERS,
)
"""One for each provider; when its worker process is gone, Temporal retries it on another one."""

report_feed_status = Effect("report_feed_status", ReportFeedStatus, Done, schedule_to_close_s=600)


class RefreshPrices(CloudCommand):
    """Read the prices of one kind of cloud, if it publishes them."""


class PricesRefreshed(Contract):
    kept: int = 0
    """The number of valid prices, which are used from now on."""
    rejected: tuple[str, ...] = ()
    """The first invalid prices, and why; the last valid ones stay in use."""
    refused: tuple[str, ...] = ()
    """Providers whose credential may not read prices, and why."""

    def plus(self, other: "PricesRefreshed") -> "PricesRefreshed":
        return PricesRefreshed(
            kept=self.kept + other.kept,
            rejected=(*self.rejected, *other.rejected),
            refused=(*self.refused, *other.refused),
        )


refresh_prices = Effect(
    "refresh_prices",
    RefreshPrices,
    PricesRefreshed,
    queue=queues.CLOUD,
    start_to_close_s=540,
    heartbeat_s=60,
    retry_first_s=10,
    retry_max_s=600,
)
"""Read and store the prices that a cloud publishes, as far as they are valid."""


class RefreshOffers(CloudCommand):
    """Read what a provider kind offers to each of its ready providers, if it is a marketplace."""


class OffersRefreshed(Contract):
    kept: int = 0
    """The number of offers that are known now."""
    refused: tuple[str, ...] = ()
    """Providers whose offers could not be read, and why; they keep those that they had."""

    def plus(self, other: "OffersRefreshed") -> "OffersRefreshed":
        return OffersRefreshed(kept=self.kept + other.kept, refused=(*self.refused, *other.refused))


refresh_offers = Effect(
    "refresh_offers",
    RefreshOffers,
    OffersRefreshed,
    queue=queues.CLOUD,
    start_to_close_s=240,
    heartbeat_s=HEARTBEAT_S,
    retry_first_s=10,
    retry_max_s=60,
)
"""Read and store the offers of a marketplace."""
