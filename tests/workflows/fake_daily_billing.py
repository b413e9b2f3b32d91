"""What is charged and paid by the day in the fake world, and who is warned of it."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import date

from workflows.effects import billing
from workflows.rules.billing.utc_days import DAY


@dataclass
class DailyBilling:
    """Days of devices, each charged once, and earnings, each paid out once."""

    device_days: Counter[date] = field(default_factory=Counter)
    """How often each day was charged."""
    first_device_day: date | None = None
    """None: there is no device, so that nothing is charged."""
    most_days: int = 31
    """The days of one call."""
    unpaid: set[str] = field(default_factory=set)
    """Earnings that wait for their payout."""
    paid: Counter[str] = field(default_factory=Counter)
    short: set[str] = field(default_factory=set)
    """Payers whose runway has become short."""
    warned: Counter[str] = field(default_factory=Counter)
    next_warning_s: int | None = None
    payout_days: set[date] = field(default_factory=set)
    """The periods that are paid."""

    def charge_device_days(self, asked: billing.ChargeDeviceDays) -> billing.DeviceDaysCharged:
        first = self.first_device_day
        if asked.after is not None:
            first = max(first or asked.through, asked.after + DAY)
        days = (asked.through - first).days + 1 if first is not None else 0
        through = asked.through
        if first is not None and days > self.most_days:
            through = first + (self.most_days - 1) * DAY
        new = [
            day
            for number in range(min(days, self.most_days))
            if first is not None and (day := first + number * DAY) not in self.device_days
        ]
        self.device_days.update(new if self.first_device_day is not None else ())
        return billing.DeviceDaysCharged(through=through, transactions=len(new))

    def guard_balances(self, _: billing.GuardBalances) -> billing.BalancesGuarded:
        found, self.short = self.short, set()
        self.warned.update(found)
        return billing.BalancesGuarded(next_s=self.next_warning_s)

    def pay_out(self, asked: billing.PayOut) -> billing.PaidOut:
        if asked.day in self.payout_days or not self.unpaid:
            return billing.PaidOut()
        self.payout_days.add(asked.day)
        found, self.unpaid = self.unpaid, set()
        self.paid.update(found)
        return billing.PaidOut(payouts=len(found))
