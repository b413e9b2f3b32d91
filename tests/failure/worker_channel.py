"""The line between the worker's process and the worlds, which outlive it.

One JSON document a line, over a Unix socket. From the worker: calls, and calls that nobody waits
for any longer. To the worker: answers, errors, and the order to give no sign of life.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

from pydantic import TypeAdapter
from temporalio.exceptions import ApplicationError

from workflows.contracts.base import Contract

LINE_LIMIT = 2**22


class Call(Contract):
    """One attempt at an effect, as the worker was given it."""

    number: int
    workflow_id: str
    lifecycle: str
    effect: str
    stub: str
    activity_id: str
    command: str
    """What is asked, as JSON."""


class Gone(Contract):
    """The call was cancelled or has run out of time: nobody waits for its answer."""

    gone: int


class Said(Contract):
    """About one call: its answer, its error, or that it is to fall silent."""

    number: int
    answer: str | None = None
    error: str | None = None
    error_type: str | None = None
    is_final: bool = False
    silent: bool = False


FROM_WORKER: TypeAdapter[Call | Gone] = TypeAdapter(Call | Gone)


class Waiting:
    """The world's end of one call: whether somebody still waits, and the way to answer."""

    def __init__(self, call: Call, say: Callable[[Said], None]) -> None:
        self.call = call
        self.abandoned = asyncio.Event()
        self._say = say

    def falls_silent(self) -> None:
        """From now on it gives no sign of life."""
        self._say(Said(number=self.call.number, silent=True))


Answerer = Callable[[Waiting], Awaitable[str]]


class Exchange:
    """Takes the calls of one worker after another; each is answered in a task of its own."""

    def __init__(self, answer: Answerer) -> None:
        self._answer = answer
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, socket: Path) -> None:
        self._server = await asyncio.start_unix_server(self._serve, socket, limit=LINE_LIMIT)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        waiting: dict[int, Waiting] = {}

        def say(said: Said) -> None:
            if not writer.is_closing():
                writer.write(said.model_dump_json().encode() + b"\n")

        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            while line := await reader.readline():
                received = FROM_WORKER.validate_json(line)
                if isinstance(received, Gone):
                    if received.gone in waiting:
                        waiting[received.gone].abandoned.set()
                    continue
                waiting[received.number] = found = Waiting(received, say)
                task = asyncio.create_task(self._answer_one(found, say))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        for found in waiting.values():  # the process is gone, and with it all who waited
            found.abandoned.set()
        writer.close()

    async def _answer_one(self, waiting: Waiting, say: Callable[[Said], None]) -> None:
        number = waiting.call.number
        try:
            say(Said(number=number, answer=await self._answer(waiting)))
        except ApplicationError as error:
            said = Said(
                number=number,
                error=error.message,
                error_type=error.type,
                is_final=error.non_retryable,
            )
            say(said)
        except Exception as broken:  # noqa: BLE001 - a broken world is a broken effect, and is told
            say(Said(number=number, error=f"the world broke: {broken!r}", is_final=True))
