"""The frames that the watcher on a node sends, parsed from its stream of bytes."""

import json
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class LogFrame:
    """New bytes of a run's log, starting at `offset`."""

    run_id: str
    offset: int
    payload: bytes


@dataclass(frozen=True)
class ExitFrame:
    """The exit of a run, sent after all `log_bytes` of its log."""

    run_id: str
    exit: dict[str, Any]
    log_bytes: int


@dataclass(frozen=True)
class LostFrame:
    """The loss of a run's supervisor: no exit will follow unless the run is ended."""

    run_id: str
    elapsed_s: float
    log_bytes: int


@dataclass(frozen=True)
class IdleFrame:
    """The report that a run with an idle limit has been idle for that long."""

    run_id: str
    idle_s: float


@dataclass(frozen=True)
class BeatFrame:
    """The sign every 2 s that the watcher still runs."""


Frame = LogFrame | ExitFrame | LostFrame | IdleFrame | BeatFrame


async def frames(chunks: AsyncIterable[bytes]) -> AsyncIterator[Frame]:
    """The frames in a watcher's stream; an incomplete last frame is dropped."""
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
    """Cut bytes from the front, through a view, which saves one copy of every log."""
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
