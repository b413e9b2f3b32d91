"""The `baseload` command and the public API, as a person with a terminal uses them."""

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx

from workers.runner.lifecycle import StackError, Tell
from workers.runner.settings import RunnerSettings

# A resource as the API answers it, in JSON: the runner depends on no model of the API.
Resource = dict[str, Any]
POLL_S = 0.3
RESTART_LIMIT_S = 30
SHORT_S = 3.0
RUNNING_JOBS = "/v1/jobs?limit=100&status=running&status=unreachable"


class Commands:
    """Commands that run against the stack, shown as a person would type them, or silently."""

    def __init__(self, settings: RunnerSettings, tell: Tell, *, shown: bool) -> None:
        self._tell = tell
        self._shown = shown
        self._environment = _environment(settings)

    def baseload(self, *arguments: str) -> None:
        """Run `baseload …`. Raises: StackError, when the command fails, with its output."""
        self.run("baseload", *arguments)

    def run(self, program: str, *arguments: str) -> None:
        """Run any program. Raises: StackError, when the program fails, with its output."""
        line = shlex.join((program, *arguments))
        if self._shown:
            self._tell(f"$ {line}")
        quiet = None if self._shown else subprocess.PIPE
        done = subprocess.run(
            (program, *arguments),
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=quiet,
            stderr=subprocess.STDOUT if quiet else None,
            text=True,
            check=False,
        )
        if done.returncode:
            output = f":\n{done.stdout.strip()}" if done.stdout else ""
            raise StackError(f"`{line}` ended with status {done.returncode}{output}")


class PublicApi:
    """The public API, called with the administrator's key."""

    def __init__(self, settings: RunnerSettings) -> None:
        key = (settings.home / "admin.key").read_text().strip()
        self._client = httpx.Client(
            base_url=settings.api_url,
            headers={"Authorization": f"Bearer {key}"},
            timeout=30,
            trust_env=False,  # The API is on this machine, so no proxy is needed.
        )

    def get(self, path: str) -> Resource:
        """Read a resource or a list.

        Raises: StackError, when the API refuses, and when it does not answer for half a minute.
        """
        deadline = time.monotonic() + RESTART_LIMIT_S
        while True:
            try:
                return self._answer(self._client.get(path))
            except httpx.TransportError as error:
                # The API may have been killed: the runner starts it again.
                if time.monotonic() > deadline:
                    raise StackError(f"{self._client.base_url}{path}: {error}") from error
                time.sleep(POLL_S)

    def text(self, path: str) -> str:
        """Read an answer that is not JSON, such as a log.

        Raises: StackError, when the API refuses or does not answer.
        """
        try:
            answer = self._client.get(path)
        except httpx.TransportError as error:
            raise StackError(f"{self._client.base_url}{path}: {error}") from error
        self._must_be_granted(answer)
        return answer.text

    def post(self, path: str, body: Mapping[str, object]) -> Resource:
        return self._answer(self._client.post(path, json=body))

    def live(self, noun: str, **wanted: str) -> Resource | None:
        """The newest resource with these fields that has not been removed."""
        for found in self.get(f"/v1/{noun}?limit=100")["items"]:
            fits = all(found[field] == value for field, value in wanted.items())
            if fits and found["status"] not in {"archived", "removing"}:
                return dict(found)
        return None

    def running_jobs(self) -> list[Resource]:
        """The jobs of the administrator's account that run on nodes; asked once, and quickly.

        Raises: StackError, when the API refuses or does not answer.
        """
        try:
            answer = self._client.get(RUNNING_JOBS, timeout=SHORT_S)
        except httpx.TransportError as error:
            raise StackError(f"{self._client.base_url}{RUNNING_JOBS}: {error}") from error
        return list(self._answer(answer)["items"])

    def wait(
        self, path: str, wanted: frozenset[str], limit_s: float, changed: Callable[[str], None]
    ) -> Resource:
        """Wait until a resource has one of these statuses, and report each change of its status.

        Raises: StackError, when the resource fails, or has no such status within the limit.
        """
        deadline = time.monotonic() + limit_s
        last = ""
        while True:
            found = self.get(path)
            if found["status"] != last:
                last = str(found["status"])
                changed(last)
            if last in wanted:
                return found
            reason = found["status_reason"] or "no reason given"
            if last == "failed":
                raise StackError(f"{found['id']} has failed: {reason}")
            if time.monotonic() > deadline:
                raise StackError(f"{found['id']} is {last} after {limit_s:g} s: {reason}")
            time.sleep(POLL_S)

    def _answer(self, response: httpx.Response) -> Resource:
        self._must_be_granted(response)
        return dict(response.json())

    @staticmethod
    def _must_be_granted(response: httpx.Response) -> None:
        """Raises: StackError, when the answer is an error."""
        if response.is_error:
            request = response.request
            raise StackError(f"{request.method} {request.url}: {response.text}")


def _environment(settings: RunnerSettings) -> dict[str, str]:
    """The environment of commands: `baseload` on PATH, with this stack's home and API."""
    own = Path(sys.executable).parent
    others = {"BASELOAD_API_KEY", "BASELOAD_ACCOUNT"}
    return {
        **{name: value for name, value in os.environ.items() if name not in others},
        "PATH": f"{own}:{os.environ.get('PATH', os.defpath)}",
        "BASELOAD_HOME": str(settings.home.absolute()),
        "BASELOAD_API": settings.api,
    }
