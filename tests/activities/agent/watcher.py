"""The agent's watcher of a machine, and the frames that it sends."""

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.activities.agent.agent_process import LocalAgent

LIMIT_S = 20
Frame = dict[str, Any]


@contextmanager
def frames_of(
    agent: LocalAgent, kind: str, **request: object
) -> Iterator[Callable[[], list[Frame]]]:
    """Run a watcher on the agent's machine; what is yielded has all frames of this kind so far."""
    process = subprocess.Popen(
        agent.command("watch"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=agent.environment,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps({"root": str(agent.root), **request}).encode() + b"\n")
    process.stdin.flush()
    found: list[Frame] = []
    reading = threading.Thread(target=_read, args=(process.stdout, kind, found))
    reading.start()
    try:
        yield lambda: found
    finally:
        process.stdin.close()
        assert process.wait(timeout=LIMIT_S) == 0
        reading.join(timeout=LIMIT_S)
        process.stdout.close()


def _read(stream: Any, kind: str, found: list[Frame]) -> None:
    for line in stream:
        frame = json.loads(line)
        stream.read(frame.get("length", 0))
        if frame["kind"] == kind:
            found.append(frame)
