"""Money under fire: jobs and devices of random lengths, whose billing is killed and repeated.

Everything is posted by the real activities. What it must come to is computed apart from them, with
fractions, from the same facts.
"""

import math
import random
import threading
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, tzinfo
from fractions import Fraction

import pytest
from sqlmodel import Session

from activities.billing import device_fees, usage
from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import Database
from tests.activities.rows import GIB, add_job, add_node, add_payer, add_region
from workflows.contracts.billing import WorkerUsage
from workflows.rules.billing.usage_fees import usage_rates

BEGIN = datetime(2026, 2, 25, 7, 30, 0, 250_000, tzinfo=UTC)
DAYS = 6
DAY_S = 24 * 3600
THREADS = 4
SPARE_S = 60
FEES = {"A100": Fraction(1, 4), "RTX4090": Fraction(1, 20), "RTXA6000": Fraction(1, 10)}
"""Credits for each GPU-hour by GPU type, as the price list says."""
SHORT_S = (0, 1, 59, 3599, 3600, 3601)


class KilledError(BaseException):
    """The worker of an activity is gone; nothing may catch it."""


class Fates(threading.local):
    """Whether the worker of this thread is killed: before or after which of its commits."""

    where = ""
    commits = 0

    def strike(self, where: str) -> None:
        if self.where != where:
            return
        self.commits -= 1
        if self.commits < 0:
            self.where = ""
            raise KilledError


@dataclass
class Run:
    """A run of a worker, as its node knows it."""

    worker: int
    gpu_type: str | None
    gpu_count: int
    placed_s: int
    begins_s: int
    length_s: int
    measured_s: int
    """What the node says at the end; more than `length_s`, when it does not say the truth."""

    def expected_microcredits(self) -> int:
        """The exact fee of what is believed of the seconds that were measured, rounded half up."""
        lasted_s = self.begins_s + self.length_s - self.placed_s
        seconds = min(self.measured_s, lasted_s + SPARE_S)
        per_hour = FEES[self.gpu_type] * self.gpu_count * 1_000_000 if self.gpu_type else 0
        return math.floor(per_hour * Fraction(seconds, 3600) + Fraction(1, 2))


@dataclass
class Attempt:
    """An attempt of a job: its runs, and the instants at which they are billed."""

    job_id: str
    account: int
    number: int
    runs: list[Run]
    bills_s: list[int] = field(default_factory=list)

    @property
    def ends_s(self) -> int:
        return max(run.begins_s + run.length_s for run in self.runs)


@dataclass
class DeviceLife:
    account: int
    since: datetime
    until: datetime | None


class Fire:
    """A world whose workers die at random, and whose clocks differ."""

    def __init__(self, database: Database, seed: int) -> None:
        self.database = database
        self.random = random.Random(seed)
        self.fates = Fates()
        self.killed = 0
        self.now_s = 0
        self.attempts: list[Attempt] = []
        self.devices: list[DeviceLife] = []
        with database.write() as session:
            accounts = [add_payer(session, new_id("name")) for _ in range(3)]
            accounts[2].billing_account_id = accounts[1].id
            self.account_ids = [each.id for each in accounts]
            self.payers = [accounts[0].id, accounts[1].id, accounts[1].id]
            self.region_ids: list[str] = []
            self.node_ids: list[str] = []
            for account in accounts:
                region = add_region(session, account)
                self.region_ids.append(region.id)
                self.node_ids.append(add_node(session, region).id)

    @contextmanager
    def burning(self) -> Iterator[None]:
        """Until the end of the block workers die, and clocks of workers go before and after."""
        fire, real = self, Database.write

        @contextmanager
        def write(database: Database, serialised: str | None = None) -> Generator[Session]:
            with real(database, serialised) as session:
                yield session
                fire.fates.strike("before")
            fire.fates.strike("after")

        class Clock(datetime):
            @classmethod
            def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
                skew = timedelta(seconds=random.uniform(-20, 20))
                return fire.at(fire.now_s).astimezone(tz) + skew

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Database, "write", write)
            patched.setattr(usage, "datetime", Clock)
            patched.setattr(usage, "MOST_PERIODS", 5)
            patched.setattr(device_fees, "AT_ONCE", 1)
            yield

    def at(self, seconds: int) -> datetime:
        return BEGIN + timedelta(seconds=seconds)

    def call(self, activities: Sequence[Callable[[], object]]) -> None:
        """Run activities at once, each until its worker survives, some of them again after that."""
        plans = [(each, self._plan()) for each in activities]
        with ThreadPoolExecutor(THREADS) as pool:
            for killed in pool.map(lambda plan: self._survive(*plan), plans):
                self.killed += killed

    def _plan(self) -> list[tuple[str, int]]:
        """Where the worker is killed in each try; the last one, and a repeated one, succeed."""
        tries = []
        while self.random.random() < 0.3:
            tries.append((self.random.choice(("before", "after")), self.random.randrange(3)))
        repeated = 2 if self.random.random() < 0.1 else 1
        return [*tries, *[("", 0)] * repeated]

    def _survive(self, activity: Callable[[], object], plan: list[tuple[str, int]]) -> int:
        killed = 0
        for where, commits in plan:
            self.fates.where, self.fates.commits = where, commits
            try:
                activity()
            except KilledError:
                killed += 1
            finally:
                self.fates.where = ""
        return killed

    def add_jobs(self, count: int) -> None:
        with self.database.write() as session:
            for _ in range(count):
                self._add_job(session)

    def _add_job(self, session: Session) -> None:
        account = self.random.randrange(3)
        payer = session.get_one(tables.Account, self.account_ids[account])
        workers = self.random.choice((1, 1, 1, 1, 2))
        job = add_job(session, payer, workers)
        job.status = "running"
        begins_s = self.random.randrange((DAYS - 3) * DAY_S)
        for number in range(1, self.random.choice((2, 2, 2, 2, 3))):
            runs = [self._add_run(session, job, (account, worker), (number, begins_s))
                    for worker in range(workers)]  # fmt: skip
            attempt = Attempt(job.id, account, number, runs)
            self._plan_bills(attempt)
            self.attempts.append(attempt)
            begins_s = attempt.ends_s + self.random.randrange(3600)

    def _add_run(
        self,
        session: Session,
        job: tables.Job,
        where: tuple[int, int],
        since: tuple[int, int],
    ) -> Run:
        """where: number of the account, worker; since: number of the attempt, its beginning."""
        account, worker = where
        attempt, placed_s = since
        gpu_type = self.random.choice((*FEES, *FEES, None))
        gpu_count = self.random.randint(1, 8) if gpu_type else 0
        length_s = self.random.choice(SHORT_S)
        if self.random.random() < 0.7:
            length_s = min(int(self.random.lognormvariate(8.5, 1)), DAY_S)
        measured_s = length_s
        if self.random.random() < 0.05:
            measured_s += self.random.randrange(100_000)
        begins_s = placed_s + self.random.randrange(300)
        held = tables.Allocation(
            id=new_id("alc"), job_id=job.id, worker=worker, attempt=attempt,
            node_id=self.node_ids[account], cpu_count=2, memory_bytes=GIB,
            gpu_indices=list(range(gpu_count)), created_at=self.at(placed_s),
        )  # fmt: skip
        held.rates = usage_rates(gpu_type, gpu_count, 2, BEGIN, cpu_core_hour=0).model_dump(
            mode="json"
        )
        session.add(held)
        return Run(worker, gpu_type, gpu_count, placed_s, begins_s, length_s, measured_s)

    def _plan_bills(self, attempt: Attempt) -> None:
        """Some while it runs, with delays of hours to days; the last one after its end."""
        bill_s = attempt.runs[0].begins_s
        while bill_s < attempt.ends_s:
            attempt.bills_s.append(bill_s)
            bill_s += self.random.choice((3600, DAY_S // 2, 2 * DAY_S))
        attempt.bills_s.append(attempt.ends_s + self.random.randrange(3 * DAY_S))

    def usages(self, attempt: Attempt, at_s: int) -> tuple[WorkerUsage, ...]:
        """What its nodes say then; some of it is old, and the start differs from call to call."""
        found = []
        for run in attempt.runs:
            through_s = min(max(0, at_s - run.begins_s), run.length_s)
            if at_s == attempt.bills_s[-1]:
                through_s = run.measured_s
            elif self.random.random() < 0.2:
                through_s = self.random.randrange(through_s + 1)
            skew = timedelta(microseconds=self.random.randrange(DAY_S * 1_000_000))
            found.append(
                WorkerUsage(
                    job_id=attempt.job_id, worker=run.worker, attempt=attempt.number,
                    started_at=self.at(run.begins_s) + skew, through_s=through_s,
                )
            )  # fmt: skip
        return tuple(found)

    def add_devices(self, count: int) -> None:
        with self.database.write() as session:
            for _ in range(count):
                account = self.random.randrange(3)
                since = self.at(self.random.randrange(-3600, DAYS * DAY_S))
                lasts = timedelta(seconds=self.random.randrange(2 * DAY_S))
                until = since + lasts if self.random.random() < 0.5 else None
                life = DeviceLife(account, since, until)
                self.devices.append(life)
                device_id = new_id("dev")
                session.add(
                    tables.Device(
                        id=device_id, account_id=self.account_ids[account], name=device_id,
                        region_id=self.region_ids[account], minion_id=f"SHA256:{device_id}",
                        status="active" if until is None else "archived", requirements=[],
                        created_at=since, updated_at=since, removed_at=until,
                    )
                )  # fmt: skip

    def device_days(self, through: date) -> dict[tuple[int, date], int]:
        """How many devices each account had at any moment of each day until then."""
        found: dict[tuple[int, date], int] = defaultdict(int)
        for life in self.devices:
            day = life.since.date()
            while day <= through:
                midnight = datetime(day.year, day.month, day.day, tzinfo=UTC)
                if life.until is not None and life.until <= midnight:
                    break
                found[life.account, day] += 1
                day += timedelta(days=1)
        return found
