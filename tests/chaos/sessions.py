"""Sessions of people in running jobs while everything breaks: whole, or ended with a reason."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import httpx

from tests.chaos.tally import Wrong
from tests.lab.waiting import wait_until
from workers.runner.probes import free_port
from workers.runner.settings import CHECKOUT

if TYPE_CHECKING:
    from tests.chaos.stack import RoomStack

WAYS = ("exec", "ssh", "forward", "link")
ON_A_PORT = ("forward", "link")
TICKS, TICK_S = 30, 0.3
TICKING = f"for n in $(seq 1 {TICKS}); do echo tick $n; sleep {TICK_S}; done"
SAID = "".join(f"tick {n}\n" for n in range(1, TICKS + 1))
PAGE = "Directory listing"
LIMIT_S = 240.0
OPENED_S = 90.0
HELD_S = 4.0
ENDED_S = 30.0


@dataclass(frozen=True)
class Ended:
    """How a session has ended. whole: all that was to come has come."""

    way: str
    code: int | None
    whole: bool
    said: str
    """What a person reads beside it."""


def wrong_with(ended: Ended) -> Iterator[tuple[Wrong, str]]:
    """What is wrong with how a session has ended; nothing, if it was whole or says why not."""
    what = f"{ended.way}: exit {ended.code}: {ended.said[-300:]!r}"
    if ended.code is None:
        yield "left", f"a session hangs: {what}"
    if "Traceback" in ended.said:
        yield "lost", f"a session ends with a traceback: {what}"
    if not ended.whole and ended.code == 0:
        yield "lost", f"a session breaks off as if it were whole: {what}"
    if not ended.whole and not ended.said.strip():
        yield "lost", f"a session breaks off without a word: {what}"


@dataclass
class Client:
    """A person at a terminal, with the `baseload` command."""

    stack: RoomStack
    key: str = field(init=False)

    def __post_init__(self) -> None:
        self.key = self.stack.administrator_key

    async def reach(self, way: str, job_id: str, port: int) -> Ended:
        """One session, to its end."""
        on_port = {"forward": self._forward, "link": self._link}
        if way in on_port:
            return await asyncio.to_thread(on_port[way], job_id, port)
        return await asyncio.to_thread(self._tick, way, job_id)

    def _begin(self, command: list[str]) -> subprocess.Popen[str]:
        environment = {
            "PATH": os.environ["PATH"], "HOME": str(self.stack.home), "TERM": "xterm",
            "PYTHONPATH": str(CHECKOUT / "client/src"), "BASELOAD_API": self.stack.url,
            "BASELOAD_API_KEY": self.key, "BASELOAD_ALLOW_PLAIN_HTTP": "1",
        }  # fmt: skip
        return subprocess.Popen(
            command, env=environment, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def _tick(self, way: str, job_id: str) -> Ended:
        if way == "exec":
            command = baseload("exec", job_id, "--", "sh", "-c", TICKING)
        else:
            proxy = " ".join(baseload("ssh", "--stdio", job_id))
            options = (f"ProxyCommand={proxy}", "StrictHostKeyChecking=no", "LogLevel=ERROR",
                       "UserKnownHostsFile=/dev/null")  # fmt: skip
            command = ["ssh", *(f"-o{each}" for each in options), "-Fnone", "job", TICKING]
        code, out, said = _to_its_end(self._begin(command), LIMIT_S)
        return Ended(way, code, out == SAID, said)

    def _forward(self, job_id: str, port: int) -> Ended:
        local = free_port()
        process = self._begin(baseload("forward", job_id, f"{port}:{local}"))
        try:
            wait_until(
                lambda: process.poll() is not None or _listens(local), "it listens", OPENED_S
            )
            first = _page(f"http://127.0.0.1:{local}/")
            time.sleep(HELD_S)  # The connection stays open, while faults come.
            whole = PAGE in first and PAGE in _page(f"http://127.0.0.1:{local}/")
        except (TimeoutError, httpx.HTTPError):
            whole = False
        process.send_signal(signal.SIGINT)
        code, _, said = _to_its_end(process, ENDED_S)
        return Ended("forward", code, whole, said)

    def _link(self, job_id: str, _: int) -> Ended:
        code, out, said = _to_its_end(self._begin(baseload("link", job_id)), LIMIT_S)
        if code != 0:
            return Ended("link", code, False, said)
        origin, entrance = out.strip().split("/.baseload", 1)
        host = origin.removeprefix("http://")
        base = f"{self.stack.url.rpartition(':')[0]}:{host.rpartition(':')[2]}"
        try:
            with httpx.Client(base_url=base, headers={"Host": host}, trust_env=False) as browser:
                entered = browser.get(f"/.baseload{entrance}")
                cookie = entered.headers.get("set-cookie", "").partition(";")[0]
                page = browser.get("/", headers={"Cookie": cookie}, timeout=60)
        except httpx.HTTPError as away:  # What a browser shows.
            return Ended("link", 1, False, repr(away))
        whole = page.status_code == 200 and PAGE in page.text
        return Ended("link", 0 if whole else page.status_code, whole, page.text)


def baseload(*words: str) -> list[str]:
    return [sys.executable, "-m", "baseload", *words]


def _to_its_end(process: subprocess.Popen[str], limit_s: float) -> tuple[int | None, str, str]:
    """Its exit code, or None when it had to be killed, and what it wrote."""
    try:
        out, said = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, said = process.communicate()
        return None, out, said
    return process.returncode, out, said


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _page(url: str) -> str:
    return httpx.get(url, trust_env=False, timeout=60).text
