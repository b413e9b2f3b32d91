"""What the watcher on a node says, taken out of its stream of bytes."""

import json
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class LogFrame:
    """New bytes of a run's log, from `offset` on."""

    run_id: str
    offset: int
    payload: bytes


@dataclass(frozen=True)
class ExitFrame:
    """A run has ended and all `log_bytes` of its log have been sent."""

    run_id: str
    exit: dict[str, Any]
    log_bytes: int


@dataclass(frozen=True)
class LostFrame:
    """A run's supervisor is gone, and no exit will come unless the run is ended."""

    run_id: str
    elapsed_s: float
    log_bytes: int


@dataclass(frozen=True)
class IdleFrame:
    """A run that is to end when it does nothing has done nothing for as long as it may."""

    run_id: str
    idle_s: float


@dataclass(frozen=True)
class BeatFrame:
    """The watcher lives; comes every 2 s."""


Frame = LogFrame | ExitFrame | LostFrame | IdleFrame | BeatFrame


async def frames(chunks: AsyncIterable[bytes]) -> AsyncIterator[Frame]:
    """The frames in a watcher's stream; one that the end of the stream cuts is dropped."""
    buffer = bytearray()
    header: dict[str, Any] | None = None
    async for chunk in chunks:
        buffer += chunk
        while True:
            if header is None:
                header = _cut_header(buffer)
            if header is None or len(buffer) < header.get("length", 0):
                break
            payload = _cut(buffer, header.get("length", 0))
            yield _frame(header, payload)
            header = None


def _cut_header(buffer: bytearray) -> dict[str, Any] | None:
    end = buffer.find(b"\n")
    if end < 0:
        return None
    header: dict[str, Any] = json.loads(buffer[:end])
    del buffer[: end + 1]
    return header


def _cut(buffer: bytearray, length: int) -> bytes:
    """Take bytes from the front. A slice of them would be one more copy of every log."""
    with memoryview(buffer) as view:
        payload = bytes(view[:length])
    del buffer[:length]
    return payload


def _frame(header: dict[str, Any], payload: bytes) -> Frame:
    match header["kind"]:
        case "log":
            return LogFrame(header["run_id"], header["offset"], payload)
        case "exit":
            return ExitFrame(header["run_id"], header["exit"], header["log_bytes"])
        case "lost":
            return LostFrame(header["run_id"], header["elapsed_s"], header["log_bytes"])
        case "idle":
            return IdleFrame(header["run_id"], header["idle_s"])
        case _:
            return BeatFrame()
