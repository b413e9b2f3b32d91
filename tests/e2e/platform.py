"""The public API as a user's program sees it, and waiting for what it says."""

from __future__ import annotations

import contextlib
import hashlib
import io
import shlex
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx

from tests.lab.machine import Machine
from tests.lab.waiting import wait_until

Resource = dict[str, Any]
ENDED = ("finished", "failed", "canceled", "stopped", "archived")


class Refused(Exception):  # noqa: N818 - what the API has answered
    """A problem document; `status` and `code` are its own."""

    def __init__(self, answer: httpx.Response) -> None:
        self.status = answer.status_code
        self.problem: Resource = answer.json()
        self.code: str = self.problem["code"]
        super().__init__(f"{answer.request.method} {answer.request.url}: {answer.text}")


class Platform:
    """The API with one bearer key."""

    def __init__(self, url: str, key: str) -> None:
        headers = {"Authorization": f"Bearer {key}"}
        self.http = httpx.Client(base_url=url, headers=headers, timeout=30)

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        """One request. Raises: Refused."""
        answer = self.http.request(method, path, **options)
        if answer.status_code >= 400:
            raise Refused(answer)
        return answer

    def get(self, path: str, **query: str | int) -> Resource:
        found: Resource = self.ask("GET", path, params=query).json()
        return found

    def post(self, path: str, body: Resource | None = None, key: str | None = None) -> Resource:
        headers = {"Idempotency-Key": key or str(uuid4())}
        answer = self.ask("POST", path, json=body, headers=headers)
        made: Resource = answer.json() if answer.content else {}
        return made

    def items(self, path: str, **query: str | int) -> list[Resource]:
        """Every item of a list, over all pages, oldest first."""
        found: list[Resource] = []
        page = self.get(path, **query)
        found += page["items"]
        while page["next"] is not None:
            page = self.get(path, **{**query, "after": page["next"]})
            found += page["items"]
        return found[::-1]

    def events(self, path: str) -> list[str]:
        """The types of a resource's events, oldest first."""
        return [event["type"] for event in self.items(f"{path}/events")]

    def until(
        self, path: str, true: Callable[[Resource], object], what: str, limit_s: float = 150.0
    ) -> Resource:
        """Ask for a resource until the claim holds; an API that is away is asked again.

        Raises: TimeoutError with the resource and its events.
        """
        last: Resource = {}

        def look() -> bool:
            nonlocal last
            with contextlib.suppress(httpx.TransportError):
                last = self.get(path)
                return bool(true(last))
            return False

        try:
            wait_until(look, what, limit_s)
        except TimeoutError as cause:
            told = "\n".join(
                f"{one['type']}: {one['message']}" for one in self.items(f"{path}/events")
            )
            raise TimeoutError(f"{cause}\n{last}\n{told}") from cause
        return last

    def until_status(self, path: str, *statuses: str, limit_s: float = 150.0) -> Resource:
        """Wait for one of these statuses; a job that has ended otherwise is not waited for."""

        def arrived(found: Resource) -> bool:
            over = path.startswith("/v1/jobs/") and found["status"] in ENDED
            if over and found["status"] not in statuses:
                raise AssertionError(f"{path}: {found['status']}: {found['status_reason']}")
            return found["status"] in statuses

        return self.until(path, arrived, f"{path}: {' or '.join(statuses)}", limit_s)

    def job(self, command: str | list[str], region_id: str, **changes: Any) -> str:
        """Submit a job, CPU only unless `resources` say otherwise. The path of it."""
        commands = [command] if isinstance(command, str) else command
        body: Resource = {
            "name": "story",
            "type": "training",
            "resources": {"gpus": "cpu", "cpu_count": 1, "memory_gib": 1},
            "workers": [{"command": each} for each in commands],
            "placement": {"region_id": region_id},
        }
        return f"/v1/jobs/{self.post('/v1/jobs', {**body, **changes})['id']}"

    def upload(self, files: dict[str, str]) -> str:
        """Upload an archive of these files. Its id."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for name, text in files.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(text.encode())
                archive.addfile(entry, io.BytesIO(text.encode()))
        headers = {"Content-Type": "application/gzip", "Idempotency-Key": str(uuid4())}
        answer = self.ask("POST", "/v1/uploads", content=packed.getvalue(), headers=headers)
        return str(answer.json()["id"])

    def packed(self, files: dict[str, bytes]) -> bytes:
        """A tar of these files."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for file, content in files.items():
                entry = tarfile.TarInfo(file)
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
        return packed.getvalue()

    def dataset(self, name: str, files: dict[str, bytes]) -> str:
        """A dataset of these files, uploaded in one part, once it is ready. The path of it."""
        packed = self.packed(files)
        made = self.post("/v1/datasets", {"name": name, "source": {"type": "upload"}})
        path = f"/v1/datasets/{made['id']}"
        query = {"sha256": hashlib.sha256(packed).hexdigest()}
        self.ask("PUT", f"{path}/parts/0", params=query, content=packed)
        self.post(f"{path}/complete", {"part_count": 1})
        self.until_status(path, "ready")
        return path

    def log(self, job: str, worker: int = 0) -> str:
        return self.ask("GET", f"{job}/logs", params={"worker": worker}).text

    def output(self, job: str) -> dict[str, bytes]:
        """The files of a job's output, by name."""
        content = self.ask("GET", f"{job}/output").content
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            members = [member for member in archive.getmembers() if member.isfile()]
            return {m.name: file.read() for m in members if (file := archive.extractfile(m))}

    @contextlib.contextmanager
    def stream(self, path: str, last_event_id: str | None = None) -> Iterator[Iterator[SentEvent]]:
        """A server-sent stream, begun after the event of that id."""
        headers = {"Accept": "text/event-stream"}
        if last_event_id is not None:
            headers["Last-Event-ID"] = last_event_id
        with self.http.stream("GET", path, headers=headers, timeout=60) as answer:
            assert answer.status_code == 200, answer.read()
            yield sent_events(answer.iter_lines())


@dataclass(frozen=True)
class SentEvent:
    """One server-sent event."""

    id: str | None
    type: str
    text: str


def sent_events(lines: Iterator[str]) -> Iterator[SentEvent]:
    """Read a stream as the standard says; comments are passed over."""
    fields: dict[str, list[str]] = {}
    for line in lines:
        if line == "":
            if fields:
                ids, types = fields.get("id"), fields.get("event", ["message"])
                yield SentEvent(
                    ids[-1] if ids else None, types[-1], "\n".join(fields.get("data", []))
                )
            fields = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(":")
            fields.setdefault(name, []).append(value.removeprefix(" "))


class Site:
    """A region of ours and the machines in it."""

    def __init__(self, platform: Platform, region_id: str) -> None:
        self.platform, self.region_id = platform, region_id

    def announce(self, machine: Machine) -> None:
        """What a person does on the machine: run join.sh, as the API serves it."""
        fetched = f"curl -fsS {self.platform.http.base_url}/join.sh"
        line = f"{fetched} | sh -s -- {shlex.join(self.join_options())}"
        assert machine.minion_id in machine.run("sh", "-c", line)

    def join_options(self) -> tuple[str, ...]:
        """The options of join.sh, with a join token of the region."""
        made = self.platform.post("/v1/join-tokens", {"region_id": self.region_id})
        url = str(self.platform.http.base_url)
        return "--api", url, "--token", made["secret"], "--key", made["ssh_public_key"]

    def add(self, machine: Machine, **changes: Any) -> str:
        """Ask for the machine as a node. The path of it."""
        body = {"region_id": self.region_id, "name": machine.name, "minion_id": machine.minion_id}
        return f"/v1/nodes/{self.platform.post('/v1/nodes', {**body, **changes})['id']}"

    def activate(self, node: str) -> None:
        self.platform.post(f"{node}/activate")
        self.platform.until_status(node, "active")

    def join(self, *machines: Machine) -> list[str]:
        """Announced, added, prepared and active. Their paths."""
        nodes = []
        for machine in machines:
            self.announce(machine)
            nodes.append(self.add(machine))
        for node in nodes:
            self.platform.until_status(node, "maintenance", limit_s=150)
            self.activate(node)
        return nodes
