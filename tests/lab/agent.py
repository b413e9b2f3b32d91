"""Talking to the node agent on a machine of the lab, over a plain SSH connection."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncssh

from activities.transport.agent_archive import agent_archive
from tests.activities.agent.agent_process import compiled_agent
from tests.lab.machine import Machine
from tests.lab.machines import Lab
from tests.lab.ssh import connect

ROOT = "/var/lib/baseload"


class AgentRefusedError(Exception):
    """The agent's `{"ok": false}`; `code` is its error code."""

    def __init__(self, error: dict[str, str]) -> None:
        super().__init__(f"{error['code']}: {error['message']}")
        self.code = error["code"]


class Agent:
    """The agent of one machine; `install` comes first."""

    def __init__(self, connection: asyncssh.SSHClientConnection) -> None:
        self._connection = connection
        self._file = f"{ROOT}/agent/{agent_archive().name}"

    async def install(self) -> None:
        async with self._connection.start_sftp_client() as sftp:
            await sftp.makedirs(f"{ROOT}/agent", exist_ok=True)
            async with sftp.open(self._file, "wb") as file:
                await file.write(agent_archive().content)

    async def call(self, verb: str, **request: object) -> dict[str, Any]:
        """The agent's answer. Raises: AgentRefusedError; AssertionError when it broke."""
        done = await self._connection.run(
            f"python3 {self._file} {verb}", input=json.dumps({"root": ROOT, **request})
        )
        assert done.exit_status == 0, f"{verb}: exit {done.exit_status}: {done.stderr!r}"
        answer: dict[str, Any] = json.loads(str(done.stdout))
        if not answer["ok"]:
            raise AgentRefusedError(answer["error"])
        return answer

    async def begin_call(
        self, verb: str, *, eof: bool = True, **request: object
    ) -> asyncssh.SSHClientProcess[str]:
        """Send a request, and do not wait for its answer. eof: whether stdin ends with it."""
        process = await self._connection.create_process(f"python3 {self._file} {verb}")
        process.stdin.write(json.dumps({"root": ROOT, **request}) + "\n")
        if eof:
            process.stdin.write_eof()
        return process

    async def begin(
        self, run_id: str, command: str, runtime: str = "process", **more: object
    ) -> dict[str, Any]:
        """Stage and start a command; `more` goes into its spec."""
        spec: dict[str, object] = {
            "command": command,
            "environment": {},
            "runtime": runtime,
            "image": None,
            "gpu_uuids": [],
            "user": None,
            "cpu_count": None,
            "memory_bytes": None,
            "grace_s": 1,
            "disk_size_gb": None,
            "port": None,
            **more,
        }
        await self.call("stage", run_id=run_id, code_sha256=None, spec=spec, python_packages=[])
        return await self.call("start", run_id=run_id)

    async def look(self, run_id: str) -> dict[str, Any]:
        answer = await self.call("status", run_ids=[run_id])
        run: dict[str, Any] = answer["runs"][run_id]
        return run

    async def exited(self, run_id: str) -> dict[str, Any]:
        """The exit of a run, waited for at most 10 s."""
        for _ in range(100):
            run = await self.look(run_id)
            if run["exit"] is not None:
                found: dict[str, Any] = run["exit"]
                return found
        raise TimeoutError(f"run {run_id}: has not exited")


@asynccontextmanager
async def agent_on(lab: Lab, machine: Machine) -> AsyncIterator[Agent]:
    """The agent of a machine, installed and compiled as after the first watch of a node."""
    async with connect(lab, machine) as connection:
        agent = Agent(connection)
        await agent.install()
        name = f"{agent_archive().name}.{sys.implementation.cache_tag}"
        compiled = machine.disk / f"{ROOT[1:]}/agent" / name
        if not compiled.exists():
            shutil.copytree(compiled_agent(), compiled)
        yield agent
