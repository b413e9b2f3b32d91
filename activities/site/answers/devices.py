"""What a device says of its inference: answers of its verbs, and the frames of its watch."""

import asyncio
from collections.abc import AsyncIterable, AsyncIterator
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag, TypeAdapter

from activities.site.answers.bounds import BootId, ByteCount, Code, Count, Said, Text
from activities.site.answers.frames import MOST_HEADER_BYTES
from activities.site.answers.reading import Pace, Speaker, parsed, violation
from workflows.contracts.devices import DeviceRun, InferenceStatus, OutputBacklog

MOST_ASSIGNMENTS = 1 << 30
MOST_AWAY = 300
ExitCode = Annotated[int, Field(ge=-(1 << 31), lt=1 << 31)]
"""That of a device is a number in its row, which has no room for more."""


class SaidRun(Said):
    """What the device does now, by its own words."""

    number: Annotated[int, Field(ge=0, le=MOST_ASSIGNMENTS)]
    status: InferenceStatus
    exit_code: ExitCode | None = None
    reason: Text = ""


class SaidOutput(Said):
    """What of the output waits on the device for its datastore, and what was dropped so far."""

    waiting_files: Count = 0
    waiting_bytes: ByteCount = 0
    dropped_files: Count = 0
    dropped_bytes: ByteCount = 0
    away: Text = ""
    """Why it is not stored."""


class SaidState(Said):
    """What the device does now, and what of its output waits."""

    run: SaidRun
    output: SaidOutput = SaidOutput()

    def device_run(self) -> DeviceRun:
        """The same for the lifecycle of the device."""
        said = self.output.model_dump() | {"away": self.output.away[:MOST_AWAY]}
        return DeviceRun(**self.run.model_dump(), backlog=OutputBacklog(**said))


class Switched(SaidState):
    """The answer of `switch_device` and `stop_device`."""

    failed: Text | None = None
    """Why it does not do what was asked."""


class Cleared(Said):
    """The answer of `clear_device`."""

    lost_files: Count = 0
    """Of the output: those that no datastore has, and the device has no more."""


class DeviceState(SaidState):
    """The answer of `device_status`."""

    done: Annotated[int, Field(ge=0, le=MOST_ASSIGNMENTS)] = 0
    """The number of the last assignment that has come to its end there."""
    boot_id: BootId
    no_unit_reason: Text | None = None
    """Why the machine can start nothing at its boot, so that it is no device."""


class RunFrame(SaidState):
    """What the device does now, sent first and whenever it has changed."""

    kind: Literal["device"] = "device"
    boot_id: BootId


class DeviceBeat(Said):
    """The sign every 30 s that the watcher still runs; a kind that we do not know counts as one."""

    kind: Code = "beat"


DeviceFrame: TypeAlias = RunFrame | DeviceBeat


def _kind(header: Any) -> str:
    kind = header.get("kind") if isinstance(header, dict) else None
    return "device" if kind == "device" else "beat"


DEVICE_FRAME: TypeAdapter[DeviceFrame] = TypeAdapter(
    Annotated[
        Annotated[RunFrame, Tag("device")] | Annotated[DeviceBeat, Tag("beat")],
        Discriminator(_kind),
    ]
)


async def device_frames(
    chunks: AsyncIterable[bytes], by: Speaker, pace: Pace
) -> AsyncIterator[DeviceFrame]:
    """The lines of the watcher of a device; an incomplete last one is dropped.

    Raises: ApplicationError, PROTOCOL_VIOLATION.
    """
    buffer = bytearray()
    async for chunk in chunks:
        buffer += chunk
        while (end := buffer.find(b"\n", 0, MOST_HEADER_BYTES)) >= 0:
            yield parsed(bytes(buffer[:end]), DEVICE_FRAME.validate_json, by)
            del buffer[: end + 1]
            if (delay_s := pace(end + 1)) > 0:
                await asyncio.sleep(delay_s)
        if len(buffer) >= MOST_HEADER_BYTES:
            rule = f"a line of at most {MOST_HEADER_BYTES} bytes"
            raise violation(by, "frame", rule, bytes(buffer[:MOST_HEADER_BYTES]))
