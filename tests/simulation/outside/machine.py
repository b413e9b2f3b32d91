"""One machine: its power, its network, its clocks, and the runs on it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from tests.simulation.behaviour import Behaviour
from tests.simulation.contracts import Cancellable, Process, Temporal
from tests.simulation.outside.connection import Connection
from tests.simulation.outside.timer import Timer
from workflows.contracts.nodes import Gpu, Hardware

if TYPE_CHECKING:
    from tests.simulation.outside.runs import Run

SHUTDOWN_S = 12.0
"""How long a machine that is told to restart waits for its commands at most."""
GPU = "NVIDIA A100-SXM4-80GB"
GPU_MIB = 81920
SOLD_GPU = "NVIDIA A100-SXM4-40GB", 40_960
GIB = 1 << 30
FREE_DISK_BYTES = 2000 * GIB
MOST_DRIFT = 2e-4
"""How much faster or slower the clock of a machine is, at most."""


@dataclass
class Commands:
    """What is known of commands on all machines together."""

    behaviours: dict[str, Behaviour] = field(default_factory=dict)
    """What the commands of jobs do, by job id."""
    started: dict[str, str] = field(default_factory=dict)
    """On which machine the command of each run was started, by run id."""
    most_s: float = float("inf")
    """How long a command may take, but for services."""
    most_hang_s: float = float("inf")
    """How long one may be in uninterruptible sleep."""


@dataclass(eq=False)
class Machine:
    """A machine with an SSH server, as the sites reach it."""

    temporal: Temporal
    name: str
    host: str
    minion_id: str
    gpus: int
    cpu_count: int
    memory_bytes: int
    is_leased: bool
    commands: "Commands"
    boots: int = 1
    has_power: bool = True
    has_ended: bool = False
    """It will never answer again."""
    is_disk_full: bool = False
    is_lying: bool = False
    """It says what our agent never says."""
    has_joined: bool = True
    """Its owner has run join.sh; nobody has to for a leased machine."""
    takes_guests: bool = False
    """Whether it can hold guests off, in containers, and has GPUs that have a market price."""
    left: set[str] = field(default_factory=set)
    """The regions whose key was withdrawn since it has joined."""
    regions: set[str] = field(default_factory=set)
    """Whose sites have reached it."""
    clock_offset: timedelta = timedelta(0)
    """How wrong its wall clock is."""
    runs: "dict[str, Run]" = field(default_factory=dict)
    """The folders of runs, by the name that the run has on its node (`run_names.py`)."""
    live: "dict[Run, None]" = field(default_factory=dict)
    """The runs with a live process, in order of their start."""
    removed: set[str] = field(default_factory=set)
    """The tombstones of removed runs, as activities/agent/files/removal.py."""
    every_process: list[Process] = field(default_factory=list)
    connections: dict[Connection, None] = field(default_factory=dict)
    timers: dict[Timer, None] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    rate: float = 1.0
    """How many seconds its clocks count in one second."""
    _outages: list[Cancellable] = field(default_factory=list)
    _suspended_s: float = 0.0
    _stands_at_s: float | None = None
    """What its clock says while it is suspended."""
    _began: datetime | None = None

    def __post_init__(self) -> None:
        self._began = self.temporal.now()
        self.rate = 1 + self.temporal.random.uniform(-MOST_DRIFT, MOST_DRIFT)

    # ── what it is ──────────────────────────────────────────────────────────────────────────

    @property
    def boot_id(self) -> str:
        return f"{self.name}-boot-{self.boots}"

    @property
    def is_suspended(self) -> bool:
        return self._stands_at_s is not None

    @property
    def is_reachable(self) -> bool:
        return self.has_power and not self._outages and not self.is_suspended

    def hardware(self) -> Hardware:
        """As activities/agent/host/inspection.py finds it."""
        gpu, mib = SOLD_GPU if self.takes_guests else (GPU, GPU_MIB)
        return Hardware(
            hostname=self.name,
            os_name="Debian GNU/Linux 12",
            python_version="3.11.2",
            cpu_count=self.cpu_count,
            memory_bytes=self.memory_bytes,
            free_disk_bytes=0 if self.is_disk_full else FREE_DISK_BYTES,
            gpus=tuple(
                Gpu(index=index, name=gpu, uuid=f"GPU-{self.name}-{index}", memory_mib=mib)
                for index in range(self.gpus)
            ),
            is_root=True,
            runtimes=("process", "systemd", *(("podman",) if self.takes_guests else ())),
            addresses=(self.host,),
            boot_id=self.boot_id,
        )

    def processes(self) -> Iterator[Process]:
        """Of all runs that were ever started here."""
        for run in self.live:
            run.measure()
        return iter(self.every_process)

    # ── its clocks ──────────────────────────────────────────────────────────────────────────

    def now_s(self) -> float:
        """True seconds since it was made."""
        assert self._began is not None
        return (self.temporal.now() - self._began).total_seconds()

    def monotonic_s(self) -> float:
        """Seconds by its own clock, without those in which it was suspended."""
        if self._stands_at_s is not None:
            return self._stands_at_s
        return self.now_s() * self.rate - self._suspended_s

    def wall_clock(self) -> datetime:
        return self.temporal.now() + self.clock_offset

    def jump(self, days: float) -> None:
        """Its wall clock is set to another time; its monotonic clock is not."""
        self.clock_offset = timedelta(days=days)

    def later(self, seconds: float, act: Callable[[], None]) -> Timer:
        """Act after so many seconds by its own clock, unless it loses its power before."""
        timer = Timer(self, seconds, act)
        self.timers[timer] = None
        if not self.is_suspended:
            timer.go_on()
        return timer

    # ── its network ─────────────────────────────────────────────────────────────────────────

    def connect(self, node_id: str) -> Connection:
        connection = Connection(self, node_id)
        self.connections[connection] = None
        return connection

    def tell(self, run: "Run | None" = None) -> None:
        """All who are connected look again, at this run."""
        for connection in tuple(self.connections):
            if run is not None:
                connection.news.append(run)
            connection.stirred.set()

    def be_unreachable(self, seconds: float) -> None:
        """Nobody reaches it for so long; its commands go on."""
        outage = self.temporal.later(seconds, lambda: self._be_reachable(outage))
        self._outages.append(outage)
        self.tell()

    def _be_reachable(self, outage: Cancellable) -> None:
        if outage in self._outages:
            self._outages.remove(outage)
        self.tell()

    def end_outages(self) -> None:
        for outage in self._outages:
            outage.cancel()
        self._outages.clear()
        self.tell()

    def cut_connections(self) -> None:
        for connection in self.connections:
            connection.is_cut = True
        self.tell()

    def move(self, host: str) -> None:
        """It has another address; whoever is connected is cut off."""
        self.host = host
        self.cut_connections()

    # ── its power ───────────────────────────────────────────────────────────────────────────

    def suspend(self, seconds: float) -> None:
        """Everything on it stands still for so long, its own clock too."""
        if self.is_suspended or not self.has_power:
            return
        self._stands_at_s = self.monotonic_s()
        for timer in self.timers:
            timer.pause()
        self.temporal.later(seconds, self.resume)
        self.tell()

    def resume(self) -> None:
        """It goes on where it stood still; silent when it runs."""
        if self._stands_at_s is None:
            return
        self._suspended_s = self.now_s() * self.rate - self._stands_at_s
        self._stands_at_s = None
        for timer in self.timers:
            timer.go_on()
        self.tell()

    def restart(self, boot_s: float) -> None:
        """It stops its commands as systemd does, and boots; what does not stop is cut off."""
        if not self.has_power:
            return
        for run in tuple(self.live):
            run.stop()
        self.later(SHUTDOWN_S if self.live else 0.5, lambda: self.crash(boot_s))

    def crash(self, boot_s: float) -> None:
        """It loses its power, and boots again after so long."""
        if not self.has_power:
            return
        self._lose_power()
        self.temporal.later(boot_s, self._boot)

    def _lose_power(self) -> None:
        self.has_power = False
        for timer in tuple(self.timers):
            timer.cancel()
        for run in tuple(self.live):
            run.be_cut()
        self.resume()
        self.cut_connections()

    def _boot(self) -> None:
        if not self.has_ended and not self.has_power:
            self.has_power = True
            self.boots += 1

    def end(self) -> None:
        """Its power is cut for good, and nobody has its disk."""
        self._forget_runs()
        self._lose_power()
        self.has_ended = True

    def wipe(self, minion_id: str) -> None:
        """It is installed anew, with another host key, and has joined nothing."""
        self._forget_runs()
        self._lose_power()
        self.minion_id = minion_id
        self.has_joined = False
        self._boot()

    def _forget_runs(self) -> None:
        """Nobody will read any more what their supervisors have written."""
        for run in self.live:
            run.process.was_cut = True
        for run in tuple(self.live):
            run.be_cut()
        self.runs.clear()
        self.removed.clear()
