"""The site's end of a session of the agent, as bytes."""

from __future__ import annotations

import contextlib
import json
import os
import select
import struct
import subprocess
import time
from typing import Any

from activities.agent.sessions import frames
from tests.activities.agent.agent_process import LocalAgent

LIMIT_S = 30.0


class AgentSession:
    """One session of a run on an agent without SSH between."""

    def __init__(self, agent: LocalAgent, verb: str, run_id: str, **request: Any) -> None:
        self.process = subprocess.Popen(
            agent.command(verb),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=agent.environment,
            user=agent.user,
        )
        asked = {"root": str(agent.root), "run_id": agent.named(run_id), **request}
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(asked).encode() + b"\n")
        self.process.stdin.flush()
        self.said: dict[int, bytes] = {frames.OUT: b"", frames.ERR: b""}
        self.kinds: list[int] = []
        self.exit: dict[str, Any] | None = None
        self._heard = b""

    @property
    def out(self) -> str:
        return self.said[frames.OUT].decode(errors="replace")

    @property
    def err(self) -> str:
        return self.said[frames.ERR].decode(errors="replace")

    def send(self, kind: int, payload: bytes = b"") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(frames.encode(kind, payload))
        self.process.stdin.flush()

    def resize(self, rows: int, columns: int) -> None:
        self.send(frames.RESIZE, struct.pack(">HH", rows, columns))

    def until(self, text: str) -> str:
        """Wait until the output has this text."""
        self._listen(lambda: text in self.out, repr(text))
        return self.out

    def until_kind(self, kind: int) -> None:
        self._listen(lambda: kind in self.kinds, f"a frame {kind}")

    def finish(self) -> dict[str, Any]:
        """How it has ended, waited for."""
        self._listen(lambda: self.exit is not None, "the exit")
        assert self.exit is not None
        self.close()
        return self.exit

    def refusal(self) -> dict[str, Any]:
        """The refusal of the verb, waited for."""
        _, errors = self.process.communicate(timeout=LIMIT_S)
        assert self.process.returncode == 3, errors
        found: dict[str, Any] = json.loads(errors)["error"]
        return found

    def leave(self) -> None:
        """The connection is lost."""
        self.close()

    def close(self) -> None:
        """Close the connection, and wait for the agent's end."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None and not pipe.closed:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self.process.wait(LIMIT_S)
        if self.process.stderr is not None:
            self.process.stderr.close()

    def _listen(self, is_heard: Any, what: str) -> None:
        assert self.process.stdout is not None
        until = time.monotonic() + LIMIT_S
        while not is_heard():
            ready, _, _ = select.select([self.process.stdout], [], [], 0.2)
            chunk = os.read(self.process.stdout.fileno(), 1 << 16) if ready else None
            if chunk == b"" or time.monotonic() > until:
                assert self.process.stderr is not None
                told = self.process.stderr.read() if chunk == b"" else b""
                raise AssertionError(f"no {what}: {self.said} {told!r}")
            self._heard += chunk or b""
            self._cut()

    def _cut(self) -> None:
        while len(self._heard) >= frames.HEADER.size:
            kind, length = frames.HEADER.unpack_from(self._heard)
            end = frames.HEADER.size + length
            if len(self._heard) < end:
                return
            payload, self._heard = self._heard[frames.HEADER.size : end], self._heard[end:]
            self.kinds.append(kind)
            if kind in self.said:
                self.said[kind] += payload
            elif kind == frames.EXIT:
                self.exit = json.loads(payload)
