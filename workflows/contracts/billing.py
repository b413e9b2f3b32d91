"""Billing: rates, usage and balances in integer microcredits.

1 credit = 1 USD = 1,000,000 microcredits.
"""

import math
from datetime import datetime
from enum import StrEnum
from typing import Literal

from workflows.contracts.base import Contract, WholeSeconds
from workflows.contracts.nodes import NodeAddress

MICROCREDITS = 1_000_000
HOURS_PER_MONTH = 730
"""The hours of a month as clouds count them in monthly prices of disks.
Source: https://cloud.google.com/compute/disks-image-pricing."""


class TransactionKind(StrEnum):
    """What a ledger transaction is for, as statements and totals name it."""

    CREDITS = "credits"
    """Credits that were bought or given."""
    USAGE_FEE = "usage-fee"
    """GPU and CPU hours on own machines; to the platform."""
    MARKET_PRICE = "market-price"
    """GPU hours on public capacity of another account; to the platform, which pays the owner."""
    EARNING = "earning"
    """The share of a market price of the region's owner, who has it with the next payout."""
    PAYOUT = "payout"
    """Earnings of a provider that were moved to the credits of the account that is paid."""
    FEDERATED_FEE = "federated-fee"
    """Worker hours of a federated job; from its creator."""
    DEVICE_DAY = "device-day"
    """The devices that existed at any moment of a UTC day."""
    CLUSTER = "cluster"
    STORAGE = "storage"
    REVERSAL = "reversal"
    """The opposite of an earlier transaction, which stays as it is."""


CHARGES = (
    TransactionKind.USAGE_FEE,
    TransactionKind.MARKET_PRICE,
    TransactionKind.FEDERATED_FEE,
    TransactionKind.DEVICE_DAY,
    TransactionKind.CLUSTER,
    TransactionKind.STORAGE,
)
"""The kinds of what an account is charged, which are its costs."""


def hourly(microcredits: int) -> str:
    """A price in words for people, to the microcredit: `1.19 credits an hour`."""
    return f"{microcredits / MICROCREDITS:.6f}".rstrip("0").rstrip(".") + " credits an hour"


def disk_microcredits_per_hour(size_gb: int, microcredits_per_gb_month: int) -> int:
    """Microcredits per hour of a disk of that size, rounded down."""
    return size_gb * microcredits_per_gb_month // HOURS_PER_MONTH


class UsageRates(Contract):
    """The cost of one worker while it runs, fixed when the job is placed."""

    gpu_count: int = 0
    microcredits_per_gpu_hour: int = 0
    cpu_count: int = 0
    microcredits_per_cpu_core_hour: int = 0
    market_fee_microcredits_per_gpu_hour: int | None = None
    """The usage fee within a market price, of which the platform keeps it before it shares the rest
    with the region's owner; None: the rates are usage fees of own machines."""

    @property
    def microcredits_per_hour(self) -> int:
        return (
            self.gpu_count * self.microcredits_per_gpu_hour
            + self.cpu_count * self.microcredits_per_cpu_core_hour
        )

    @property
    def is_market_price(self) -> bool:
        """Whether the worker is a guest, whose GPUs cost the market price."""
        return self.market_fee_microcredits_per_gpu_hour is not None


class WorkerUsage(Contract):
    """The usage of one run: the seconds of its command, as its supervisor measured them."""

    job_id: str
    worker: int
    attempt: int
    started_at: datetime
    """When the platform observed the start; billing periods and business keys count from here."""
    through_s: WholeSeconds
    """Measured whole seconds since the start."""
    node_started_at: datetime | None = None
    """The start by the node's wall clock, which may show any instant: kept for disputes."""
    node_ended_at: datetime | None = None
    """The end by that clock; None: the run goes on, or its node has not said it."""


class BillingRequest(Contract):
    """Input of `job/{id}/billing`."""

    job_id: str
    account_id: str
    attempt: int
    started_at: datetime
    workers: tuple["BilledWorker", ...]
    period_s: int = 3600
    resumed_microcredits: int = 0
    """What earlier workflow runs have posted, before continue-as-new."""


class BilledWorker(Contract):
    """A started worker, as its job billing needs it."""

    worker: int
    run_id: str
    node: NodeAddress
    started_at: datetime


class BillingReport(Contract):
    job_id: str
    posted_microcredits: int


class BalanceForecast(Contract):
    """The position of a payer after a posting."""

    posted_microcredits: int
    """What this call has posted; 0 when an earlier call has posted the same usage."""
    balance_microcredits: int
    burn_microcredits_per_hour: int
    """The burn rate: what all running jobs and devices of the payer cost together."""
    unposted_microcredits: int = 0
    """An estimate by the clock of the usage that is not posted yet. It decides the next wakeup and
    is never posted; 0 while the balance is sufficient."""
    device_fees_microcredits: int = 0
    """The fees of devices for days that are not charged yet, until now. Unlike the estimate they
    are certain, so they count as charged."""
    reserved_microcredits: int = 0
    """What the guests of the payer have run by the clock since their last postings. It counts as
    charged, so that no node of another account has to be asked before its guests end; 0 while the
    balance is sufficient."""
    costs: bool = True
    """Whether the job of the request costs something itself."""
    federated_payer: Literal["creator", "consumer"] | None = None
    """For whom it is, where the job is that of a federated job: both parties may read why it ends,
    and neither one the other's balance. None: the job is of one party."""
    over: bool = False
    """Whether the attempt has ended and its job has settled, so that its job billing can end."""
    ends_early_s: int = 0
    """How long before the end of the runway this job ends, so that newer jobs end first; 0 for the
    oldest job of the payer, and while the balance is sufficient."""
    to_warning_s: int | None = None
    """The seconds until the next warning of the runway is due; None: none is left."""

    @property
    def left_microcredits(self) -> int:
        """The balance less the fees of devices that are not charged yet, and what is reserved."""
        certain = self.device_fees_microcredits + self.reserved_microcredits
        return self.balance_microcredits - certain

    @property
    def estimated_microcredits(self) -> int:
        """What is left of the balance, less the estimate of usage that is not posted yet."""
        return self.left_microcredits - self.unposted_microcredits

    @property
    def runway_s(self) -> float:
        """The seconds that the estimated balance lasts; infinite, while nothing costs."""
        if not self.burn_microcredits_per_hour:
            return math.inf
        return max(self.estimated_microcredits, 0) * 3600 / self.burn_microcredits_per_hour

    @property
    def spendable_microcredits(self) -> int:
        """The estimated balance less what is left to older jobs after the end of this one."""
        left = self.burn_microcredits_per_hour * self.ends_early_s // 3600
        return self.estimated_microcredits - left

    @property
    def may_be_used_up(self) -> bool:
        """Whether the estimated balance is used up, so that the job has to be metered now."""
        return self.costs and self.spendable_microcredits <= 0 < self.burn_microcredits_per_hour

    @property
    def is_used_up(self) -> bool:
        """Whether the job has to end: the posted balance is used up, less the fees of devices and
        what is reserved, or the estimated balance is nearly so and there are older jobs."""
        is_early = self.ends_early_s > 0 and self.may_be_used_up
        is_empty = self.left_microcredits <= 0 < self.burn_microcredits_per_hour
        return self.costs and (is_empty or is_early)
