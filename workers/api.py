"""The API process: migrates the database, then serves HTTP until it is stopped."""

import asyncio
from typing import Any

from activities.db.session import database
from activities.lifecycles.kinds import KINDS
from activities.outbox.dispatcher import process_dispatcher
from activities.outbox.workflow_starts import register
from activities.settings import settings
from activities.temporal.client import client, set_client
from api.app import create_app
from api.sessions.pages import create_pages_app
from workers.client import lazy_client
from workers.database import prepare_database
from workers.process import serve_http, serve_http_once_free


async def serve_api(stop: asyncio.Event) -> int:
    """Serve until `stop` is set, and return the exit status.

    It listens as soon as the database answers. Temporal may start later: until then, outbox rows
    wait in the database.
    """
    register(KINDS)
    chosen = settings()
    if not await prepare_database(stop):
        return 0
    set_client(await lazy_client(chosen))
    host, _, port = chosen.api.rpartition(":")
    app = create_app(process_dispatcher(), _check_temporal, stop)
    served: Any = app  # An ASGI application, whose own types differ from uvicorn's.
    pages = asyncio.create_task(_serve_pages(app, stop), name="pages")
    status = await serve_http(served, host, int(port), stop)
    stop.set()
    await pages
    await asyncio.to_thread(database().close)
    return status


async def _serve_pages(app: Any, stop: asyncio.Event) -> None:
    """Serve the pages of jobs at their own address; until it is free, the API goes on without."""
    address = settings().endpoints_address
    if address is not None:
        served: Any = create_pages_app(app.state)
        await serve_http_once_free(served, *address, stop)


async def _check_temporal() -> None:
    await client().service_client.check_health()
