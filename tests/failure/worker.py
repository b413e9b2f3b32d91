"""The worker's process: our workflows as they are, over effects that a world elsewhere does.

`python -m tests.failure.worker TEMPORAL_ADDRESS SOCKET`. It is made to be killed.
"""

import asyncio
import itertools
import logging
import sys
from collections.abc import Sequence
from datetime import timedelta

from temporalio import activity
from temporalio.api.common.v1 import Payload
from temporalio.client import Client
from temporalio.common import RawValue
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from tests.failure.short_timeouts import install, stub_of
from tests.failure.worker_channel import LINE_LIMIT, Call, Gone, Said
from tests.task_queues import task_queues
from workers.main import STICKY_FOR
from workers.process import run_process
from workers.registry import WORKFLOWS, workflow_runner
from workers.serving import serving
from workflows.contracts import queues

BEAT_S = 0.4


class Line:
    """The worker's end: one call, one answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Said]] = {}
        self._silent: set[int] = set()

    async def listen(self) -> None:
        while line := await self._reader.readline():
            said = Said.model_validate_json(line)
            if said.silent:
                self._silent.add(said.number)
            elif (answer := self._answers.get(said.number)) and not answer.done():
                answer.set_result(said)

    async def ask(self, command: str) -> Said:
        """The world's answer. Alive, it says so to Temporal, unless it was told not to."""
        number = next(self._numbers)
        answer: asyncio.Future[Said] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        self._send(_call(number, command))
        try:
            while not (await asyncio.wait([answer], timeout=BEAT_S))[0]:
                if activity.info().heartbeat_timeout and number not in self._silent:
                    activity.heartbeat()
        except asyncio.CancelledError:
            self._send(Gone(gone=number))
            raise
        finally:
            del self._answers[number]
        return answer.result()

    def _send(self, message: Call | Gone) -> None:
        self._writer.write(message.model_dump_json().encode() + b"\n")


def _call(number: int, command: str) -> Call:
    info = activity.info()
    return Call(
        number=number,
        workflow_id=str(info.workflow_id),
        lifecycle=str(info.workflow_type),
        effect=info.activity_type,
        stub=stub_of(str(info.workflow_type), info.activity_id, info.activity_type),
        activity_id=f"{info.workflow_run_id}/{info.activity_id}",
        command=command,
    )


class Effects:
    """One activity for all effects: what it is asked goes over the line."""

    def __init__(self, line: Line) -> None:
        self._line = line

    @activity.defn(dynamic=True)
    async def do(self, asked: Sequence[RawValue]) -> RawValue:
        said = await self._line.ask(asked[0].payload.data.decode())
        if said.answer is None:
            raise ApplicationError(
                said.error or "", type=said.error_type, non_retryable=said.is_final
            )
        return RawValue(Payload(metadata={"encoding": b"json/plain"}, data=said.answer.encode()))


async def serve(stop: asyncio.Event) -> int:
    address, socket = sys.argv[1:]
    install()
    reader, writer = await asyncio.open_unix_connection(socket, limit=LINE_LIMIT)
    line = Line(reader, writer)
    listening = asyncio.create_task(line.listen())
    client = await Client.connect(address, data_converter=pydantic_data_converter)
    workers = [
        Worker(
            client,
            task_queue=queue,
            workflows=WORKFLOWS if queue == queues.MAIN else [],
            activities=[Effects(line).do],
            workflow_runner=workflow_runner(),
            max_concurrent_activities=500,
            max_concurrent_local_activities=500,
            max_heartbeat_throttle_interval=timedelta(seconds=BEAT_S),
            sticky_queue_schedule_to_start_timeout=STICKY_FOR,
        )
        for queue in task_queues()
    ]
    async with serving(*workers):
        ended = asyncio.create_task(stop.wait())
        await asyncio.wait([ended, listening], return_when=asyncio.FIRST_COMPLETED)
    return 0


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    run_process(serve, set_up_logging=False)
