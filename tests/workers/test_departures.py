"""API and workers are started and stopped, over and over: none crashes while it leaves.

`BASELOAD_DEPARTURES=200 pytest tests/workers/test_departures.py` is the long form.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.temporal_server import CHECKOUT, TemporalServer

DEPARTURES = int(os.environ.get("BASELOAD_DEPARTURES", "5"))
AT_ONCE = 2
START_LIMIT_S = 180.0
STOP_LIMIT_S = 15.0


async def one_life(kind: str, environment: Mapping[str, str], *, early: bool) -> tuple[int, str]:
    """Start, stop when it serves (or while it still starts), and what it left behind."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "workers", kind,
        cwd=CHECKOUT,
        env=environment,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    said = b""
    if not early:
        async with asyncio.timeout(START_LIMIT_S):
            while b"serves" not in said:
                line = await process.stderr.readline()
                assert line, said.decode()
                said += line
    process.send_signal(signal.SIGTERM)
    rest, status = await asyncio.wait_for(
        asyncio.gather(process.stderr.read(), process.wait()), STOP_LIMIT_S + START_LIMIT_S
    )
    return status, (said + rest).decode()


@pytest.mark.timeout(300 + DEPARTURES * 30)
@pytest.mark.parametrize("kind", ["api", "main"])
async def test_no_process_crashes_while_it_leaves(
    kind: str, tmp_path: Path, temporal_process: TemporalServer
) -> None:
    namespace = (await temporal_process.namespace()).namespace
    environment = {
        **os.environ,
        "BASELOAD_HOME": str(tmp_path),
        "BASELOAD_TEMPORAL_ADDRESS": temporal_process.address,
        "BASELOAD_TEMPORAL_NAMESPACE": namespace,
        "BASELOAD_API": "127.0.0.1:0",
    }
    turns = asyncio.Semaphore(AT_ONCE)

    async def life(number: int) -> tuple[int, str]:
        async with turns:
            return await one_life(kind, environment, early=number % 4 == 3)

    lives = await asyncio.gather(*(life(number) for number in range(DEPARTURES)))
    crashed = [said for status, said in lives if status in (134, 139, -6, -11)]
    assert crashed == []
    late = [(status, said) for status, said in lives if status not in (0, -signal.SIGTERM)]
    assert late == []
    assert [said for _, said in lives if "Traceback" in said] == []
