"""The watch, one long activity for each node: stores logs as they grow, and signals exits to jobs.

    frames of the node's watcher → pieces that wait → the store → signals to jobs

Reading stops while too many bytes wait, and slows down above a rate of frames and of bytes: the
channel then fills up, and the watcher on the node waits, so a job with a large log is slowed, our
memory does not fill, and no node keeps others waiting. A watch may break at any time: the next one
starts where the store ends, and repeats the exits.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities.secrets.platform_key import platform_key_fingerprint
from activities.settings import settings
from activities.site.answers.frames import (
    BeatFrame,
    ExitFrame,
    Frame,
    HostnameFrame,
    IdleFrame,
    IdleWorkloadFrame,
    LogFrame,
    LostFrame,
    RunFrame,
    UtilisationFrame,
    frames,
)
from activities.site.answers.verbs import Status
from activities.site.idle_workloads import IdleWorkloadSignals
from activities.site.job_signals import JobSignals
from activities.site.node_client import NodeClient
from activities.site.run_names import RunNames
from activities.site.signal_rates import (
    FRAMES_AT_ONCE,
    FRAMES_PER_S,
    HEADER_BYTES_AT_ONCE,
    HEADER_BYTES_PER_S,
    LOG_BYTES_AT_ONCE,
    LOG_BYTES_PER_S,
    TokenBucket,
)
from activities.site.utilisation import UtilisationNote
from activities.storage.log_times import log_times
from activities.storage.logs import LogGapError, LogStore, log_store
from activities.temporal.first_of import first_of
from activities.temporal.heartbeats import heartbeating
from activities.temporal.next_watch import NEXT_WATCH_AFTER
from activities.transport.stream import NodeStream
from workflows.contracts import errors
from workflows.contracts.jobs import Exit
from workflows.contracts.nodes import WatchEnded
from workflows.effects.nodes import WatchNode

RENEW_S = 23 * 3600.0
SILENCE_S = 12.0
"""How long we wait for a frame; the watcher sends a beat every 2 s."""
WAITING_BYTES = 4 << 20
EXIT_BYTES = 4 << 10
"""How much of it an exit counts for."""
STATUS_S = 20.0
STORE_PAUSE_S = 2.0
END_OF_ALL = 1 << 62
"""The byte from which we request a log that is cut: beyond all bytes, so that none comes."""


@activity.defn
async def watch_node(command: WatchNode) -> WatchEnded:
    """Watch the node until the watch is due to be renewed, or fails.

    Raises: NODE_UNREACHABLE when the connection is lost, HOST_KEY_MISMATCH, LOGIN_REFUSED;
    PROTOCOL_VIOLATION when the node says what our watcher never says;
    OUTCOME_UNKNOWN when the machine has restarted; WORKER_STOPS when this worker process stops, so
    that the next one continues.
    """
    watch = Watch(command, log_store(settings().storage))
    async with heartbeating():
        try:
            async with asyncio.timeout(RENEW_S) as limit:
                await watch.serve()
        except TimeoutError:
            if not limit.expired():
                raise
            return WatchEnded(reason="renewed")
    raise ApplicationError(
        f"{command.node.node_id}: the worker process that watches the node stops",
        type=errors.WORKER_STOPS,
        next_retry_delay=NEXT_WATCH_AFTER,
        category=ApplicationErrorCategory.BENIGN,
    )


@dataclass
class Piece:
    """Consecutive bytes of one log."""

    run_id: str
    offset: int
    content: bytearray


@dataclass
class Waiting:
    """The log pieces and the exits that have arrived and are not stored yet."""

    pieces: list[Piece] = field(default_factory=list)
    last: dict[str, Piece] = field(default_factory=dict)
    """The last piece of each run, to which its next bytes are added."""
    exits: list[tuple[str, Exit]] = field(default_factory=list)
    """The run id and the exit of each run that has ended."""
    size: int = 0

    def add(self, run_id: str, frame: LogFrame) -> None:
        """Add new bytes of a run's log."""
        piece = self.last.get(run_id)
        if piece is None or piece.offset + len(piece.content) != frame.offset:
            piece = self.last[run_id] = Piece(run_id, frame.offset, bytearray())
            self.pieces.append(piece)
        piece.content += frame.payload
        self.size += len(frame.payload)

    def add_exit(self, run_id: str, ended: Exit) -> None:
        """Add the exit of a run."""
        self.exits.append((run_id, ended))
        self.size += EXIT_BYTES


class Watch:
    """One watch of one node."""

    def __init__(self, command: WatchNode, logs: LogStore) -> None:
        self._node = command.node
        self._boot_id = command.boot_id
        self._logs = logs
        self._times = log_times(settings().storage)
        self._names = RunNames(command.node)
        self._utilisation = UtilisationNote(self._names)
        self._waiting = Waiting()
        self._arrived = asyncio.Event()
        self._taken = asyncio.Event()
        self._rewound: dict[str, int] = {}
        """The runs whose log was requested again, with the earlier byte from which."""
        self._tails: dict[str, int] = {}
        """The stored length of each log."""

    async def serve(self) -> None:
        """Watch until this worker process stops.

        Raises: ApplicationError, as `watch_node`.
        """
        request = {
            "known": await self._stored_lengths(),
            "owner": await asyncio.to_thread(platform_key_fingerprint),
        }
        node, loss = NodeClient(self._node), errors.NODE_UNREACHABLE
        async with (
            node.stream("watch", request, eof=False, loss=loss) as stream,
            JobSignals(self._node.node_id) as signals,
            IdleWorkloadSignals(self._node.node_id) as idle_workload,
        ):
            await first_of(
                self._read(stream, signals, idle_workload),
                self._store(stream, signals),
                activity.wait_for_worker_shutdown(),
            )

    async def _stored_lengths(self) -> dict[str, int]:
        """The stored bytes of the log of each run on the node, by the run's name there."""
        answer = await NodeClient(self._node).call(
            "status", {"run_ids": None}, Status, limit_s=STATUS_S
        )
        if self._boot_id not in ("", answer.boot_id):
            raise ApplicationError(
                f"{self._node.node_id}: the machine has restarted", type=errors.OUTCOME_UNKNOWN
            )
        runs = [run_id for name in answer.runs if (run_id := self._names.read(name))]
        lengths = await asyncio.to_thread(lambda: [self._logs.length(run_id) for run_id in runs])
        self._tails = dict(zip(runs, lengths, strict=True))
        return self._by_name({run_id: self._next(run_id) for run_id in runs})

    def _next(self, run_id: str) -> int:
        """The byte from which we want the log of a run."""
        return END_OF_ALL if self._is_cut(run_id) else self._tails[run_id]

    def _is_cut(self, run_id: str) -> bool:
        return self._logs.is_cut(self._tails.get(run_id, 0))

    def _by_name(self, offsets: dict[str, int]) -> dict[str, int]:
        return {self._names.of(run_id): offset for run_id, offset in offsets.items()}

    async def _read(
        self, stream: NodeStream, signals: JobSignals, idle_workload: IdleWorkloadSignals
    ) -> None:
        by = NodeClient(self._node).speaker("watch")
        turns = TokenBucket(FRAMES_PER_S, FRAMES_AT_ONCE)
        log_bytes = TokenBucket(LOG_BYTES_PER_S, LOG_BYTES_AT_ONCE)
        headers = TokenBucket(HEADER_BYTES_PER_S, HEADER_BYTES_AT_ONCE)
        async for frame in self._within_limit(frames(stream, by, headers.delay_s)):
            delay_s = turns.delay_s()
            if isinstance(frame, LogFrame | BeatFrame):
                delay_s = max(delay_s, log_bytes.delay_s(frame.length))
            if delay_s > 0:  # Else much, or much that is small, would leave no time to others.
                await asyncio.sleep(delay_s)
            if isinstance(frame, BeatFrame):
                continue
            if isinstance(frame, UtilisationFrame):
                self._utilisation.note(frame)
                continue
            if isinstance(frame, IdleWorkloadFrame):
                idle_workload.note(frame)
                continue
            run_id = self._names.read(frame.run_id)
            if run_id is None:  # It is of another control plane, or was never placed there.
                signals.count_unknown()
                await stream.send({"forget": [frame.run_id]})
                continue
            self._take(run_id, frame, signals)
            while self._waiting.size > WAITING_BYTES:
                self._taken.clear()
                await self._taken.wait()

    def _take(self, run_id: str, frame: RunFrame, signals: JobSignals) -> None:
        match frame:
            case LogFrame() if self._follows(run_id, frame):
                self._waiting.add(run_id, frame)
                self._arrived.set()
            case ExitFrame(exit=ended, log_bytes=log_bytes):
                self._waiting.add_exit(run_id, ended.exit(log_bytes))
                self._arrived.set()
            case LostFrame():
                signals.ask_to_look(run_id)
            case IdleFrame(idle_s=idle_s):
                signals.tell_idle(run_id, idle_s)
            case HostnameFrame():
                signals.tell_hostname(run_id, frame)

    async def _within_limit(self, source: AsyncIterator[Frame]) -> AsyncIterator[Frame]:
        """The frames, each within `SILENCE_S`."""
        while True:
            try:
                async with asyncio.timeout(SILENCE_S):
                    frame = await anext(source)
            except TimeoutError as error:
                raise ApplicationError(
                    f"{self._node.node_id}: its watcher was silent for {SILENCE_S:g} s",
                    type=errors.NODE_UNREACHABLE,
                ) from error
            except StopAsyncIteration as error:
                raise ApplicationError(
                    f"{self._node.node_id}: its watcher ended", type=errors.NODE_UNREACHABLE
                ) from error
            yield frame

    def _follows(self, run_id: str, frame: LogFrame) -> bool:
        """Whether to store the frame: not if it was sent before a log was requested again."""
        wanted = self._rewound.get(run_id)
        if wanted is not None and frame.offset > wanted:
            return False
        self._rewound.pop(run_id, None)
        return True

    async def _store(self, stream: NodeStream, signals: JobSignals) -> None:
        """Store all that waits at once, again and again, and signal the exits."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            waiting, self._waiting = self._waiting, Waiting()
            self._taken.set()
            cut = {piece.run_id for piece in waiting.pieces if not self._is_cut(piece.run_id)}
            behind = await asyncio.to_thread(self._append, waiting.pieces)
            cut = {run_id for run_id in cut if self._is_cut(run_id)}
            for run_id, ended in waiting.exits:
                # Also for logs that are behind: their jobs collect the missing bytes.
                signals.tell_exit(run_id, ended)
            if cut:
                await stream.send({"watch": self._by_name(dict.fromkeys(cut, END_OF_ALL))})
            if behind:
                self._rewound.update(behind)
                await asyncio.sleep(STORE_PAUSE_S)
                await stream.send({"watch": self._by_name(behind)})

    def _append(self, pieces: list[Piece]) -> dict[str, int]:
        """Store pieces, in a thread; return where each log ends that could not be stored."""
        behind: dict[str, int] = {}
        for piece in pieces:
            if piece.run_id in behind:
                continue
            try:
                tail = self._tails.get(piece.run_id)
                self._tails[piece.run_id] = self._logs.append(
                    piece.run_id, piece.offset, piece.content, tail
                )
                self._times.note(piece.run_id, piece.offset, self._tails[piece.run_id])
            except LogGapError as gap:
                behind[piece.run_id] = self._tails[piece.run_id] = gap.length
            except OSError as error:
                behind[piece.run_id] = piece.offset
                self._tails.pop(piece.run_id, None)  # It may have been stored all the same.
                activity.logger.warning("log of %s cannot be stored: %s", piece.run_id, error)
        return behind
