"""One run on a machine: its folder, its supervisor and its command.

The states and the files behind them are those of activities/agent/runs: `spec.json` is written when
the run is staged, `process.json` when its supervisor starts, `beat.json` every five seconds, and
`exit.json` once no process of the run is left.
"""

from datetime import datetime
from typing import TYPE_CHECKING

from tests.simulation.behaviour import Behaviour
from tests.simulation.contracts import Process
from tests.simulation.outside.commands import Command
from tests.simulation.outside.store import RunSpecs
from workflows.contracts.jobs import Exit, RunReport, WorkerAssignment, parse_run_id
from workflows.contracts.statuses import RunState

if TYPE_CHECKING:
    from tests.simulation.outside.machine import Machine
    from tests.simulation.outside.timer import Timer

BEAT_S = 5.0
LOST_CHECK_S = 5.0
CHECK_S = 1.0
"""How long after its limit an idle run is noticed."""
SYSTEMD_GRACE_S = 10.0
STATE_EVERY_S = 10.0
"""How often a command that saves its state does so."""
ORDINARY = Behaviour(60.0)
"""What a command does of which nobody has said anything."""
LINE_BYTES = 40
OUTPUT_BYTES = 4096
EMPTY_BYTES = 45
"""The size of a tar.gz without files."""
LINES_PER_S = 3


class Run:
    """The folder of a run on a machine, with all that belongs to it."""

    def __init__(self, machine: "Machine", name: str, run_id: str, node_id: str) -> None:
        self.machine = machine
        self.name = name
        self.run_id = run_id
        self.node_id = node_id
        self.job_id, self.worker, self.attempt = parse_run_id(run_id)
        self.behaviour = machine.commands.behaviours.get(self.job_id, ORDINARY)
        self.process = Process(run_id, machine.minion_id, (), "staged")
        self.port: int | None = None
        self.idle_timeout_s: float | None = None
        """Its idle limit; None: nobody looks whether it is idle."""
        self.is_staged = False
        self.staging: Timer | None = None
        """A staging that is under way, which others wait for (`stage.lock`)."""
        self.restored_s = 0.0
        """How far the command of an earlier attempt had come, by the restored state."""
        self.command: Command | None = None
        self.started_s = 0.0
        self.started_at: datetime | None = None
        self.is_supervised = False
        self.exit: Exit | None = None
        self.told_at: datetime | None = None
        """When the run was first reported as an orphan, by the machine's wall clock."""
        self._beat_s = 0.0
        self._reason: tuple[str, str] | None = None
        self._kill: Timer | None = None
        self._kill_at_s = float("inf")

    # ── what the agent says of it ───────────────────────────────────────────────────────────

    @property
    def is_started(self) -> bool:
        """Whether `process.json` is there."""
        return self.command is not None

    @property
    def is_alive(self) -> bool:
        """Whether any process of its command is left."""
        return self.command is not None and self.command.is_alive

    @property
    def state(self) -> RunState:
        """As activities/agent/runs/status.py:_name."""
        if self.exit is not None:
            return RunState.EXITED
        if self.is_started:
            return RunState.RUNNING if self.is_supervised else RunState.LOST
        return RunState.STAGED if self.is_staged else RunState.UNKNOWN

    @property
    def elapsed_s(self) -> float:
        """As activities/agent/runs/status.py:state_of: of the exit, or of the last beat."""
        if self.exit is not None:
            return self.exit.elapsed_s
        return self._last_beat_s()

    @property
    def log_bytes(self) -> int:
        if self.exit is not None:
            return self.exit.log_bytes
        return self._printed(self._last_beat_s()) if self.is_started else 0

    def report(self) -> RunReport:
        return RunReport(
            run_id=self.run_id,
            state=self.state,
            elapsed_s=self.elapsed_s,
            idle_s=self.idle_s,
            exit=self.exit,
            log_bytes=self.log_bytes,
        )

    @property
    def idle_s(self) -> float:
        """As activities/agent/runs/idleness.py:idle_s; 0 for a run that nobody checks."""
        if self.idle_timeout_s is None or not self.is_supervised:
            return 0.0
        return max(0.0, self._since_start_s() - self.behaviour.idles_after_s)

    @property
    def is_idle(self) -> bool:
        """Whether it has been idle for its limit."""
        return self.idle_timeout_s is not None and self.idle_s >= self.idle_timeout_s

    def saved_s(self) -> float:
        """How far the command had come when it wrote its state last; 0: it has written none."""
        if not self.behaviour.saves_state:
            return 0.0
        came_s = self.elapsed_s // STATE_EVERY_S * STATE_EVERY_S
        return self.restored_s + came_s

    # ── from its start to its end ───────────────────────────────────────────────────────────

    def seal(self, specs: RunSpecs, assignment: WorkerAssignment) -> None:
        """As activities/site/staging.py: on leased machines alone there is an idle limit."""
        self.port = specs.ports.get(self.worker)
        self.idle_timeout_s = specs.idle_timeout_s if assignment.can_be_lost else None

    def stage(self, assignment: WorkerAssignment) -> None:
        """As activities/agent/runs/stage.py:stage, which changes nothing of a run that is more."""
        self.staging = None
        if self.is_staged or self.is_started or self.exit is not None:
            return
        self.process.gpu_indices = assignment.gpu_indices
        self.is_staged = True

    def start(self) -> None:
        """As activities/agent/runs/supervisor.py:supervise: once, and never after an end."""
        if self.is_started or self.exit is not None:
            return
        machine = self.machine
        self._note_start()
        self.started_s = machine.monotonic_s()
        self.started_at = machine.wall_clock()
        self.is_supervised = True
        succeeds = self.attempt > self.behaviour.fails_first
        left_s = max(0.0, self.behaviour.seconds - self.restored_s)
        if left_s != float("inf"):
            left_s = min(left_s, machine.commands.most_s)
        exit_code = self.behaviour.exit_code if succeeds else 1
        self.command = Command(machine, self.behaviour, left_s, exit_code, self._command_ended)
        idle_at_s = self.behaviour.idles_after_s + (self.idle_timeout_s or 0)
        if self.idle_timeout_s is not None and idle_at_s < float("inf"):
            machine.later(idle_at_s + CHECK_S, lambda: machine.tell(self))

    def ask_to_end(self, grace_s: float) -> None:
        """As activities/agent/runs/end.py:_ask_supervisor: TERM, and KILL after the grace."""
        self._end(grace_s, "ended", "ended on request")

    def stop(self) -> None:
        """As systemd does when the machine shuts down."""
        if self.is_supervised:
            self._end(SYSTEMD_GRACE_S, "node-stopping", "the node is shutting down")
        elif self.command is not None:
            self.command.terminate()

    def lose_supervisor(self) -> None:
        """Its supervisor is killed: nobody measures it any more, and no exit will follow."""
        if not self.is_supervised:
            return
        self._beat_s = self._last_beat_s()
        self.is_supervised = False
        self._forget_kill()
        self.process.measured_s = self._beat_s
        delay_s = self.machine.temporal.random.uniform(0, LOST_CHECK_S)
        self.machine.later(delay_s, lambda: self.machine.tell(self))

    def never_start(self) -> None:
        """As activities/agent/runs/end.py:_end_unsupervised, of a run that was not started."""
        self.exit = Exit(reason="never-started", message="ended before it was started")
        self.process.state = "exited"
        self.machine.tell(self)

    def end_unsupervised(self) -> None:
        """As there, once no process of a run without a supervisor is left."""
        self.exit = Exit(
            reason="ended-after-supervisor-loss",
            message="its supervisor was lost; its processes were ended",
            elapsed_s=self._beat_s,
            log_bytes=self._printed(self._beat_s),
        )
        self.process.measured_s = self._beat_s
        self.machine.tell(self)

    def measure_alive(self) -> None:
        """As activities/agent/runs/end.py:_measure: the beat of a run that cannot be ended."""
        self._beat_s = max(self._beat_s, self._since_start_s())
        self.process.measured_s = self._beat_s

    def measure(self) -> None:
        """Bring what was measured of a live run up to date."""
        if self.is_supervised:
            self.process.measured_s = self._since_start_s()

    def be_cut(self) -> None:
        """Its machine has lost its power; of one that is gone for good, all that has run counts."""
        self.measure()
        self._beat_s = self._last_beat_s()
        if not self.process.was_cut:
            self.process.measured_s = self._beat_s
        self.is_supervised = False
        self._kill = None
        if self.command is not None:
            self.command.be_cut()
        self._leave()

    # ── inside ──────────────────────────────────────────────────────────────────────────────

    def _since_start_s(self) -> float:
        return self.machine.monotonic_s() - self.started_s

    def _last_beat_s(self) -> float:
        if not self.is_supervised:
            return self._beat_s
        return self._since_start_s() // BEAT_S * BEAT_S

    def _printed(self, elapsed_s: float) -> int:
        return LINE_BYTES * (1 + int(elapsed_s * LINES_PER_S))

    def _end(self, grace_s: float, reason: str, message: str) -> None:
        if not self.is_supervised or self.command is None:
            return
        if self._reason is None:
            self._reason = (reason, message)
        kill_at_s = self.machine.monotonic_s() + grace_s
        if kill_at_s < self._kill_at_s:
            self._forget_kill()
            self._kill_at_s = kill_at_s
            self._kill = self.machine.later(grace_s, self.command.kill)
        self.command.terminate()

    def _forget_kill(self) -> None:
        if self._kill is not None:
            self._kill.cancel()
            self._kill = None

    def _command_ended(self, exit_code: int | None, signal: int | None) -> None:
        self._leave()
        if self.is_supervised:
            self._write_exit(exit_code, signal)
            self.is_supervised = False
        self._forget_kill()
        self.machine.tell(self)

    def _write_exit(self, exit_code: int | None, signal: int | None) -> None:
        """As activities/agent/runs/supervisor.py:_report, in the words of exits.py."""
        elapsed_s = self._since_start_s()
        reason, message = self._reason or ("signal", f"the command was killed by signal {signal}")
        if signal is None and self._reason is None:
            reason = "exited"
            message = f"the command ended with exit code {exit_code}, see its log"
        if exit_code != 0 and self.machine.is_disk_full and self._reason is None:
            reason = "disk-full"
        self.exit = Exit(
            exit_code=exit_code,
            signal=signal,
            reason=reason,
            message=message,
            elapsed_s=elapsed_s,
            log_bytes=self._printed(elapsed_s),
        )
        self.process.measured_s = elapsed_s
        self.process.succeeded = self.exit.succeeded

    def _note_start(self) -> None:
        """Check that nothing is started or held twice."""
        machine, process = self.machine, self.process
        process.starts += 1
        process.state = "running"
        process.began_at, process.ended_at = machine.temporal.now(), None
        process.written_bytes = OUTPUT_BYTES if self.behaviour.writes_output else EMPTY_BYTES
        machine.every_process.append(process)
        before = machine.commands.started.setdefault(self.run_id, machine.minion_id)
        if before != machine.minion_id or process.starts > 1:
            machine.violations.append(
                f"{self.run_id} was started on {before}, and again on {machine.minion_id}"
            )
        for other in machine.live:
            shared = set(process.gpu_indices) & set(other.process.gpu_indices)
            if shared:
                machine.violations.append(
                    f"{machine.name}: {self.run_id} and {other.run_id} have GPU {min(shared)}"
                )
            if self.port is not None and self.port == other.port:
                machine.violations.append(
                    f"{machine.name}: {self.run_id} and {other.run_id} have port {self.port}"
                )
        machine.live[self] = None

    def _leave(self) -> None:
        self.machine.live.pop(self, None)
        self.process.state = "exited"
        self.process.ended_at = self.machine.temporal.now()
