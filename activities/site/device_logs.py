"""The log of what a device runs now, read from the device and followed for as long as one likes."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from typing import Any, NamedTuple

from temporalio.exceptions import ApplicationError

from activities.site.answers.bounds import MOST_BYTES
from activities.site.answers.devices import MOST_ASSIGNMENTS
from activities.site.answers.frames import BeatFrame, Frame, LogFrame, frames
from activities.site.answers.reading import Speaker, violation
from activities.site.node_client import NodeClient
from activities.site.run_names import RunNames
from activities.site.signal_rates import (
    FRAMES_AT_ONCE,
    FRAMES_PER_S,
    HEADER_BYTES_PER_S,
    LOG_BYTES_PER_S,
    TokenBucket,
)
from workflows.contracts import errors
from workflows.contracts.devices import device_run_id
from workflows.contracts.nodes import NodeAddress
from workflows.contracts.sessions import MOST_LOG_BYTES, DeviceLogRequest, LogPlace

SILENCE_S = 12.0
"""How long we wait for a frame; where a log is followed, the device sends a beat every 2 s."""
MOST_OF_DEVICE = 16
"""How many read the log of one device at once; each is a process of root's there."""
HEADER_BYTES_AT_ONCE = 1 << 20
LOG_BYTES_AT_ONCE = MOST_OF_DEVICE * MOST_LOG_BYTES
TOO_MANY = "too-many-sessions"


class Readers:
    """Those who read the log of one device: how many, and how fast it may say something to all."""

    def __init__(self) -> None:
        self.count = 0
        self.frames = TokenBucket(FRAMES_PER_S, FRAMES_AT_ONCE)
        self.headers = TokenBucket(HEADER_BYTES_PER_S, HEADER_BYTES_AT_ONCE)
        self.bytes = TokenBucket(LOG_BYTES_PER_S, LOG_BYTES_AT_ONCE)

    async def wait_after(self, frame: Frame) -> None:
        """Wait, if need be: else one device would leave no time to others."""
        delay_s = self.frames.delay_s()
        if isinstance(frame, LogFrame | BeatFrame):
            delay_s = max(delay_s, self.bytes.delay_s(frame.length))
        if delay_s > 0:
            await asyncio.sleep(delay_s)


_open: dict[str, Readers] = {}


class LogBytes(NamedTuple):
    """Bytes of a log, and where they begin."""

    place: LogPlace
    payload: bytes

    @property
    def end(self) -> LogPlace:
        """Where the next bytes begin, unless the device leaves some out."""
        return LogPlace(number=self.place.number, offset=self.place.offset + len(self.payload))


@contextlib.asynccontextmanager
async def device_log(
    node: NodeAddress, asked: DeviceLogRequest
) -> AsyncGenerator[AsyncIterator[LogBytes]]:
    """The bytes of the log for as long as the block runs, which begins with the device's answer.

    The log is bounded on the device, so bytes may begin later than those before have ended. It
    ends, also where it is followed, when what the device runs does or is started anew.
    Raises: ApplicationError: as `NodeClient`; NODE_REFUSED, when the device has no log; REFUSED,
    when too many read it; NODE_UNREACHABLE, when it says nothing for `SILENCE_S`;
    PROTOCOL_VIOLATION.
    """
    client = NodeClient(node)
    by = client.speaker("read_device_log")
    request = _request(node, asked)
    with _counted(node.node_id) as readers:
        async with client.stream(
            "read_device_log", request, eof=not asked.follow, loss=errors.NODE_UNREACHABLE
        ) as stream:
            said = frames(stream, by, readers.headers.delay_s)
            source = _within_limit(node, said, readers)
            first = await anext(source, None)
            yield _pieces(RunNames(node), by, first, source)


def _request(node: NodeAddress, asked: DeviceLogRequest) -> dict[str, Any]:
    request: dict[str, Any] = {"follow": asked.follow}
    if asked.after is None:
        return {**request, "last_lines": asked.lines, "most_bytes": MOST_LOG_BYTES}
    name = RunNames(node).of(device_run_id(node.node_id, asked.after.number))
    return {**request, "run_id": name, "offset": asked.after.offset}


@contextlib.contextmanager
def _counted(node_id: str) -> Generator[Readers]:
    """Count a reader while the block runs. Raises: ApplicationError, `too-many-sessions`."""
    readers = _open.setdefault(node_id, Readers())
    if readers.count >= MOST_OF_DEVICE:
        words = f"{node_id}: {MOST_OF_DEVICE} read its log, which is the limit"
        raise ApplicationError(words, {"code": TOO_MANY}, type=errors.REFUSED)
    readers.count += 1
    try:
        yield readers
    finally:
        readers.count -= 1
        if not readers.count:
            del _open[node_id]


async def _within_limit(
    node: NodeAddress, source: AsyncIterator[Frame], readers: Readers
) -> AsyncIterator[Frame]:
    """The frames, each within `SILENCE_S`."""
    while True:
        try:
            async with asyncio.timeout(SILENCE_S):
                frame = await anext(source)
        except StopAsyncIteration:
            return
        except TimeoutError as error:
            words = f"{node.node_id}: its log was silent for {SILENCE_S:g} s"
            raise ApplicationError(words, type=errors.NODE_UNREACHABLE) from error
        await readers.wait_after(frame)
        yield frame


async def _pieces(
    names: RunNames, by: Speaker, first: Frame | None, source: AsyncIterator[Frame]
) -> AsyncIterator[LogBytes]:
    """The log's bytes among the frames, of one start of one command, in order."""
    frame, end = first, None
    while frame is not None:
        if isinstance(frame, LogFrame):
            piece = _read(names, by, frame)
            end = piece.place if end is None else end
            if piece.place.number != end.number or piece.place.offset < end.offset:
                rule = f"follows on byte {end.offset} of assignment {end.number}"
                raise violation(by, "offset", rule, frame.offset)
            end = piece.end
            yield piece
        frame = await anext(source, None)


def _read(names: RunNames, by: Speaker, frame: LogFrame) -> LogBytes:
    number = frame.run_id.removeprefix(f"{by.node_id}-0-").partition("-")[0]
    is_own = number.isdecimal() and int(number) <= MOST_ASSIGNMENTS
    if not is_own or names.of(device_run_id(by.node_id, int(number))) != frame.run_id:
        raise violation(by, "run_id", "is of an assignment of this device", frame.run_id)
    if frame.offset > MOST_BYTES:
        raise violation(by, "offset", f"is at most {MOST_BYTES}", frame.offset)
    return LogBytes(LogPlace(number=int(number), offset=frame.offset), frame.payload)
