"""The log of what a device runs now, read from the device and followed for as long as one likes."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator

from temporalio.exceptions import ApplicationError

from activities.site.answers.frames import Frame, LogFrame, frames
from activities.site.node_client import NodeClient
from workflows.contracts import errors
from workflows.contracts.nodes import NodeAddress

SILENCE_S = 12.0
"""How long we wait for a frame of a followed log; the device sends a beat every 2 s."""


@contextlib.asynccontextmanager
async def device_log(
    node: NodeAddress, *, offset: int = 0, last_bytes: int | None = None, follows: bool = False
) -> AsyncGenerator[AsyncIterator[LogFrame]]:
    """The pieces of the log from a byte on, or of its last bytes, for as long as the block runs.

    The log is bounded on the device, so a piece may begin later than the one before has ended. It
    ends, also where it is followed, when the command is started anew.
    Raises: ApplicationError: as `NodeClient`; NODE_REFUSED, when the device has no log;
    NODE_UNREACHABLE, when it says nothing for `SILENCE_S`.
    """
    client = NodeClient(node)
    request = {"offset": offset, "last_bytes": last_bytes, "follow": follows}
    async with client.stream(
        "read_device_log", request, eof=not follows, loss=errors.NODE_UNREACHABLE
    ) as stream:
        yield _pieces(node, frames(stream, client.speaker("read_device_log")))


async def _pieces(node: NodeAddress, source: AsyncIterator[Frame]) -> AsyncIterator[LogFrame]:
    while True:
        try:
            async with asyncio.timeout(SILENCE_S):
                frame = await anext(source)
        except StopAsyncIteration:
            return
        except TimeoutError as error:
            words = f"{node.node_id}: its log was silent for {SILENCE_S:g} s"
            raise ApplicationError(words, type=errors.NODE_UNREACHABLE) from error
        if isinstance(frame, LogFrame):
            yield frame
