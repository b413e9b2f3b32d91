"""The machines of the tests' world, with the runs that are on them."""

import asyncio
from dataclasses import dataclass, field
from datetime import datetime

from workflows.contracts.jobs import Exit, RunReport, parse_run_id
from workflows.contracts.nodes import EarlierRun, Hardware, NodeAddress, RunSeen
from workflows.contracts.statuses import RunState
from workflows.effects.jobs import RunFolder

REGION = "reg-1"


def node_address(node_id: str = "nod-1") -> NodeAddress:
    return NodeAddress(
        node_id=node_id, region_id=REGION, host="10.0.0.1", port=22, minion_id="SHA256:key"
    )


@dataclass
class Run:
    """One command on a node."""

    state: RunState = RunState.STAGED
    starts: int = 0
    elapsed_s: float = 0.0
    exit: Exit | None = None
    kept: int = 0
    """How far its command has come, as it says in its state folder."""
    idle_s: float = 0.0
    is_stuck: bool = False
    """It hears no signal: its processes are in uninterruptible sleep."""
    is_of_earlier_node: bool = False
    """An earlier node of the machine has named it."""

    def report(self, run_id: str) -> RunReport:
        return RunReport(
            run_id=run_id,
            state=self.state,
            elapsed_s=self.elapsed_s,
            idle_s=self.idle_s,
            exit=self.exit,
        )


@dataclass(frozen=True)
class StateSnapshot:
    """What is stored of one worker's state."""

    attempt: int
    saved_at: datetime
    kept: int
    folders: tuple[RunFolder, ...] = (RunFolder.STATE,)


@dataclass
class Machine:
    reachable: bool = True
    host: str = "10.0.0.1"
    minion_id: str = "SHA256:key"
    boot: int = 1
    violation: str = ""
    """What it says that our agent never says, to every effect."""
    has_joined: bool = True
    """Its owner has run join.sh; the platform needs that of machines that it did not create."""
    is_released: bool = False
    """Its owner may log in as before."""
    idle_workload: str = ""
    """The revision of the idle workload that is switched on; empty: none is."""
    shown_status: str = ""
    """The status that its console shows."""
    runs: dict[str, Run] = field(default_factory=dict)
    hardware: Hardware = field(
        default_factory=lambda: Hardware(cpu_count=4, memory_bytes=8 * 2**30, is_root=True)
    )
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def end_earlier(self, name: str) -> EarlierRun | None:
        """What is told of a run of an earlier node: that it is still alive, or nothing."""
        run = self.runs[name]
        if run.state is RunState.RUNNING and not run.is_stuck:
            run.state = RunState.EXITED
        is_alive = run.state is RunState.RUNNING
        return EarlierRun(name=name, alive="still alive: [7]") if is_alive else None

    def end_orphan(self, name: str, *, is_left: bool) -> RunSeen | None:
        """What is told of a run; nothing of one that had ended before and was left nowhere."""
        job_id, worker, attempt = parse_run_id(name)
        run = self.runs.get(name, Run(RunState.EXITED))
        told = run.state is RunState.RUNNING or is_left
        if run.state is RunState.RUNNING and not run.is_stuck:
            run.state = RunState.EXITED
        alive = "still alive: [7]" if run.state is RunState.RUNNING else ""
        seen = RunSeen(
            run_id=name, job_id=job_id, worker=worker, attempt=attempt,
            elapsed_s=run.elapsed_s, alive=alive,
        )  # fmt: skip
        return seen if told else None
