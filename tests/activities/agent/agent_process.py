"""The packed agent on this machine, called as a node calls it, without SSH between."""

import atexit
import compileall
import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from activities.transport.agent_archive import agent_archive
from tests.activities.waiting import wait_for

NOBODY = 65534


class Refused(Exception):  # noqa: N818 - as the transport names it
    """The agent's `{"ok": false}`."""

    def __init__(self, error: Mapping[str, str]) -> None:
        super().__init__(f"{error['code']}: {error['message']}")
        self.code = error["code"]


@cache
def compiled_agent() -> Path:
    """The agent compiled once for this process, as the first watch of a node compiles it."""
    folder = Path(tempfile.mkdtemp(prefix="baseload-agent-", dir="/var/tmp"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)
    with zipfile.ZipFile(io.BytesIO(agent_archive().content)) as packed:
        packed.extractall(folder)
    compileall.compile_dir(folder, quiet=2)
    return folder


@cache
def empty_environment(python: str) -> Path:
    """The `packages` of an agent that has staged a run without packages: a note, an environment."""
    root = Path(tempfile.mkdtemp(prefix="baseload-packages-", dir="/var/tmp"))
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    first = LocalAgent(root)
    first.python = python
    first.stage("job-first-0-1", "true")
    return root / "packages"


class LocalAgent:
    """One agent root of its own, with the agent and what is compiled of it."""

    def __init__(self, root: Path, environment: Mapping[str, str] | None = None) -> None:
        self.root = root
        self.environment = environment
        self.python = sys.executable
        self.user: int | None = None
        self.named: Callable[[str], str] = str
        """Run id to the name of the run here."""
        self.archive = root / "agent" / agent_archive().name
        self.archive.parent.mkdir(parents=True)
        self.archive.write_bytes(agent_archive().content)
        self.compiled = self.archive.with_name(
            f"{self.archive.name}.{sys.implementation.cache_tag}"
        )
        self.compiled.symlink_to(compiled_agent())

    def has_staged_before(self, python: str = sys.executable) -> None:
        """Make what the first run of this interpreter finds missing, and every other one there."""
        shutil.copytree(empty_environment(python), self.root / "packages", symlinks=True)

    def become_ordinary(self) -> None:
        """From now on the agent is no longer root, if it was."""
        if os.geteuid() == 0:
            self.user = NOBODY
            self.python = "/usr/bin/python3"
            for path in (self.root, *self.root.rglob("*")):
                os.chown(path, NOBODY, -1, follow_symlinks=False)

    def command(self, verb: str) -> list[str]:
        """What runs a verb."""
        return [self.python, "-I", "-S", str(self.archive), verb]

    def call(self, verb: str, **request: Any) -> dict[str, Any]:
        """Do one verb. Raises: Refused."""
        return self.answer(self.begin(verb, **request))

    def begin(self, verb: str, **request: Any) -> subprocess.Popen[bytes]:
        """Begin one verb, whose request it has got."""
        process = subprocess.Popen(
            self.command(verb),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
            user=self.user,
        )
        assert process.stdin is not None
        if "run_id" in request:
            request["run_id"] = self.named(request["run_id"])
        process.stdin.write(json.dumps({"root": str(self.root), **request}).encode() + b"\n")
        process.stdin.close()
        process.stdin = None
        return process

    def answer(self, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        """The answer of a verb that was begun. Raises: Refused."""
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors.decode()
        answer: dict[str, Any] = json.loads(output)
        if not answer["ok"]:
            raise Refused(answer["error"])
        return answer

    def stage(self, run_id: str, command: str, **more: Any) -> None:
        """Stage a plain run of a command; `more` goes into its spec."""
        self.call("stage", run_id=run_id, spec=spec(command, **more))

    def run(self, run_id: str, command: str, **more: Any) -> dict[str, Any]:
        """Stage and start a command."""
        self.stage(run_id, command, **more)
        return self.call("start", run_id=run_id)

    def put_input(self, run_id: str, content: bytes, verb: str = "put_input", **more: Any) -> None:
        """Send an archive to a run, as its staging does."""
        asked = (
            json.dumps({"root": str(self.root), "run_id": self.named(run_id), **more}).encode()
            + b"\n"
        )
        subprocess.run(
            self.command(verb),
            input=asked + content,
            capture_output=True,
            check=True,
            user=self.user,
        )

    def look(self, run_id: str) -> dict[str, Any]:
        """The state of one run."""
        state: dict[str, Any] = self.call("status", run_ids=[self.named(run_id)])["runs"][
            self.named(run_id)
        ]
        return state

    def exit_of(self, run_id: str) -> dict[str, Any]:
        """How a run ended, waited for."""
        path = self.path(run_id, "exit.json")
        wait_for(path.exists, f"{run_id}: exit.json")
        document: dict[str, Any] = json.loads(path.read_text())
        return document

    def path(self, run_id: str, name: str = "") -> Path:
        """A file or folder of a run."""
        return self.root / "runs" / self.named(run_id) / name

    def document(self, run_id: str, name: str) -> dict[str, Any]:
        """A JSON document of a run."""
        found: dict[str, Any] = json.loads(self.path(run_id, name).read_text())
        return found

    def end_all(self) -> None:
        """End every run of this root, so that no test leaves anything behind."""
        for run_id, state in self.call("status", run_ids=None)["runs"].items():
            if state["state"] in ("running", "lost"):
                self.call("end", run_id=run_id, grace_s=0)


def removed(folder: Path) -> bool:
    """Whether nothing is left of a folder, after one try to end what works there and to remove it.

    A watch that has just begun compiles its agent, and may rename what it made into a folder that
    is being removed.
    """
    for process in processes_naming(folder):
        with contextlib.suppress(ProcessLookupError):  # it may just have ended by itself
            os.kill(process, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists() and not processes_naming(folder)


def processes_naming(folder: Path) -> list[int]:
    """The living processes whose command line names this folder."""
    found = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            is_named = str(folder).encode() in (process / "cmdline").read_bytes()
        except OSError:
            continue
        if is_named:
            found.append(int(process.name))
    return found


def spec(command: str, **more: Any) -> dict[str, Any]:
    """The smallest spec of a run."""
    return {"command": command, "runtime": "process", "environment": {}, "grace_s": 5.0, **more}


def processes_of(run_id: str) -> list[int]:
    """The living processes that carry this run's id in their environment."""
    mark = f"BASELOAD_RUN_ID={run_id}".encode()
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            variables = (folder / "environ").read_bytes().split(b"\0")
            is_marked = any(each == mark or each.startswith(mark + b"-") for each in variables)
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if is_marked and state not in "ZX":
            found.append(int(folder.name))
    return found
