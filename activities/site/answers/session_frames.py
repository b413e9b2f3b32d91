"""The frames of a session that the agent on a node sends, cut out of its stream of bytes."""

import struct
from collections.abc import AsyncIterable, AsyncIterator
from typing import Annotated, TypeAlias

from pydantic import Field

from activities.site.answers.bounds import Code, ExitCode, Said
from activities.site.answers.reading import Speaker, parsed, violation

HEADER = struct.Struct(">BI")
MOST_FRAME_BYTES = 64 << 10
_STARTED, _OUT, _ERR, _OUT_EOF, _EXIT = range(5)


class SessionStarted(Said):
    """The command or the connection is there."""


class SessionBytes(Said):
    """Bytes of what the job says; nothing is believed of them."""

    is_error: bool
    payload: bytes = Field(max_length=MOST_FRAME_BYTES)


class SessionEof(Said):
    """The job says no more."""


class SessionExit(Said):
    """How a command has ended: `exited`, `hung-up`, or `run-ended` with its run."""

    reason: Code = "exited"
    exit_code: ExitCode | None = None
    signal: Annotated[int, Field(ge=1, le=64)] | None = None


SessionFrame: TypeAlias = SessionStarted | SessionBytes | SessionEof | SessionExit


async def session_frames(chunks: AsyncIterable[bytes], by: Speaker) -> AsyncIterator[SessionFrame]:
    """The frames in the stream of a session; an incomplete last frame is dropped.

    Raises: ApplicationError, PROTOCOL_VIOLATION, for what is no frame of our agent.
    """
    buffer = bytearray()
    async for chunk in chunks:
        buffer += chunk
        while len(buffer) >= HEADER.size:
            kind, length = HEADER.unpack_from(buffer)
            if length > MOST_FRAME_BYTES:
                raise violation(by, "frame", f"has at most {MOST_FRAME_BYTES} bytes", length)
            if len(buffer) < HEADER.size + length:
                break
            payload = bytes(buffer[HEADER.size : HEADER.size + length])
            del buffer[: HEADER.size + length]
            yield _frame(kind, payload, by)


def _frame(kind: int, payload: bytes, by: Speaker) -> SessionFrame:
    if kind == _STARTED:
        return SessionStarted()
    if kind in (_OUT, _ERR):
        return SessionBytes(is_error=kind == _ERR, payload=payload)
    if kind == _OUT_EOF:
        return SessionEof()
    if kind == _EXIT:
        return parsed(payload, SessionExit.model_validate_json, by)
    raise violation(by, "frame", "is of a known kind", kind)
