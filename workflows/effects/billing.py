"""Effects of job billing, device fees, payouts and the balance guard."""

from datetime import date

from workflows.contracts.base import Contract, Done
from workflows.contracts.billing import BalanceForecast, BillingRequest, WorkerUsage
from workflows.contracts.jobs import EndRequest
from workflows.effects.effect import Effect

SETTLE_LIMIT_S = 300


class PostUsage(Contract):
    """Post the usage up to `through_s` that is not posted yet, in whole and part periods."""

    usages: tuple[WorkerUsage, ...]


class TellJobToEnd(Contract):
    """Signal `stop` to the job, on behalf of the platform and not of a person."""

    job_id: str
    request: EndRequest


class BillingDone(Contract):
    """The job has settled this attempt, so its job billing may end."""

    job_id: str
    attempt: int


begin_billing = Effect("begin_billing", BillingRequest, Done)
"""Start `job/{id}/billing`; a second call finds the first and signals it the node addresses."""

post_usage = Effect("post_usage", PostUsage, BalanceForecast)
"""Write balanced postings with unique business keys; a second call posts nothing."""

settle_usage = Effect("post_usage", PostUsage, BalanceForecast, schedule_to_close_s=SETTLE_LIMIT_S)
"""The last postings of an attempt, within minutes: what cannot be posted then is posted by the
reconciliation, and holds no machine until then."""

end_billing = Effect("end_billing", BillingDone, Done)
"""Signal the job billing to end; do nothing when its workflow has ended."""

tell_job_to_end = Effect("tell_job_to_end", TellJobToEnd, Done)


class ChargeDeviceDays(Contract):
    """Charge the device fees of the UTC days after `after`, at most until `through`.

    after: None: every day since the first device was added.
    """

    after: date | None = None
    through: date


class DeviceDaysCharged(Contract):
    through: date
    """The last day that is charged; earlier than asked, when there were many days."""
    transactions: int = 0
    microcredits: int = 0


class PayOut(Contract):
    """Pay out the earnings of providers for the period that ends with this UTC day."""

    day: date


class PaidOut(Contract):
    payouts: int = 0
    microcredits: int = 0


class GuardBalances(Contract):
    """Warn the payers of devices and of federated fees whose runway has become short."""


class BalancesGuarded(Contract):
    payers: int = 0
    """Those who pay for devices or federated fees."""
    next_s: int | None = None
    """The seconds until the next warning is due; None: none is."""


charge_device_days = Effect(
    "charge_device_days",
    ChargeDeviceDays,
    DeviceDaysCharged,
    start_to_close_s=240,
    heartbeat_s=60,
)
"""Post one transaction for each account and day; a second call posts what is missing."""

pay_out = Effect("pay_out", PayOut, PaidOut, start_to_close_s=240, heartbeat_s=60)
"""Post one transaction for each provider and period; a second call posts what is missing."""

guard_balances = Effect(
    "guard_balances", GuardBalances, BalancesGuarded, start_to_close_s=240, heartbeat_s=60
)
"""Add the events of warnings that are due; a second call adds none."""
