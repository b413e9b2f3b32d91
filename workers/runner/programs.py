"""The stack of one machine: Temporal, an SSH server, the API and two workers."""

import sys
from pathlib import Path

from workers.runner.local_sshd import prepare_machine, ssh_program
from workers.runner.settings import CHECKOUT, RunnerSettings
from workers.runner.stack import (
    FirstStart,
    Listening,
    Probe,
    Program,
    Stack,
    make_folders,
    write_atomically,
)

LOOPBACK = "127.0.0.1"
SETTINGS_FILE = "settings"
SEARCH_ATTRIBUTES = (
    "AccountId", "ProjectId", "RegionId", "NodeId", "ProviderKind",
    "GpuType", "ResourceStatus", "JobType", "LeaseId", "ClusterId",
)  # fmt: skip
LIST_SEARCH_ATTRIBUTES = ("ResourceName",)
_TEMPORAL_SETTINGS = (
    "--sqlite-pragma", "journal_mode=WAL",
    "--sqlite-pragma", "synchronous=FULL",
    "--dynamic-config-value", "history.transferProcessorMaxPollRPS=1000",
)  # fmt: skip


def default_stack(settings: RunnerSettings) -> Stack:
    """The stack that `make up` runs; each program comes after the programs that it needs."""
    home = settings.home.absolute()
    machine = prepare_machine(home / "sshd")
    write_atomically(make_folders(home) / SETTINGS_FILE, settings.model_dump_json())
    environment = {
        "BASELOAD_HOME": str(home),
        "BASELOAD_API": settings.api,
        "BASELOAD_TEMPORAL_ADDRESS": f"{LOOPBACK}:{settings.temporal_port}",
        "BASELOAD_NODE_NETWORKS": settings.node_networks,
        "BASELOAD_CPU_CORE_HOUR_MICROCREDITS": str(settings.cpu_core_hour_microcredits),
    }
    return Stack(
        home=home,
        working_directory=CHECKOUT,
        programs=(
            temporal_program(settings, home / "temporal"),
            ssh_program(machine, embedded=settings.embedded_ssh),
            _api(settings, environment),
            _worker("worker", (), environment),
            _worker("planning", ("planning",), environment),
        ),
    )


def started_settings(settings: RunnerSettings) -> RunnerSettings:
    """The settings with which the home's stack was last started; later settings do not apply."""
    saved = settings.home.absolute() / "run" / SETTINGS_FILE
    return RunnerSettings.model_validate_json(saved.read_bytes()) if saved.exists() else settings


def temporal_program(settings: RunnerSettings, folder: Path) -> Program:
    """Temporal's dev server with its UI; its database is a file that stays after its end."""
    folder.mkdir(parents=True, exist_ok=True)
    database = folder / "temporal.db"
    files = tuple(Path(f"{database}{end}") for end in ("", "-wal", "-shm"))
    kinds = ((SEARCH_ATTRIBUTES, "Keyword"), (LIST_SEARCH_ATTRIBUTES, "KeywordList"))
    named = [f"{name}={kind}" for names, kind in kinds for name in names]
    attributes = [part for each in named for part in ("--search-attribute", each)]
    command = (
        str(temporal_binary(settings)), "server", "start-dev",
        "--ip", LOOPBACK,
        "--port", str(settings.temporal_port),
        "--ui-port", str(settings.ui_port),
        "--db-filename", str(database),
        "--namespace", "default",
        "--log-format", "json",
        "--log-level", "warn",
        *_TEMPORAL_SETTINGS,
        *attributes,
    )  # fmt: skip
    return Program(
        name="temporal",
        command=command,
        ready=Probe(kind="port", host=LOOPBACK, port=settings.temporal_port),
        listens=(
            _listening(settings.temporal_port, "Temporal", "BASELOAD_TEMPORAL_PORT"),
            _listening(settings.ui_port, "the Temporal UI", "BASELOAD_UI_PORT"),
        ),
        bootstrap=FirstStart(marker=folder / "created", discard=files),
    )


def temporal_binary(settings: RunnerSettings) -> Path:
    """The Temporal binary of the settings, or the binary that `make setup` has found or made.

    Raises: FileNotFoundError, with what to do, when there is none.
    """
    noted = CHECKOUT / ".baseload" / "temporal-binary"
    binary = settings.temporal
    if binary is None and noted.exists():
        binary = Path(noted.read_text().strip())
    if binary is None or not binary.exists():
        raise FileNotFoundError(f"no Temporal binary at {binary or noted}: run `make setup`")
    return binary


def _api(settings: RunnerSettings, environment: dict[str, str]) -> Program:
    probe = Probe(kind="http", host=settings.api_host, port=settings.api_port, path="/readyz")
    purpose = Listening(
        host=settings.api_host,
        port=settings.api_port,
        purpose="the API",
        setting="BASELOAD_API=127.0.0.1:PORT",
    )
    return Program(
        name="api",
        command=(sys.executable, "-m", "workers", "api"),
        environment=environment,
        ready=probe,
        listens=(purpose,),
        after=("temporal",),
    )


def _worker(name: str, arguments: tuple[str, ...], environment: dict[str, str]) -> Program:
    """A worker process; the first of the API and the two workers migrates the database."""
    return Program(
        name=name,
        command=(sys.executable, "-m", "workers", *arguments),
        environment=environment,
        after=("temporal",),
    )


def _listening(port: int, purpose: str, setting: str) -> Listening:
    return Listening(host=LOOPBACK, port=port, purpose=purpose, setting=f"{setting}=PORT")
