"""The database at the start of a process: waited for, migrated, and given the platform's keys."""

import asyncio
import contextlib
import time

import structlog

from activities.accounts.bootstrap import bootstrap
from activities.db.migrate import migrate
from activities.db.session import AWAY
from activities.settings import settings

RETRY_INTERVAL_S = 1.0
LOG_INTERVAL_S = 60.0

log = structlog.get_logger("database")


async def prepare_database(stop: asyncio.Event) -> bool:
    """Migrate the database and make the platform's keys, as soon as it answers; False if stopped.

    It asks every second, and says once a minute why it waits.
    """
    logged_at: float | None = None
    while not stop.is_set():
        try:
            await asyncio.to_thread(_prepare)
        except AWAY as error:
            now = time.monotonic()
            if logged_at is None or now - logged_at >= LOG_INTERVAL_S:
                log.warning("waits for the database", why=str(error).partition("\n")[0])
                logged_at = now
        else:
            return True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), RETRY_INTERVAL_S)
    return False


def _prepare() -> None:
    migrate(settings().database)
    bootstrap()
