"""What the runner runs, as data: tests and other set-ups hand in their own."""

import os
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

RUNNER = "runner"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Probe(_Frozen):
    """How to see that a program is ready."""

    kind: Literal["port", "http"]
    host: str
    port: int
    path: str = "/"

    def __str__(self) -> str:
        scheme = "http" if self.kind == "http" else "tcp"
        return f"{scheme}://{self.host}:{self.port}{self.path if self.kind == 'http' else ''}"


class Listening(_Frozen):
    """An address that a program needs for itself, and the setting that moves it elsewhere."""

    host: str
    port: int
    purpose: str
    setting: str


class FirstStart(_Frozen):
    """Files that are of no use until a first start has gone well.

    marker: written when the program was ready once; as long as it is missing, `discard` is deleted
    before each start, because a kill in the middle of the creation leaves halves.
    """

    marker: Path
    discard: tuple[Path, ...]


class Program(_Frozen):
    """One process to keep alive.

    after: programs that should be ready before this one is first started (at most `gate_s`).
    stop_limit_s: from SIGTERM to SIGKILL.
    """

    name: str = Field(pattern=r"^[a-z][a-z0-9-]*$")
    command: tuple[str, ...] = Field(min_length=1)
    environment: dict[str, str] = {}
    ready: Probe | None = None
    listens: tuple[Listening, ...] = ()
    after: tuple[str, ...] = ()
    gate_s: float = 20.0
    stop_limit_s: float = 12.0
    bootstrap: FirstStart | None = None


class Backoff(_Frozen):
    """Seconds between restarts: doubling, from the first again after a life of `reset_s`."""

    first_s: float = 0.5
    longest_s: float = 30.0
    reset_s: float = 60.0

    def delay_s(self, failures: int) -> float:
        """How long to wait before the restart after `failures` short lives in a row (1 or more)."""
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
        """Write the stack for the runner process to read; the file's path."""
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
    """The home, for our eyes only, with its folders for records and logs; the records' folder."""
    for folder in (home / "run", home / "logs"):
        folder.mkdir(parents=True, exist_ok=True)
    home.chmod(0o700)
    return home / "run"


def write_atomically(path: Path, text: str) -> None:
    """Replace the file in one step: a reader, or a kill, never sees a half."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_text(text)
    part.replace(path)
