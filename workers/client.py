"""The Temporal client of a process, as the settings describe it."""

import asyncio
import contextlib

import structlog
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.client import Client
from temporalio.runtime import PrometheusConfig, Runtime, TelemetryConfig
from temporalio.service import RPCError, RPCStatusCode, TLSConfig

from activities.settings import Settings
from activities.temporal.payload_codec import data_converter

SEARCH_ATTRIBUTES = (
    "AccountId",
    "ProjectId",
    "RegionId",
    "NodeId",
    "ProviderKind",
    "GpuType",
    "ResourceStatus",
    "JobType",
    "LeaseId",
    "ClusterId",
)
"""All ten keywords that a server allows. Nothing sets ClusterId until clusters exist; it is
registered now so that its place is not taken."""
LIST_SEARCH_ATTRIBUTES = ("ResourceName",)
"""Lists of keywords, of which a server allows three. A workflow is found without them too."""
RETRY_INTERVAL_S = 1.0

log = structlog.get_logger("temporal")


async def connect(settings: Settings, runtime: Runtime | None = None) -> Client:
    """Connect to Temporal. Raises: RuntimeError, when the server does not answer."""
    return await _connect(settings, lazy=False, runtime=runtime)


async def connect_until(
    settings: Settings, stop: asyncio.Event, runtime: Runtime | None = None
) -> Client | None:
    """Connect to Temporal, retrying every second until its server answers; None if stopped first.

    runtime: the SDK's threads and metrics; None: the default runtime, without metrics.
    """
    is_logged = False
    while not stop.is_set():
        try:
            return await connect(settings, runtime)
        except (RuntimeError, OSError) as error:
            if not is_logged:
                log.warning("waits for temporal", address=settings.temporal_address, why=str(error))
                is_logged = True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), RETRY_INTERVAL_S)
    return None


async def lazy_client(settings: Settings) -> Client:
    """A client that connects at its first call, so that the API also serves without Temporal."""
    return await _connect(settings, lazy=True)


async def ensure_search_attributes(client: Client) -> None:
    """Register the search attributes of the workflows; a refusal is only logged.

    A server may let only its administrator register them.
    """
    kinds = (
        (SEARCH_ATTRIBUTES, IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD),
        (LIST_SEARCH_ATTRIBUTES, IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD_LIST),
    )
    # One request for each kind: a server may refuse all of one for those that it has already.
    for names, kind in kinds:
        request = AddSearchAttributesRequest(
            search_attributes=dict.fromkeys(names, kind), namespace=client.namespace
        )
        try:
            await client.operator_service.add_search_attributes(request)
        except RPCError as error:
            if error.status is not RPCStatusCode.ALREADY_EXISTS:
                log.warning("search attributes were not registered", why=error.message)


def measured(settings: Settings) -> Runtime | None:
    """The runtime that serves a worker's metrics at the address of the settings; None without one.

    Raises: ValueError, when the port is taken.
    """
    if settings.metrics is None:
        return None
    shown = PrometheusConfig(bind_address=settings.metrics)
    return Runtime(telemetry=TelemetryConfig(metrics=shown))


async def _connect(settings: Settings, *, lazy: bool, runtime: Runtime | None = None) -> Client:
    return await Client.connect(
        settings.temporal_address,
        namespace=settings.temporal_namespace,
        data_converter=data_converter(settings),
        api_key=settings.temporal_api_key,
        tls=_tls(settings),
        lazy=lazy,
        runtime=runtime,
    )


def _tls(settings: Settings) -> TLSConfig | bool:
    if settings.temporal_tls_cert and settings.temporal_tls_key:
        return TLSConfig(
            client_cert=settings.temporal_tls_cert.read_bytes(),
            client_private_key=settings.temporal_tls_key.read_bytes(),
        )
    return settings.temporal_api_key is not None
