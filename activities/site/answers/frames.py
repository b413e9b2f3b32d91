"""The frames that the watcher on a node sends, cut out of its stream of bytes.

A frame is one JSON line, and behind a line of kind `log` as many bytes as the line says.
"""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag, TypeAdapter

from activities.site.answers.bounds import (
    Address,
    ByteCount,
    Code,
    FileBytes,
    GpuId,
    RunName,
    Said,
    Seconds,
    Text,
)
from activities.site.answers.reading import Pace, Speaker, parsed, violation
from activities.site.answers.verbs import IdleWorkloadReport, RunExit
from workflows.contracts.reservations import HostnameState

MOST_HEADER_BYTES = 64 << 10
MOST_PAYLOAD_BYTES = 1 << 20
MOST_GPUS = 64
MOST_MEASURED_RUNS = 256


class BeatFrame(Said):
    """The sign every 2 s that the watcher still runs; a kind that we do not know counts as one."""

    kind: Code = "beat"
    length: Annotated[int, Field(ge=0, le=MOST_PAYLOAD_BYTES)] = 0


class LogFrame(Said):
    """New bytes of a run's log, starting at `offset`."""

    kind: Literal["log"] = "log"
    run_id: RunName
    offset: FileBytes
    length: Annotated[int, Field(ge=0, le=MOST_PAYLOAD_BYTES)]
    payload: bytes = Field(default=b"", exclude=True, max_length=MOST_PAYLOAD_BYTES)
    """The bytes that follow the line."""


class ExitFrame(Said):
    """The exit of a run, sent after all `log_bytes` of its log."""

    kind: Literal["exit"] = "exit"
    run_id: RunName
    exit: RunExit
    log_bytes: FileBytes


class LostFrame(Said):
    """The loss of a run's supervisor: no exit will follow unless the run is ended."""

    kind: Literal["lost"] = "lost"
    run_id: RunName
    elapsed_s: Seconds
    log_bytes: FileBytes


class IdleFrame(Said):
    """The report that a run with an idle limit has been idle for that long, or soon will have."""

    kind: Literal["idle", "idle_soon"] = "idle"
    run_id: RunName
    idle_s: Seconds


class HostnameFrame(Said):
    """What the node says of the hostname that it publishes for a run, when that changes."""

    kind: Literal["hostname"] = "hostname"
    run_id: RunName
    hostname: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,63}\.local$")]
    state: HostnameState
    addresses: Annotated[tuple[Address, ...], Field(max_length=16)] = ()
    message: Text = ""


class SaidGpu(Said):
    """What the driver of one GPU tells."""

    uuid: GpuId
    percent: Annotated[int, Field(ge=0, le=100)] | None = None
    memory_used_mib: Annotated[int, Field(ge=0, le=1 << 24)] | None = None
    memory_total_mib: Annotated[int, Field(ge=0, le=1 << 24)] | None = None


class SaidRun(Said):
    """What one run uses, by its name on the node."""

    run_id: RunName
    cpu_percent: Annotated[float, Field(ge=0, le=100 << 16)] | None = None
    memory_bytes: ByteCount = 0


class UtilisationFrame(Said):
    """What the runs and the GPUs of the node do, every ten seconds while runs are there."""

    kind: Literal["utilisation"] = "utilisation"
    gpus: Annotated[tuple[SaidGpu, ...], Field(max_length=MOST_GPUS)] = ()
    runs: Annotated[tuple[SaidRun, ...], Field(max_length=MOST_MEASURED_RUNS)] = ()


class IdleWorkloadFrame(IdleWorkloadReport):
    """What the idle workload of the node does and has done, every half minute."""

    kind: Literal["idle_workload"] = "idle_workload"
    revision: Annotated[str, Field(pattern=r"^[a-z0-9_-]{0,64}$")] = ""
    """Of the workload that is switched on there; empty: none is."""


RunFrame: TypeAlias = LogFrame | ExitFrame | LostFrame | IdleFrame | HostnameFrame
"""What is said of one run, by its name on the node."""
Frame: TypeAlias = RunFrame | UtilisationFrame | IdleWorkloadFrame | BeatFrame


_KINDS = ("log", "exit", "lost", "idle", "idle_soon", "hostname", "utilisation", "idle_workload")


def _kind(header: Any) -> str:
    kind = header.get("kind") if isinstance(header, dict) else None
    return kind if kind in _KINDS else "beat"


_FRAME: TypeAdapter[Frame] = TypeAdapter(
    Annotated[
        Annotated[LogFrame, Tag("log")]
        | Annotated[ExitFrame, Tag("exit")]
        | Annotated[LostFrame, Tag("lost")]
        | Annotated[IdleFrame, Tag("idle")]
        | Annotated[IdleFrame, Tag("idle_soon")]
        | Annotated[HostnameFrame, Tag("hostname")]
        | Annotated[UtilisationFrame, Tag("utilisation")]
        | Annotated[IdleWorkloadFrame, Tag("idle_workload")]
        | Annotated[BeatFrame, Tag("beat")],
        Discriminator(_kind),
    ]
)


async def frames(
    chunks: AsyncIterable[bytes], by: Speaker, pace: Pace = lambda _: 0.0
) -> AsyncIterator[Frame]:
    """The frames in a watcher's stream; an incomplete last frame is dropped.

    pace: of the headers.
    Raises: ApplicationError, PROTOCOL_VIOLATION, for what is no frame of our watcher.
    """
    buffer = bytearray()
    header: Frame | None = None
    async for chunk in chunks:
        buffer += chunk
        while True:
            if header is None:
                length = len(buffer)
                header = _cut_header(buffer, by)
                if (delay_s := pace(length - len(buffer))) > 0:
                    await asyncio.sleep(delay_s)
            if header is None or len(buffer) < _length(header):
                break
            payload = _cut(buffer, _length(header))
            if isinstance(header, LogFrame):
                header = header.model_copy(update={"payload": payload})
            yield header
            header = None


def _length(header: Frame) -> int:
    return header.length if isinstance(header, LogFrame | BeatFrame) else 0


def _cut_header(buffer: bytearray, by: Speaker) -> Frame | None:
    end = buffer.find(b"\n", 0, MOST_HEADER_BYTES)
    if end < 0:
        if len(buffer) >= MOST_HEADER_BYTES:
            rule = f"a line of at most {MOST_HEADER_BYTES} bytes"
            raise violation(by, "frame", rule, bytes(buffer[:MOST_HEADER_BYTES]))
        return None
    header = parsed(bytes(buffer[:end]), _FRAME.validate_json, by)
    del buffer[: end + 1]
    return header


def _cut(buffer: bytearray, length: int) -> bytes:
    """Cut bytes from the front, through a view, which saves one copy of every log."""
    with memoryview(buffer) as view:
        payload = bytes(view[:length])
    del buffer[:length]
    return payload
