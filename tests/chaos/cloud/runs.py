"""What commands tell of themselves while they run, whatever machine they are on."""

from __future__ import annotations

import asyncio
from collections import Counter

SAID = "".join(f"line {n}\n" for n in range(1, 6))
PAUSE_S = 0.3


class Runs:
    """A port at which each command tells that it begins and that it ends."""

    def __init__(self) -> None:
        self.begun: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._hear, "127.0.0.1", 0)

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        word, _, job_id = (await reader.read(200)).decode().strip().partition(" ")
        {"begin": self.begun, "end": self.ended}[word][job_id] += 1
        writer.close()

    def command(self) -> str:
        """Tells, prints `SAID` with pauses, leaves an output, tells again."""
        tell = f"echo {{}} $BASELOAD_JOB_ID > /dev/tcp/127.0.0.1/{self.port}"
        lines = f"for n in $(seq 1 {SAID.count('line')}); do echo line $n; sleep {PAUSE_S}; done"
        left = "echo done > $BASELOAD_OUTPUT/result"
        return f"bash -c '{tell.format('begin')}; {lines}; {left}; {tell.format('end')}'"

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
