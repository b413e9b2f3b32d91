"""Metrics for Prometheus: the requests that were answered, and the resources by status."""

import time
from collections.abc import Iterable
from datetime import UTC, datetime

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Histogram,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlmodel import Session, col, func, select
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from activities.db import tables
from activities.db.session import database
from activities.lifecycles.kinds import KINDS
from activities.outbox.requests import is_waiting
from workflows.contracts.statuses import ProviderStatus
from workflows.rules.catalogue.providers import cloud_kinds

REGISTRY = CollectorRegistry()
REQUESTS = Counter(
    "baseload_http_requests_total",
    "Requests by route and status.",
    ("method", "route", "status"),
    registry=REGISTRY,
)
SECONDS = Histogram(
    "baseload_http_request_seconds",
    "Seconds until the answer began.",
    ("method", "route"),
    registry=REGISTRY,
)


class _Resources(Collector):
    """The number of resources by status, counted at each scrape."""

    def collect(self) -> Iterable[Metric]:
        with database().read() as session:
            for kind in KINDS:
                plural = kind.noun.plural
                gauge = GaugeMetricFamily(f"baseload_{plural}", f"{plural}.", labels=["status"])
                state = col(kind.table.status)
                for status, count in session.exec(select(state, func.count()).group_by(state)):
                    gauge.add_metric([status], count)
                yield gauge
            yield _unreconciled(session)
            waiting = select(func.count()).where(is_waiting())
            yield GaugeMetricFamily(
                "baseload_requests_undelivered",
                "Outbox rows that have not been relayed to Temporal yet.",
                value=session.exec(waiting).one(),
            )
            parked = select(func.count()).where(col(tables.OutboxRow.parked_at).is_not(None))
            yield GaugeMetricFamily(
                "baseload_requests_parked",
                "Outbox rows that could not be relayed to Temporal for a day.",
                value=session.exec(parked).one(),
            )


def _unreconciled(session: Session) -> Metric:
    """The age of each cloud's last complete reconciliation; of a new one, since it was added."""
    gauge = GaugeMetricFamily(
        "baseload_provider_unreconciled_seconds",
        "Since a provider's machines were last reconciled with its leases.",
        labels=["provider"],
    )
    query = select(
        tables.Provider.id, tables.Provider.reconciled_at, tables.Provider.created_at
    ).where(
        col(tables.Provider.kind).in_(cloud_kinds()),
        tables.Provider.status != ProviderStatus.ARCHIVED,
    )
    for provider_id, reconciled_at, created_at in session.exec(query):
        gauge.add_metric(
            [provider_id], (datetime.now(UTC) - (reconciled_at or created_at)).total_seconds()
        )
    return gauge


# The collector is not in REGISTRY: registering it there would read the database at import.
_RESOURCES = _Resources()


def exposition() -> tuple[bytes, str]:
    """All metrics as text, and its media type."""
    own = CollectorRegistry(auto_describe=False)
    own.register(_RESOURCES)
    return generate_latest(REGISTRY) + generate_latest(own), CONTENT_TYPE_LATEST


class Measured:
    """The middleware that counts and times each request under the path template of its route."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path", "none")
                SECONDS.labels(scope["method"], route).observe(time.perf_counter() - began)
                REQUESTS.labels(scope["method"], route, str(message["status"])).inc()
            await send(message)

        await self._app(scope, receive, counted)
