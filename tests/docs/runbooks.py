"""Somebody who follows a runbook: types its commands, and opens its pages of the Temporal UI."""

import asyncio
import base64
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from tests.docs.snippets import blocks
from workers.runner.settings import CHECKOUT

LIMIT_S = 60
_COMMENT = re.compile(r" {2,}# .*")
_PAGE = re.compile(r"http://127\.0\.0\.1:8233(/[^\s`)]+)")
_ROUTE = re.compile(r'"/\(app\)(/namespaces/[^"]*)"')
_SCRIPT = re.compile(r"/_app/immutable/entry/app\.[^\"]+\.js")


def commands_of(document: str) -> list[str]:
    """What a runbook says to type where the platform runs, a line each, without its comments."""
    texts = (block.text for block in blocks(document) if not block.not_run)
    lines = (_COMMENT.sub("", line).strip() for text in texts for line in text.splitlines())
    return [line for line in lines if line]


def pages_of(document: str) -> list[str]:
    """The paths of the pages of the Temporal UI that a runbook names, with their queries."""
    return list(dict.fromkeys(_PAGE.findall((CHECKOUT / document).read_text())))


class TemporalUi:
    """The UI of a Temporal server as a browser uses it: its pages, and their data."""

    def __init__(self, port: int) -> None:
        self._http = httpx.Client(
            base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=LIMIT_S
        )
        page = self._http.get("/namespaces/default/workflows")
        script = _SCRIPT.search(page.text)
        assert script is not None, "the UI has a script that knows its routes"
        self._routes = [
            re.compile("/".join("[^/]+" if "[" in part else part for part in route.split("/")))
            for route in _ROUTE.findall(self._http.get(script[0]).text)
        ]
        self._csrf = page.cookies["_csrf"]

    def close(self) -> None:
        self._http.close()

    def has_page(self, path: str) -> bool:
        """Whether one of its routes serves the path; any path is answered with the same script."""
        answer, route = self._http.get(path), urlsplit(path).path
        is_served = any(each.fullmatch(route) for each in self._routes)
        return answer.status_code == 200 and is_served

    def listed(self, page: str) -> dict[str, str]:
        """The `ResourceStatus` of what a page of workflows lists, by workflow id."""
        found = self._data(f"?{urlsplit(page).query}")["executions"]
        return {each["execution"]["workflowId"]: _status_of(each) for each in found}

    def current_details(self, workflow_id: str) -> str:
        """What the page of the user metadata shows."""
        path = f"{self._path(workflow_id)}/query/__temporal_workflow_metadata"
        answer = self._http.post(path, json={}, headers={"X-CSRF-TOKEN": self._csrf})
        assert answer.status_code == 200, answer.text
        [payload] = answer.json()["queryResult"]["payloads"]
        return str(_decoded(payload)["currentDetails"])

    def pending(self, workflow_id: str) -> dict[str, tuple[int, str]]:
        """By activity, the attempt and the last failure that the pending ones show."""
        found = self._data(f"/{quote(workflow_id, safe='')}").get("pendingActivities", ())
        return {
            each["activityType"]["name"]: (
                int(each["attempt"]),
                each.get("lastFailure", {}).get("message", ""),
            )
            for each in found
        }

    def summaries(self, workflow_id: str) -> set[str]:
        """The summaries that the history shows."""
        events = self._data(f"/{quote(workflow_id, safe='')}/history")["history"]["events"]
        given = (each.get("userMetadata", {}).get("summary") for each in events)
        return {str(_decoded(payload)) for payload in given if payload}

    def run_of(self, workflow_id: str) -> str:
        found = self._data(f"/{quote(workflow_id, safe='')}")
        return str(found["workflowExecutionInfo"]["execution"]["runId"])

    def _path(self, workflow_id: str) -> str:
        return f"/api/v1/namespaces/default/workflows/{quote(workflow_id, safe='')}"

    def _data(self, rest: str) -> dict[str, Any]:
        answer = self._http.get(f"/api/v1/namespaces/default/workflows{rest}")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


def _status_of(execution: dict[str, Any]) -> str:
    fields = execution.get("searchAttributes", {}).get("indexedFields", {})
    return str(_decoded(fields["ResourceStatus"])) if "ResourceStatus" in fields else ""


def _decoded(payload: Any) -> Any:
    """The content of a payload, which the HTTP API writes in one of two ways."""
    if not isinstance(payload, dict) or "data" not in payload:
        return payload
    return json.loads(base64.b64decode(payload["data"]))


@dataclass
class RunbookReader:
    """Somebody who types the commands of one runbook, each at least once.

    names: what stands in place of an id in the runbook, and the id.
    """

    document: str
    environment: dict[str, str]
    names: dict[str, str]
    typed: set[str] = field(default_factory=set)

    async def types(self, beginning: str) -> str:
        """Type the line of the runbook that begins so. What it prints."""
        lines = [line for line in commands_of(self.document) if line.startswith(beginning)]
        assert len(lines) == 1, f"{self.document} has {len(lines)} lines that begin: {beginning}"
        self.typed.add(lines[0])
        done = await asyncio.to_thread(
            subprocess.run,
            ["bash", "-c", self.named(lines[0])],
            cwd=self.environment["HOME"],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        assert done.returncode == 0, f"{lines[0]}:\n{done.stdout}{done.stderr}"
        return str(done.stdout)

    def named(self, text: str) -> str:
        """The text with the ids of this reader; `RUN` stands for a run id in paths."""
        for placeholder, name in self.names.items():
            text = text.replace(placeholder, name)
        return text

    @property
    def untyped(self) -> set[str]:
        return set(commands_of(self.document)) - self.typed


def programs_in(folder: Path, tctl: Path) -> Path:
    """A folder with `tctl` and `baseload`."""
    folder.mkdir()
    (folder / "tctl").symlink_to(tctl)
    baseload = folder / "baseload"
    baseload.write_text(f'#!/bin/sh\nexec {sys.executable} -m baseload "$@"\n')
    baseload.chmod(0o755)
    return folder


def reader_of(
    document: str, programs: Path, environment: dict[str, str], names: dict[str, str]
) -> RunbookReader:
    """A reader with these programs on the PATH, and a home of their own."""
    path = f"{programs}:{os.environ['PATH']}"
    python = os.pathsep.join((str(CHECKOUT / "client" / "src"), str(CHECKOUT)))
    settings = {"HOME": str(programs), "PYTHONPATH": python, "COLUMNS": "300", "NO_COLOR": "1"}
    return RunbookReader(document, {"PATH": path, **settings, **environment}, names)
