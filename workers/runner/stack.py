"""The stack that the runner runs, as data, so that tests can run stacks of their own."""

import os
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

RUNNER = "runner"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Probe(_Frozen):
    """The check by which the runner sees that a program is ready."""

    kind: Literal["port", "http"]
    host: str
    port: int
    path: str = "/"

    def __str__(self) -> str:
        scheme = "http" if self.kind == "http" else "tcp"
        return f"{scheme}://{self.host}:{self.port}{self.path if self.kind == 'http' else ''}"


class Listening(_Frozen):
    """An address on which a program listens, and the setting that changes it."""

    host: str
    port: int
    purpose: str
    setting: str


class FirstStart(_Frozen):
    """The files of a program that are valid only after a successful first start.

    marker: a file that is written when the program was ready once. While it is missing, `discard`
    is deleted before each start, because a kill during the first start leaves incomplete files.
    """

    marker: Path
    discard: tuple[Path, ...]


class Program(_Frozen):
    """One process that the runner keeps running.

    after: programs that should be ready before the first start; the start waits at most `gate_s`.
    stop_limit_s: seconds from SIGTERM to SIGKILL. umask: of its files, unless it sets another.
    """

    name: str = Field(pattern=r"^[a-z][a-z0-9-]*$")
    command: tuple[str, ...] = Field(min_length=1)
    environment: dict[str, str] = {}
    ready: Probe | None = None
    listens: tuple[Listening, ...] = ()
    after: tuple[str, ...] = ()
    gate_s: float = 20.0
    stop_limit_s: float = 12.0
    umask: int = 0o077
    bootstrap: FirstStart | None = None


class Backoff(_Frozen):
    """The seconds between restarts, which double; a run of `reset_s` resets them to `first_s`."""

    first_s: float = 0.5
    longest_s: float = 30.0
    reset_s: float = 60.0

    def delay_s(self, failures: int) -> float:
        """The wait before the restart after `failures` short runs in a row (1 or more)."""
        return float(min(self.longest_s, self.first_s * 2 ** min(failures - 1, 16)))


class Stack(_Frozen):
    """All programs of one home folder."""

    home: Path
    working_directory: Path
    programs: tuple[Program, ...]
    backoff: Backoff = Backoff()
    ready_limit_s: float = 60.0

    @property
    def run(self) -> Path:
        return self.home / "run"

    def log(self, name: str) -> Path:
        return log_path(self.home, name)

    def save(self) -> Path:
        """Write the stack for the runner process, and return the file's path."""
        path = self.run / "stack.json"
        write_atomically(path, self.model_dump_json(indent=1))
        return path


def saved_stack(home: Path) -> Stack | None:
    """The stack that was last started in this home; None before the first start."""
    path = home / "run" / "stack.json"
    return Stack.model_validate_json(path.read_bytes()) if path.exists() else None


def log_path(home: Path, name: str) -> Path:
    return home / "logs" / f"{name}.log"


def make_folders(home: Path) -> Path:
    """Make the home folder, readable only by its owner, and return its folder of records."""
    for folder in (home / "run", home / "logs"):
        folder.mkdir(parents=True, exist_ok=True)
    home.chmod(0o700)
    return home / "run"


def write_atomically(path: Path, text: str) -> None:
    """Replace the file in one step, so that no reader and no kill ever finds half of it."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_text(text)
    part.replace(path)
