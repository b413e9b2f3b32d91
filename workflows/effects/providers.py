"""Effects of providers and regions."""

from workflows.contracts import queues
from workflows.contracts.base import Contract, Done
from workflows.contracts.errors import NON_RETRYABLE_AT_PROVIDERS
from workflows.contracts.providers import Check, CloudResource, FeedStatus
from workflows.contracts.statuses import ProviderKind
from workflows.effects.effect import HEARTBEAT_S, Effect


class CheckProvider(Contract):
    provider_id: str
    kind: ProviderKind


class ProviderChecked(Contract):
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        return all(check.status != "failed" for check in self.checks)


class ProviderResource(Contract):
    """One of the `resources` of a provider, by the traits of its kind."""

    provider_id: str
    kind: ProviderKind
    resource: str


class CloudResourceReport(Contract):
    resource: CloudResource


class ForgetProviderKey(Contract):
    """Remove the key that was given for a provider from the store; silent when there is none."""

    provider_id: str


check_provider = Effect("check_provider", CheckProvider, ProviderChecked, start_to_close_s=60)

try_provider = Effect(
    "check_provider",
    CheckProvider,
    ProviderChecked,
    start_to_close_s=120,
    schedule_to_close_s=300,
    retry_max_s=60,
)
"""For what is reached over the network, which may be away for longer than anybody waits."""

ensure_provider_resource = Effect(
    "ensure_provider_resource",
    ProviderResource,
    CloudResourceReport,
    start_to_close_s=150,
    schedule_to_close_s=900,
    waits_for_cancellation=True,
)
"""Find it, else make it."""

remove_provider_resource = Effect(
    "remove_provider_resource",
    ProviderResource,
    CloudResourceReport,
    start_to_close_s=150,
    schedule_to_close_s=900,
)
"""Remove it where it is there and ours."""

forget_provider_key = Effect("forget_provider_key", ForgetProviderKey, Done)


class StartNotifications(Contract):
    """Have the news of a provider's machines listened to, by one workflow of its own."""

    provider_id: str
    kind: ProviderKind


class ReceiveNotifications(Contract):
    """Listen for `for_s` seconds, and tell the workflows of the machines what they need to know."""

    provider_id: str
    kind: ProviderKind
    for_s: float


class NotificationsReceived(Contract):
    """How many messages came; all of them are settled, whatever was in them."""

    told: int = 0
    """About machines that are held: their workflows know."""
    ignored: int = 0
    """About others, of no meaning, or not to be read."""
    is_over: bool = False
    """The provider is being removed: nobody needs to listen any more."""


class ReportFeedStatus(Contract):
    """Signal the provider's workflow."""

    provider_id: str
    state: FeedStatus


LISTEN_S = 3600.0
"""How long one attempt at listening lasts: then it is begun anew, and its history does not grow."""

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
"""One for each provider, whichever worker does it; another takes it up when that one is gone."""

report_feed_status = Effect("report_feed_status", ReportFeedStatus, Done, schedule_to_close_s=600)


class RefreshPrices(Contract):
    """Ask every cloud that tells its prices for them."""


class PricesRefreshed(Contract):
    kept: int = 0
    """Prices that were told, could be, and are used from now on."""
    rejected: tuple[str, ...] = ()
    """The first of those that could not be, and why: the last that could stay."""
    refused: tuple[str, ...] = ()
    """Providers whose key is not allowed to read them, and why."""

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
    start_to_close_s=540,
    heartbeat_s=60,
    retry_first_s=10,
    retry_max_s=600,
)
"""What clouds tell of their prices is kept, as far as it can be."""
