"""The total cost of owning a node against renting: when a purchase has paid for itself.

All figures are of one month of `HOURS_PER_MONTH` hours. A month that saves nothing never pays back.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from workflows.contracts.billing import HOURS_PER_MONTH
from workflows.rules.billing.metering import HOUR_S

UTILISATIONS = (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4), Fraction(1))
"""The utilisations that are calculated beside the present one."""


@dataclass(frozen=True)
class Ownership:
    """What a person states of a node.

    power_w: drawn in every hour of the month, whatever runs.
    """

    purchase_microcredits: int
    months_of_use: int
    power_w: int
    electricity_microcredits_per_kwh: int


@dataclass(frozen=True)
class NodeUse:
    """What the ledger shows of a node in a period: own jobs, and earnings of public capacity.

    period_s: how long the node was there in the period, above 0.
    """

    period_s: int
    gpu_count: int
    gpu_seconds: int
    fee_microcredits: int
    earned_microcredits: int = 0

    @property
    def utilisation(self) -> Fraction:
        """The share of the GPU seconds that own jobs have used, at most 1."""
        return min(Fraction(self.gpu_seconds, self.gpu_count * self.period_s), Fraction(1))


@dataclass(frozen=True)
class Rental:
    """The list price of a rented GPU.

    A commitment is paid for all hours of the month. So more use of the same committed GPUs saves
    less, by the usage fee of owning, until one GPU more is needed.
    """

    microcredits_per_gpu_hour: Fraction
    is_committed: bool = False


@dataclass(frozen=True)
class Month:
    """One month of owning against renting, in microcredits; of several nodes, their sum."""

    gpu_hours: Fraction
    rental: Fraction
    fees: Fraction
    electricity: Fraction
    earned: Fraction

    @property
    def saved(self) -> Fraction:
        """What owning saves in the month; below 0, what it costs more."""
        return self.rental + self.earned - self.fees - self.electricity

    def pays_back_months(self, purchase_microcredits: int) -> float | None:
        """The months until the purchase has paid for itself, rounded up to a tenth; None: never."""
        if self.saved <= 0:
            return None
        return math.ceil(10 * purchase_microcredits / self.saved) / 10


def month(
    owned: Ownership, used: NodeUse, rental: Rental, utilisation: Fraction, fee_per_gpu_hour: int
) -> Month:
    """A month at a utilisation by own jobs.

    fee_per_gpu_hour: microcredits; counts where the ledger shows no use.
    """
    hours = utilisation * used.gpu_count * HOURS_PER_MONTH
    kwh = Fraction(owned.power_w * HOURS_PER_MONTH, 1000)
    return Month(
        gpu_hours=hours,
        rental=_rented_hours(hours, rental) * rental.microcredits_per_gpu_hour,
        fees=hours * _fee(used, fee_per_gpu_hour),
        electricity=kwh * owned.electricity_microcredits_per_kwh,
        earned=_earned(used, utilisation),
    )


def months_sum(months: Sequence[Month]) -> Month:
    """The month of several nodes together."""
    return Month(
        gpu_hours=_sum(each.gpu_hours for each in months),
        rental=_sum(each.rental for each in months),
        fees=_sum(each.fees for each in months),
        electricity=_sum(each.electricity for each in months),
        earned=_sum(each.earned for each in months),
    )


def own_cost_per_gpu_hour(owned: Ownership, now: Month) -> Fraction | None:
    """What a GPU-hour costs over the months of use, at the present use; None: nothing is used."""
    if not now.gpu_hours:
        return None
    monthly = now.fees + now.electricity - now.earned
    return (Fraction(owned.purchase_microcredits, owned.months_of_use) + monthly) / now.gpu_hours


def _rented_hours(hours: Fraction, rental: Rental) -> Fraction:
    """The GPU-hours that are paid; of a commitment, all hours of the fewest GPUs that suffice."""
    if not rental.is_committed:
        return hours
    return Fraction(math.ceil(hours / HOURS_PER_MONTH) * HOURS_PER_MONTH)


def _fee(used: NodeUse, fee_per_gpu_hour: int) -> Fraction:
    if not used.gpu_seconds:
        return Fraction(fee_per_gpu_hour)
    return Fraction(used.fee_microcredits * HOUR_S, used.gpu_seconds)


def _earned(used: NodeUse, utilisation: Fraction) -> Fraction:
    """The earnings of a month: as now, and less in proportion where own jobs leave less spare."""
    now = Fraction(used.earned_microcredits * HOURS_PER_MONTH * HOUR_S, used.period_s)
    spare_now = 1 - used.utilisation
    if utilisation <= used.utilisation or not now:
        return now
    return now * (1 - utilisation) / spare_now


def _sum(values: Iterable[Fraction]) -> Fraction:
    return sum(values, Fraction(0))
