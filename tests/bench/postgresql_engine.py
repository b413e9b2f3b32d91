"""The stack with Temporal's own server on PostgreSQL instead of the dev server on SQLite."""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from google.protobuf.duration_pb2 import Duration
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCError

from tests.e2e.stack import TEMPORAL_PROGRAM, RunningStack
from tests.postgresql_server import PostgresqlServer
from tests.temporal_server import CHECKOUT, FRUGAL
from workers.client import ensure_search_attributes
from workers.runner.probes import free_port
from workers.runner.stack import Program, Stack

NAMESPACE = "default"
START_LIMIT_S = 60.0
OPTIONS = "-c listen_addresses=127.0.0.1 -c shared_buffers=128MB -c max_connections=200"
"""What is committed is on the disk, as with the dev server in this bench."""
USER = "baseload"
SERVICES = ("frontend", "matching", "history", "worker")


class OnPostgresqlStack(RunningStack):
    """The same stack, whose Temporal is the server of the folder in `engine`."""

    engine: ClassVar["PostgresqlEngine"]

    def _plan(self, environment: dict[str, str]) -> Stack:
        stack = super()._plan(environment)
        port = self._runner_settings.temporal_port
        self.engine.prepare(port)
        programs = [
            self._on_postgresql(one) if one.name == TEMPORAL_PROGRAM else one
            for one in stack.programs
        ]
        return stack.model_copy(update={"programs": tuple(programs)})

    def _on_postgresql(self, temporal: Program) -> Program:
        changes = {"command": self.engine.command, "bootstrap": None, "listens": ()}
        return temporal.model_copy(update=changes)


class PostgresqlEngine:
    """A PostgreSQL with Temporal's tables, and the configuration of a server on it.

    Raises: FileNotFoundError, when PostgreSQL is not installed, or the server cannot be built.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        # The server and its tools take the port from here; this process is of this step alone.
        os.environ["PGPORT"] = str(self.port)
        self.database = PostgresqlServer(OPTIONS)
        self._server, self._sql_tool = _programs()
        self.command = (
            str(self._server), "--root", str(folder), "--env", "bench", "--allow-no-auth", "start",
        )  # fmt: skip

    def start(self) -> None:
        """Start PostgreSQL, and make Temporal's tables in it."""
        self.database.start()
        for name in ("temporal", "visibility"):
            self._sql(name, "create-database")
            self._sql(name, "setup-schema", "-v", "0.0")
            self._sql(name, "update-schema", "--schema-name", f"postgresql/v12/{name}")

    def prepare(self, port: int) -> None:
        """Write the configuration of a server at this port, and make its namespace with it."""
        self._configure(port)
        with (self.folder / "server.log").open("ab") as log:
            server = subprocess.Popen(
                self.command, stdout=log, stderr=log, env={**os.environ, **FRUGAL}
            )
        try:
            asyncio.run(_make_namespace(f"127.0.0.1:{port}"))
        finally:
            server.terminate()
            server.wait(60)

    def stop(self) -> None:
        self.database.stop()

    def _sql(self, name: str, *arguments: str) -> None:
        where = ("--plugin", "postgres12", "--ep", "127.0.0.1", "-p", str(self.port), "-u", USER)
        command = [str(self._sql_tool), *where, "--db", name, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")

    def _configure(self, port: int) -> None:
        """JSON is YAML."""
        config = self.folder / "config"
        config.mkdir(exist_ok=True)
        dynamic = self.folder / "dynamic.yaml"
        dynamic.write_text(
            json.dumps(
                {
                    "matching.numTaskqueueReadPartitions": [{"value": 1}],
                    "matching.numTaskqueueWritePartitions": [{"value": 1}],
                    "history.transferProcessorMaxPollRPS": [{"value": 1000}],
                }
            )
        )
        (config / "bench.yaml").write_text(json.dumps(self._settings(port, dynamic)))

    def _settings(self, port: int, dynamic: Path) -> dict[str, Any]:
        return {
            "log": {"stdout": True, "level": "warn"},
            "persistence": {
                "defaultStore": "temporal",
                "visibilityStore": "visibility",
                "numHistoryShards": 4,
                "datastores": {name: self._store(name) for name in ("temporal", "visibility")},
            },
            "global": {"membership": {"broadcastAddress": "127.0.0.1"}},
            "services": {
                name: {
                    "rpc": {
                        "grpcPort": port if name == "frontend" else free_port(),
                        "membershipPort": free_port(),
                        "bindOnLocalHost": True,
                    }
                }
                for name in SERVICES
            },
            "clusterMetadata": {
                "enableGlobalNamespace": False,
                "failoverVersionIncrement": 10,
                "masterClusterName": "active",
                "currentClusterName": "active",
                "clusterInformation": {
                    "active": {
                        "enabled": True,
                        "initialFailoverVersion": 1,
                        "rpcName": "frontend",
                        "rpcAddress": f"127.0.0.1:{port}",
                    }
                },
            },
            "publicClient": {"hostPort": f"127.0.0.1:{port}"},
            "dynamicConfigClient": {"filepath": str(dynamic), "pollInterval": "10s"},
        }

    def _store(self, name: str) -> dict[str, Any]:
        address = {"connectAddr": f"127.0.0.1:{self.port}", "connectProtocol": "tcp"}
        sql = {"pluginName": "postgres12", "databaseName": name, "user": USER, **address}
        return {"sql": {**sql, "maxConns": 20, "maxIdleConns": 20}}


@contextmanager
def postgresql_engine() -> Iterator[PostgresqlEngine]:
    """An engine with its PostgreSQL, until this is left."""
    with tempfile.TemporaryDirectory(prefix="baseload-bench-engine-") as folder:
        engine = PostgresqlEngine(Path(folder))
        try:
            engine.start()
            yield engine
        finally:
            engine.stop()


def _programs() -> tuple[Path, Path]:
    """The server and its SQL tool; they are built once. Raises: FileNotFoundError, with why not."""
    script = CHECKOUT / "deploy" / "setup" / "temporal_server.py"
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise FileNotFoundError(f"no Temporal server: {done.stdout}{done.stderr}".strip())
    *_, server, sql_tool = done.stdout.split()
    return Path(server), Path(sql_tool)


async def _make_namespace(address: str) -> None:
    """Make the namespace with the search attributes of the workflows, and wait until it serves."""
    async with asyncio.timeout(START_LIMIT_S):
        while True:
            try:
                client = await Client.connect(address, namespace=NAMESPACE)
                await _register(client)
                await ensure_search_attributes(client)
                await client.count_workflows("ResourceStatus = 'running'")
            except (RuntimeError, RPCError):
                await asyncio.sleep(0.5)
            else:
                return


async def _register(client: Client) -> None:
    day = Duration(seconds=24 * 3600)
    request = RegisterNamespaceRequest(namespace=NAMESPACE, workflow_execution_retention_period=day)
    try:
        await client.workflow_service.register_namespace(request)
    except RPCError as error:
        if "already exists" not in str(error).lower():
            raise
