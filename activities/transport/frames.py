"""The frames that the watcher on a node sends, parsed from its stream of bytes.

The machine may be anybody's, so each frame is checked and its size bounded before it is believed.
"""

from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError

from activities.transport.errors import AgentBroke
from workflows.contracts.base import Contract, Seconds

MOST_HEADER_BYTES = 64 << 10
MOST_PAYLOAD_BYTES = 1 << 20
_MOST_LOG_BYTES = 1 << 50
_MOST_WORDS = 2000
_MOST_NAME = 128

_Count = Annotated[int, Field(ge=0, le=_MOST_LOG_BYTES)]
_Status = Annotated[int, Field(ge=-(1 << 31), lt=1 << 32)]


def _shortened(words: Any) -> Any:
    return words[-_MOST_WORDS:] if isinstance(words, str) else words


class _Exit(Contract):
    exit_code: _Status | None = None
    signal: _Status | None = None
    reason: str = Field(default="exited", max_length=_MOST_NAME)
    message: Annotated[str, BeforeValidator(_shortened)] = ""
    elapsed_s: Seconds = 0.0


class _Header(Contract):
    """What any frame says before its payload; a kind that we do not know is a beat."""

    kind: str = Field(max_length=_MOST_NAME)
    run_id: str = Field(default="", max_length=_MOST_NAME)
    offset: _Count = 0
    length: int = Field(default=0, ge=0, le=MOST_PAYLOAD_BYTES)
    exit: _Exit = _Exit()
    log_bytes: _Count = 0
    elapsed_s: Seconds = 0.0
    idle_s: Seconds = 0.0


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
    """The frames in a watcher's stream; an incomplete last frame is dropped.

    Raises: AgentBroke, when a header is none, or a frame is larger than any of our watcher.
    """
    buffer = bytearray()
    header: _Header | None = None
    async for chunk in chunks:
        buffer += chunk
        while True:
            if header is None:
                header = _cut_header(buffer)
            if header is None or len(buffer) < header.length:
                break
            payload = _cut(buffer, header.length)
            yield _frame(header, payload)
            header = None


def _cut_header(buffer: bytearray) -> _Header | None:
    end = buffer.find(b"\n", 0, MOST_HEADER_BYTES)
    if end < 0:
        if len(buffer) >= MOST_HEADER_BYTES:
            raise AgentBroke(f"its watcher said {MOST_HEADER_BYTES} bytes without a whole header")
        return None
    try:
        header = _Header.model_validate_json(bytes(buffer[:end]))
    except ValidationError as error:
        wrong = "; ".join(f"{each['loc']}: {each['msg']}" for each in error.errors()[:3])
        raise AgentBroke(f"its watcher said what is no frame: {wrong}"[:_MOST_WORDS]) from None
    del buffer[: end + 1]
    return header


def _cut(buffer: bytearray, length: int) -> bytes:
    """Cut bytes from the front, through a view, which saves one copy of every log."""
    with memoryview(buffer) as view:
        payload = bytes(view[:length])
    del buffer[:length]
    return payload


def _frame(header: _Header, payload: bytes) -> Frame:
    match header.kind:
        case "log":
            return LogFrame(header.run_id, header.offset, payload)
        case "exit":
            return ExitFrame(header.run_id, header.exit.model_dump(), header.log_bytes)
        case "lost":
            return LostFrame(header.run_id, header.elapsed_s, header.log_bytes)
        case "idle":
            return IdleFrame(header.run_id, header.idle_s)
        case _:
            return BeatFrame()
