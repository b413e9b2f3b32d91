"""`temporal_server`: a Temporal dev server for the session, with a namespace for each module."""

import asyncio
import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest
from google.protobuf.duration_pb2 import Duration
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter

from workers.client import (
    LIST_SEARCH_ATTRIBUTES,
    SEARCH_ATTRIBUTES,
    ensure_search_attributes,
)
from workers.runner.probes import free_port

CHECKOUT = Path(__file__).parent.parent
_START_LIMIT_S = 120.0
_PAUSE_S = 0.1
_RETENTION_S = 24 * 3600

FRUGAL = {"GOMAXPROCS": "1", "GOGC": "400"}
"""Several servers share two cores: each has one thread, and collects its garbage more rarely."""
FEW_PARTITIONS = (
    "matching.numTaskqueueReadPartitions=1",
    "matching.numTaskqueueWritePartitions=1",
)
NO_SCHEDULES = ("worker.perNamespaceWorkerCount=0",)
"""An idle server polls for its schedules in each namespace, which hardly any test needs."""


class TemporalServer:
    """One dev server on a port of its own; what it knows outlives a stop and a start.

    durable: False where nothing is to outlive it: then it writes no file.
    schedules: True where schedules are to run. ui: True where its UI is to be served, at `ui_port`.
    environment: of the process, besides our own.
    """

    def __init__(
        self,
        folder: Path,
        *,
        durable: bool = True,
        schedules: bool = False,
        ui: bool = False,
        environment: Mapping[str, str] = FRUGAL,
    ) -> None:
        self.folder = folder
        self._environment = environment
        self._durable = durable
        self._has_ui = ui
        self._settings = FEW_PARTITIONS if schedules else (*FEW_PARTITIONS, *NO_SCHEDULES)
        self._take_ports()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """Raises: RuntimeError, unless it runs."""
        if self._process is None:
            raise RuntimeError("temporal: does not run")
        return self._process.pid

    def start(self) -> None:
        with (self.folder / "temporal.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(temporal_binary()), "server", "start-dev", *self._flags()],
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **self._environment},
            )

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait(10)
        self._process = None

    async def connect(self) -> Client:
        """A client, as soon as the server answers. Raises: RuntimeError, with its log."""
        deadline = asyncio.get_running_loop().time() + _START_LIMIT_S
        while True:
            try:
                client = await Client.connect(self.address, data_converter=pydantic_data_converter)
                await client.count_workflows()
            except Exception as cause:
                self._start_elsewhere_if_ended()
                if asyncio.get_running_loop().time() > deadline:
                    log = (self.folder / "temporal.log").read_text()[-2000:]
                    raise RuntimeError(f"temporal: not up in {_START_LIMIT_S} s: {log}") from cause
                await asyncio.sleep(_PAUSE_S)
            else:
                return client

    async def namespace(self) -> Client:
        """A client of a new namespace: what other tests left behind is not served there."""
        default = await self.connect()
        name = f"tests-{uuid.uuid4().hex[:12]}"
        await default.workflow_service.register_namespace(
            RegisterNamespaceRequest(
                namespace=name,
                workflow_execution_retention_period=Duration(seconds=_RETENTION_S),
            )
        )
        client = await Client.connect(
            self.address, namespace=name, data_converter=pydantic_data_converter
        )
        await ensure_search_attributes(client)
        return client

    def _start_elsewhere_if_ended(self) -> None:
        """Somebody else may have taken one of its ports before it could."""
        if self._process is not None and self._process.poll() is not None:
            self._take_ports()
            self.start()

    def _take_ports(self) -> None:
        self.port, self.ui_port, *self._more_ports = (free_port() for _ in range(4))

    def _flags(self) -> list[str]:
        http, metrics = self._more_ports
        flags = [
            *("--ip", "127.0.0.1", "--port", str(self.port)),
            *(("--ui-port", str(self.ui_port)) if self._has_ui else ("--headless",)),
            *("--http-port", str(http), "--metrics-port", str(metrics)),
            *("--log-level", "error"),
            *("--dynamic-config-value", "history.transferProcessorMaxPollRPS=1000"),
        ]
        for setting in self._settings:
            flags += ["--dynamic-config-value", setting]
        if self._durable:
            flags += ["--db-filename", str(self.folder / "temporal.db")]
            flags += ["--sqlite-pragma", "journal_mode=WAL", "--sqlite-pragma", "synchronous=FULL"]
        for name in SEARCH_ATTRIBUTES:
            flags += ["--search-attribute", f"{name}=Keyword"]
        for name in LIST_SEARCH_ATTRIBUTES:
            flags += ["--search-attribute", f"{name}=KeywordList"]
        return flags


def temporal_binary() -> Path:
    """Raises: FileNotFoundError, when none is set up."""
    note = CHECKOUT / ".baseload" / "temporal-binary"
    candidates = (
        os.environ.get("BASELOAD_TEMPORAL"),
        note.read_text().strip() if note.exists() else None,
        shutil.which("temporal"),
        str(Path.home() / ".cache" / "baseload" / "temporal-1.5.1"),
    )
    return _program(candidates, "no Temporal binary: make setup finds, downloads or builds it")


def tctl_binary() -> Path:
    """Raises: FileNotFoundError, when none is built."""
    candidates = (
        str(CHECKOUT / ".baseload" / "bin" / "tctl"),
        shutil.which("tctl"),
        str(Path.home() / ".cache" / "baseload" / "tctl-1.18.0"),
    )
    return _program(candidates, "no tctl: make tctl builds it")


def _program(candidates: Iterable[str | None], without: str) -> Path:
    for candidate in candidates:
        if candidate and os.access(candidate, os.X_OK):
            return Path(candidate)
    raise FileNotFoundError(without)


@pytest.fixture(scope="session")
def temporal_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporalServer]:
    try:
        temporal_binary()
    except FileNotFoundError as cause:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(cause))
    server = TemporalServer(tmp_path_factory.mktemp("temporal"), durable=False)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
async def temporal_server(temporal_process: TemporalServer) -> Client:
    return await temporal_process.namespace()
