"""The room: the stack as users run it, a market beside it, and a provider there that is ready."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from temporalio.client import Client

from tests.chaos.campaign_stack import aside, eventually
from tests.chaos.cloud.database import Name, RestartedServer, RoomDatabase, Rows, SqliteFile
from tests.chaos.cloud.markets.market import Enabled, Market
from tests.chaos.cloud.runs import Runs
from tests.chaos.stack import PatientPlatform, RoomStack, lose_patience
from workers.runner.lifecycle import program_states
from workers.runner.stack import Stack

CREDITS = 10**12
SERVES = '"event": "serves'
JOB_END_GRACE_S = "1"
OFFERS = "offers"
"""The schedule by which the offers of marketplaces are read."""


class CloudStack(RoomStack):
    """Whose machines are of the market."""

    def __init__(self, home: Path, market: Market, **settings: str) -> None:
        self._market = market
        super().__init__(home, "127.0.0.1", **settings)

    def _plan(self, environment: dict[str, str]) -> Stack:
        plan = super()._plan({**environment, **self._market.environment})
        programs = tuple(self._market.adapted(program) for program in plan.programs)
        return plan.model_copy(update={"programs": programs})

    def served(self, name: str) -> int:
        """How often a program has begun to serve, as its log tells; 0 for one that does not."""
        log = self._stack.log(name)
        return log.read_text(errors="replace").count(SERVES) if log.exists() else 0

    def serves_anew(self, before: Mapping[str, int]) -> bool:
        """Whether each of them has begun to serve since; `before` is what `served` was."""
        return all(not count or self.served(name) > count for name, count in before.items())

    def answer(self, names: Iterable[str]) -> bool:
        """Whether these programs run and answer, whatever the others do."""
        return set(names) <= {
            program.name for program in program_states(self._stack) if program.ready
        }


class CloudRoom:
    """One stack and one market, for as long as the block lasts."""

    def __init__(
        self, tell: Callable[[str], None], market: Market, database: Name = "sqlite"
    ) -> None:
        self.tell, self.market = tell, market
        self.folder = Path(tempfile.mkdtemp(prefix="baseload-cloud-room-"))
        home = self.folder / "home"
        self.server = RestartedServer() if database == "postgresql" else None
        self.database: RoomDatabase = self.server or SqliteFile(home)
        settings = {"job_end_grace_s": JOB_END_GRACE_S, **market.settings, **self.database.settings}
        self.stack = CloudStack(home, market, **settings)
        self._held: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.runs = Runs()
        self.platform: PatientPlatform
        self.enabled = Enabled()

    async def open(self) -> None:
        """Until machines can be had. Raises: TimeoutError, AssertionError."""
        await self.runs.open()
        await aside(self.stack.wait_until_ready, 180.0)
        self.platform = PatientPlatform(self.stack.url, self.stack.administrator_key)
        own = (await aside(self.platform.get, "/v1/account"))["id"]
        granted = {"amount_microcredits": CREDITS}
        await aside(self.platform.post, f"/v1/accounts/{own}/credits", granted)
        self.market.watch(self.rows)
        self.enabled = await aside(self.market.enable, self.platform)
        if self.market.reads_offers:
            await self._read_offers()

    async def _read_offers(self) -> None:
        """Have them read now, and not within minutes."""
        temporal = await Client.connect(self.stack.temporal_address)
        await temporal.get_schedule_handle(OFFERS).trigger()
        count = "SELECT COUNT(*) FROM rental_offers"
        await eventually(lambda: self.rows(count)[0][0], "what the market offers is known")

    def rows(self, query: str) -> Rows:
        """What the database answers."""
        return self.database.rows(query)

    @asynccontextmanager
    async def held(self, names: Iterable[str]) -> AsyncIterator[None]:
        """Nobody else does anything to these programs meanwhile."""
        async with AsyncExitStack() as stack:
            for name in sorted(names):
                await stack.enter_async_context(self._held[name])
            yield

    async def end(self) -> list[str]:
        """Have no provider any more; what is left there, and the leases that live, afterwards."""
        await aside(self.market.end, self.platform, self.enabled)
        left = [f"machine {each.name}: {each.state}" for each in self.market.machines()]
        live = "SELECT name, status FROM leases WHERE status NOT IN ('released', 'refused')"
        left += [f"lease {name}: {status}" for name, status in self.rows(live)]
        charged = [each for each in self.market.charges() if each.ended_at is None]
        return left + [f"machine {each.name}: is charged" for each in charged]

    def close(self, evidence: Path | None = None) -> None:
        """evidence: where the stack's home is copied to."""
        lose_patience(self)
        try:
            self.stack.close()
            if evidence is not None:
                shutil.copytree(self.stack.home, evidence, dirs_exist_ok=True)
        finally:
            self.runs.close()
            self.market.close()
            self.database.close()
            shutil.rmtree(self.folder, ignore_errors=True)
