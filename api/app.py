"""The API application: routes, limits and problem details.

The application reads rows. To change a resource it writes a row and an outbox row for the
resource's workflow, in one transaction.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from pydantic.json_schema import models_json_schema

from activities.outbox.dispatcher import OutboxDispatcher
from activities.settings import settings
from api import guide, problems
from api.audit_notes import Reads, Refusals
from api.body_limits import Limited
from api.documentation import get_console_program, get_documentation, get_join_script, get_start
from api.event_streams import Streams
from api.job_file_schema import PATH as JOB_FILE_SCHEMA
from api.job_file_schema import get_job_file_schema
from api.json_bodies import Readable
from api.metrics import Measured
from api.rate_limits import Rate
from api.response_headers import Headed
from api.routes import (
    accounts,
    announcements,
    artifacts,
    audit,
    billing,
    boot_drive_requests,
    colab,
    costs,
    credentials,
    data_progress,
    datastores,
    deployments,
    device_configurations,
    device_logs,
    devices,
    events,
    federated_jobs,
    health,
    invitations,
    job_logs,
    jobs,
    join_tokens,
    leases,
    members,
    memberships,
    nodes,
    offers,
    platform,
    projects,
    provider_machines,
    providers,
    quotas,
    reconciliations,
    regions,
    reservations,
    sessions,
    tco,
    third_party_keys,
    uploads,
    usage,
    users,
    utilisation,
)
from api.schemas.base import ProblemDetails
from api.schemas.devices import DeviceLogPiece
from api.schemas.events import LogPiece
from api.services.invitations import ATTEMPTS_PER_MINUTE
from api.services.uploads import Receiving
from api.sessions import device_logs as logs
from api.sessions.entrance import SessionCounts
from api.sessions.proxy import JobPages
from api.sessions.switchboard import Switchboard
from workflows.contracts.job_submission import JobSubmission

ROUTERS = (
    health, platform, accounts, users, invitations, memberships, projects, members, providers,
    quotas, regions, nodes,
    join_tokens, announcements, leases, provider_machines, reconciliations, uploads, offers,
    jobs, job_logs, federated_jobs,
    artifacts, third_party_keys, sessions, utilisation, data_progress, billing, usage, costs, tco,
    datastores, reservations, devices, device_logs, device_configurations, deployments,
    boot_drive_requests, events, audit, credentials, colab,
)  # fmt: skip
RELAY_LIMIT_S = 1.0
DESCRIPTION = """Own the base, rent the burst.

Send `Authorization: Bearer bl_…`. POSTs honour `Idempotency-Key`, for
48 hours. Lists are newest first:
`?limit=&after=`. A refusal is answered with problem details and a stable `code`."""


def create_app(
    outbox_dispatcher: OutboxDispatcher,
    check_temporal: Callable[[], Awaitable[Any]],
    stop: asyncio.Event | None = None,
) -> FastAPI:
    """The application, for one process.

    outbox_dispatcher: relays outbox rows to Temporal, after their commit.
    check_temporal: raises unless Temporal answers. stop: set when the process must stop.
    """
    app = FastAPI(
        title="baseload",
        version="1",
        description=DESCRIPTION,
        responses={"default": {"model": ProblemDetails, **_problem_description()}},
        lifespan=_lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.add_api_route("/", get_start, include_in_schema=False)
    app.add_api_route("/docs", get_documentation, include_in_schema=False)
    app.add_api_route(JOB_FILE_SCHEMA, get_job_file_schema, include_in_schema=False)
    app.add_api_route("/join.sh", get_join_script, include_in_schema=False)
    app.add_api_route("/console.py", get_console_program, include_in_schema=False)
    app.state.outbox_dispatcher = outbox_dispatcher
    app.state.check_temporal = check_temporal
    app.state.stop = stop or asyncio.Event()
    app.state.streams = Streams()
    app.state.refusals = Refusals()
    app.state.reads = Reads()
    app.state.receiving = Receiving()
    app.state.switchboard = Switchboard()
    app.state.session_counts = SessionCounts()
    app.state.device_log_counts = SessionCounts(
        logs.MOST_OF_KEY, logs.MOST_OF_DEVICE, logs.MOST_OF_ACCOUNT
    )
    app.state.pages = JobPages(app.state.switchboard)
    app.state.request_rate = Rate(settings().requests_per_minute)
    app.state.account_request_rate = Rate(settings().account_requests_per_minute)
    app.state.own_request_rate = Rate(settings().requests_per_minute)
    app.state.acceptance_rate = Rate(ATTEMPTS_PER_MINUTE)
    app.state.announcement_rate = Rate(settings().announcements_per_minute)
    problems.install(app)
    guide.install(app, settings().guide)
    for module in ROUTERS:
        app.include_router(module.router)
    app.add_middleware(Readable)
    app.add_middleware(Limited)
    app.add_middleware(Headed)
    app.add_middleware(Measured)
    generate = app.openapi
    app.openapi = lambda: _completed(generate())  # type: ignore[method-assign]
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    writing = asyncio.create_task(app.state.refusals.write_regularly(), name="refusals")
    yield
    writing.cancel()
    app.state.switchboard.close()
    await asyncio.to_thread(app.state.refusals.write)
    # The dispatcher may finish the rows that it relays now; the workflow `OutboxRelay` relays
    # the others.
    await app.state.outbox_dispatcher.settled(RELAY_LIMIT_S)


def _problem_description() -> dict[str, Any]:
    return {
        "description": "Problem details (RFC 9457)",
        "content": {problems.MEDIA_TYPE: {"schema": _reference("ProblemDetails")}},
    }


def _completed(document: dict[str, Any]) -> dict[str, Any]:
    """The document with the schemas that no route declares, and problems as they are sent.

    FastAPI says of problems that they also have the media type of the route's own answer.
    """
    schemas = document["components"]["schemas"]
    if "JobSubmission" not in schemas:
        reference = "#/components/schemas/{model}"
        _, found = models_json_schema(
            [
                (JobSubmission, "validation"),
                (LogPiece, "serialization"),
                (DeviceLogPiece, "serialization"),
            ],
            ref_template=reference,
        )
        for name, schema in found["$defs"].items():
            schemas.setdefault(name, schema)
        document["components"]["schemas"] = dict(sorted(schemas.items()))
        for operations in document["paths"].values():
            for operation in operations.values():
                operation["responses"]["default"] = _problem_description()
    return document


def _reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}
