"""A day of federated jobs from a service: created with a key of its own rate, then followed."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from sqlmodel import func, select

from activities.db import tables
from activities.outbox.dispatcher import OutboxDispatcher
from activities.secrets.platform_key import make_platform_key
from activities.secrets.sealing import make_master_key
from activities.settings import settings
from api.app import create_app
from tests.api.federated_rows import Story, story
from tests.api.http_server import Person, Site
from tests.bench.home import home
from tests.bench.measure import Row, ms, share_below
from tests.bench.stack import scaled

JOBS = 300
KEY_PER_MINUTE = 120
CLIENTS = 4
ROUTE = "/v1/federated-jobs"
AIM_S = 0.1
COUNTED = {
    "federated jobs": tables.FederatedJob,
    "events": tables.EventRow,
    "outbox rows": tables.OutboxRow,
    "idempotency keys": tables.IdempotencyKey,
}


def rows() -> list[Row]:
    """Two rows: what the service waits for as it creates them, and as it follows all of them."""
    return asyncio.run(_measured(scaled(JOBS)))


async def _measured(jobs: int) -> list[Row]:
    async with _site() as site:
        parties = await story(site)
        service = parties.maker.with_key(requests_per_minute=KEY_PER_MINUTE)
        before = _counts(site)
        started, worked = time.perf_counter(), time.process_time()
        answers_s, refusals = await _create(parties, service, jobs)
        seconds, worked_s = time.perf_counter() - started, time.process_time() - worked
        added = [after - had for after, had in zip(_counts(site), before, strict=True)]
        followed_s, pages = await _follow(parties.maker)
        await site.settled()
    if added[0] != jobs:
        raise AssertionError(f"{jobs} federated jobs: {added[0]} rows")
    written = ", ".join(f"{count:,} {name}" for count, name in zip(added, COUNTED, strict=True))
    p95_s = share_below(answers_s, 0.95)
    return [
        Row(
            f"{jobs} federated jobs, {CLIENTS} clients of one key, {KEY_PER_MINUTE} requests/min",
            f"{seconds:.1f} s, {ms(worked_s / jobs)} of CPU each",
            f"{refusals} refused for the rate, and sent again; rows: {written}",
        ),
        Row(
            "answer to a federated job that is created, p50 and p95",
            f"{ms(share_below(answers_s, 0.5))}, {ms(p95_s)}",
            "",
            f"p95 < {ms(AIM_S)}",
            p95_s < AIM_S,
        ),
        Row(f"following {jobs} federated jobs: the list, {pages} pages of 100", ms(followed_s)),
    ]


async def _create(parties: Story, service: Person, jobs: int) -> tuple[list[float], int]:
    """The seconds of each answer that has created one, and how many were refused for the rate."""
    answers_s: list[float] = []
    refusals = 0
    numbers = iter(range(jobs))

    async def client() -> None:
        nonlocal refusals
        for number in numbers:
            body = parties.changed(name=f"read-{number}")
            key = {"Idempotency-Key": f"read-{number}"}
            while True:
                started = time.perf_counter()
                answer = await service.call("POST", ROUTE, key, json=body)
                if answer.status_code != 429:
                    break
                refusals += 1
                await asyncio.sleep(float(answer.headers["Retry-After"]))
            answer.raise_for_status()
            answers_s.append(time.perf_counter() - started)

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return answers_s, refusals


async def _follow(maker: Person) -> tuple[float, int]:
    """The seconds of reading the list of all of them, and its pages."""
    started, pages, after = time.perf_counter(), 0, None
    while pages == 0 or after is not None:
        query = {"limit": "100"} | ({} if after is None else {"after": after})
        answer = await maker.get(ROUTE, params=query)
        answer.raise_for_status()
        pages, after = pages + 1, answer.json()["next"]
    return time.perf_counter() - started, pages


def _counts(site: Site) -> Sequence[int]:
    with site.database.read() as session:
        return [
            session.exec(select(func.count()).select_from(each)).one() for each in COUNTED.values()
        ]


@asynccontextmanager
async def _site() -> AsyncIterator[Site]:
    """The application with a database of its own; workflows are handed nothing to."""
    with home() as (_, opened):
        make_master_key(settings().master_key_path)
        make_platform_key(settings().platform_key_path)

        async def nothing(*_: object) -> None:
            """Temporal is not there, and is not asked."""

        dispatcher = OutboxDispatcher(nothing)
        built = Site(opened, create_app(dispatcher, nothing))
        dispatcher.relay = built.relay
        yield built
