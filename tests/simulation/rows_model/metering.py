"""Usage meters, which only move forwards, and what is posted of them.

As activities/billing/usage.py, runway.py and guests.py.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from temporalio.exceptions import ApplicationError

from activities.billing.guests import billed_until
from activities.billing.ledger import MARKET_PRICES, USAGE_FEES, Entry
from activities.billing.payers import credits_name, earnings_name
from activities.billing.runway import ESTIMATED_BELOW_S, _clamped, _runway_level
from activities.billing.runway_warnings import _warning
from activities.billing.usage import MOST_PERIODS, SPARE_S, USAGE_REFUSED, _runs
from activities.settings import settings
from tests.simulation.rows_model import guests
from tests.simulation.rows_model.connection import Connection
from tests.simulation.rows_model.ledger import Ledger
from tests.simulation.rows_model.outbox import Outbox
from tests.simulation.rows_model.records import EventRow, Job, UsageMeter
from tests.simulation.rows_model.tables import Tables
from workflows.contracts.billing import BalanceForecast, TransactionKind, UsageRates, WorkerUsage
from workflows.contracts.errors import NOT_FOUND
from workflows.contracts.events import BillingEvent
from workflows.contracts.statuses import JobStatus
from workflows.rules.billing.market_prices import earned_between
from workflows.rules.billing.metering import Slice, cumulative_microcredits, slices
from workflows.rules.billing.runway_warnings import ends_early_s, to_warning_s, warning_level


@dataclass(frozen=True)
class Posted:
    """New microcredits, and whether that was all that is to be posted."""

    microcredits: int = 0
    is_all: bool = True


class Metering:
    """Called in the caller's transaction."""

    def __init__(
        self, tables: Tables, connection: Connection, outbox: Outbox, ledger: Ledger
    ) -> None:
        self._tables = tables
        self._connection = connection
        self._outbox = outbox
        self._ledger = ledger

    def post_worker_usage(self, usage: WorkerUsage) -> Posted:
        """As usage.py:post_worker_usage. Raises: NotFound, when there is no such job."""
        meter, _ = self.open_meter(usage)
        return self.post_on_meter(meter, usage.through_s)

    def open_meter(self, usage: WorkerUsage) -> tuple[UsageMeter, bool]:
        """The usage meter of a run, and whether this call has created it: usage.py:open_meter.

        Raises: NotFound, when there is no such job.
        """
        tables, key = self._tables, (usage.job_id, usage.worker, usage.attempt)
        job = tables.jobs.get(usage.job_id)
        if job is None:
            raise ApplicationError(
                f"usage: asked to post for {usage.job_id}, found no such job",
                type=NOT_FOUND,
                non_retryable=True,
            )
        found = tables.meters.get(key)
        if found is not None:
            return found, False
        held = tables.allocation_of.get(key)
        rates = (held and held.rates) or (job.rates or {}).get(usage.worker) or UsageRates()
        meter = UsageMeter(
            job_id=usage.job_id,
            worker=usage.worker,
            attempt=usage.attempt,
            payer_id=job.account_id,  # No account of the model has a billing account.
            rates=rates,
            microcredits_per_hour=rates.microcredits_per_hour,
            running=runs(job, usage.attempt),
            started_at=usage.started_at,
        )
        tables.put(tables.meters, key, meter)
        tables.put(tables.meters_of.setdefault(job.id, {}), key, meter)
        if meter.running:
            tables.put(tables.running_meters.setdefault(meter.payer_id, {}), key, meter)
        return meter, True

    def post_on_meter(self, meter: UsageMeter, through_s: int) -> Posted:
        """Post what is not posted yet, `MOST_PERIODS` at most: usage.py:post_on_meter."""
        if through_s <= meter.posted_s:
            return Posted()
        believed_s = self._believed_s(meter, through_s)
        period_s = settings().billing_period_s
        end_s = min(believed_s, (meter.posted_s // period_s + MOST_PERIODS) * period_s)
        if end_s <= meter.posted_s:
            return Posted()
        cut = slices(
            meter.rates.microcredits_per_hour,
            posted_s=meter.posted_s,
            through_s=end_s,
            period_s=period_s,
        )
        posted = sum(self._post_slice(meter, piece) for piece in cut)
        job, seconds = self._tables.jobs[meter.job_id], end_s - meter.posted_s
        self._tables.set(
            job,
            charged_microcredits=job.charged_microcredits + posted,
            gpu_seconds=job.gpu_seconds + seconds * meter.rates.gpu_count,
        )
        self._tables.set(
            meter, posted_s=end_s, posted_microcredits=meter.posted_microcredits + posted
        )
        return Posted(posted, is_all=end_s == believed_s)

    def _believed_s(self, meter: UsageMeter, through_s: int) -> int:
        """Those that the allocation has lasted, and a minute: usage.py:_believed_s."""
        job = self._tables.jobs[meter.job_id]
        held = self._tables.allocation_of.get((meter.job_id, meter.worker, meter.attempt))
        placed_at = job.created_at if held is None else held.created_at
        ended_at = (None if held is None else held.released_at) or self._connection.now()
        most_s = max(0, int((ended_at - placed_at).total_seconds())) + SPARE_S
        if through_s > most_s:
            self._record_refused(job, meter, (through_s, most_s))
        until = billed_until(meter.credits_used_up_at, None)  # No guest of these is pre-empted.
        if until is not None:
            most_s = min(most_s, max(0, int((until - meter.started_at).total_seconds())))
        return min(through_s, most_s)

    def _record_refused(self, job: Job, meter: UsageMeter, seconds: tuple[int, int]) -> None:
        """Once in each step of the job: usage.py:_record_refused."""
        for event in reversed(self._tables.events.get(job.id, ())):
            if event.sequence != job.sequence:
                break
            if event.type == USAGE_REFUSED:
                return
        message = f"worker {meter.worker}: measured {seconds[0]} s, charged {seconds[1]} s"
        self._tables.append_event(job, USAGE_REFUSED, message, self._connection.now())

    def _post_slice(self, meter: UsageMeter, piece: Slice) -> int:
        """As usage.py:_post_slice, with the same business key."""
        amount, is_market = piece.amount_microcredits, meter.rates.is_market_price
        if is_market:
            self._post_earning(meter, piece)
        if amount == 0:
            return 0
        begins = meter.started_at + timedelta(seconds=piece.start_s)
        self._ledger.post(
            Entry(
                business_key=f"job/{meter.job_id}/usage/{meter.worker}/{begins.isoformat()}",
                kind=TransactionKind.MARKET_PRICE if is_market else TransactionKind.USAGE_FEE,
                account_id=meter.payer_id,
                job_id=meter.job_id,
                legs={
                    credits_name(meter.payer_id): -amount,
                    MARKET_PRICES if is_market else USAGE_FEES: amount,
                },
                at=meter.started_at + timedelta(seconds=piece.end_s),
                description="",
            )
        )
        return amount

    def _post_earning(self, meter: UsageMeter, piece: Slice) -> None:
        """As usage.py:_post_earning."""
        earned = earned_between(meter.rates, piece.start_s, piece.end_s)
        key = meter.job_id, meter.worker, meter.attempt
        node = self._tables.nodes[self._tables.allocation_of[key].node_id]
        region = self._tables.regions[node.region_id]
        if earned == 0:
            return
        to = earnings_name(region.account_id, region.provider_id)
        begins = meter.started_at + timedelta(seconds=piece.start_s)
        self._ledger.post(
            Entry(
                business_key=f"job/{meter.job_id}/earning/{meter.worker}/{begins.isoformat()}",
                kind=TransactionKind.EARNING,
                account_id=region.account_id,
                job_id=meter.job_id,
                legs={MARKET_PRICES: -earned, to: earned},
                at=meter.started_at + timedelta(seconds=piece.end_s),
                description="",
            )
        )

    def is_over(self, usage: WorkerUsage) -> bool:
        """As usage.py:is_over."""
        job = self._tables.jobs.get(usage.job_id)
        return job is not None and not runs(job, usage.attempt)

    # ── the runway ──────────────────────────────────────────────────────────────────────────

    def balance_forecast(self, meters: list[UsageMeter], posted: int) -> BalanceForecast:
        """As runway.py:balance_forecast."""
        payer_id = meters[0].payer_id
        running = self._tables.running_meters.get(payer_id, {}).values()
        forecast = BalanceForecast(
            posted_microcredits=posted,
            balance_microcredits=self._ledger.balance(credits_name(payer_id)),
            burn_microcredits_per_hour=sum(each.microcredits_per_hour for each in running),
            costs=any(each.microcredits_per_hour for each in meters),
        )
        if forecast.balance_microcredits <= 0 or forecast.runway_s > ESTIMATED_BELOW_S:
            return forecast
        now = self._connection.now()
        update = {
            "unposted_microcredits": self._unposted(payer_id, now),
            "reserved_microcredits": guests.reserved(self._tables, payer_id, now),
            "burn_microcredits_per_hour": forecast.burn_microcredits_per_hour
            - guests.free_of_charge(self._tables, payer_id, now),
        }
        forecast = forecast.model_copy(update=update)
        if forecast.left_microcredits <= 0 or forecast.runway_s > ESTIMATED_BELOW_S:
            return forecast
        is_scarce = forecast.costs and _runway_level(forecast)
        early_s = self._ends_early_s(meters[0]) if is_scarce else 0
        due = {"ends_early_s": early_s, "to_warning_s": to_warning_s(forecast.runway_s)}
        return forecast.model_copy(update=due)

    def _ends_early_s(self, own: UsageMeter) -> int:
        """As runway.py:_ends_early_s."""
        running = self._tables.running_meters.get(own.payer_id, {}).values()
        job_ids = {each.job_id for each in running if each.microcredits_per_hour > 0}
        begun: dict[str, datetime] = {}
        for each in self._tables.meters.values():
            if each.job_id in job_ids:
                known = begun.setdefault(each.job_id, each.started_at)
                begun[each.job_id] = min(known, each.started_at)
        own_key = (begun[own.job_id], own.job_id) if own.job_id in begun else None
        older = sum((at, job_id) < own_key for job_id, at in begun.items()) if own_key else 0
        return ends_early_s(older, len(begun), settings().billing_period_s)

    def warn_of_runway(self, payer_id: str, forecast: BalanceForecast) -> None:
        """As runway_warnings.py:warn_of_runway."""
        if not forecast.burn_microcredits_per_hour:
            return
        types = set(BillingEvent)
        of_account = self._tables.account_events.get(payer_id, [])
        known = next((each.level for each in reversed(of_account) if each.type in types), 0)
        level = warning_level(forecast.runway_s, known)
        if level == known:
            return
        now, warning = self._connection.now(), _warning(forecast, level, known)
        row = EventRow(
            resource_id=payer_id,
            sequence=int(now.timestamp()),
            index=0,
            type=warning.type,
            message=warning.message,
            at=now,
            level=level,
        )
        self._tables.append_account_event(payer_id, row)

    def recheck_other_jobs(
        self, own: UsageMeter, forecast: BalanceForecast, added: int
    ) -> list[str]:
        """As runway.py:recheck_other_jobs."""
        balance = forecast.balance_microcredits + forecast.posted_microcredits
        burn = forecast.burn_microcredits_per_hour - added
        before = forecast.model_copy(
            update={"balance_microcredits": balance, "burn_microcredits_per_hour": burn}
        )
        if _runway_level(forecast) <= _runway_level(before):
            return []
        running = self._tables.running_meters.get(own.payer_id, {}).values()
        others = {
            each.job_id
            for each in running
            if each.microcredits_per_hour > 0 and each.job_id != own.job_id
        }
        now = self._connection.now()
        return [
            self._outbox.enqueue(f"{job_id}/billing", "recheck_balance", None, now)
            for job_id in sorted(others)
        ]

    def _unposted(self, payer_id: str, now: datetime) -> int:
        """As runway.py:_unposted."""
        period_s = settings().billing_period_s
        return sum(
            cumulative_microcredits(
                each.microcredits_per_hour,
                _clamped(int((now - each.started_at).total_seconds()) - each.posted_s, period_s),
            )
            for each in self._tables.running_meters.get(payer_id, {}).values()
            if each.microcredits_per_hour > 0
            and not each.rates.is_market_price
            and self._tables.jobs[each.job_id].status == JobStatus.RUNNING
        )


def runs(job: Job, attempt: int) -> bool:
    """Whether the row says that the attempt has not ended: usage.py:_runs."""
    return _runs(job, attempt)  # type: ignore[arg-type]
