"""The folder of each local machine, with the records of what it is and of the process that serves
it.

    FOLDER/<machine name>/   machine.json   what was asked: the `Asked` record
                             process.json   which process serves it: the `Server` record
                             sshd/          the keys and the address of its SSH server
                             home/, node/   the home folder of its user, and the agent's folder
"""

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from activities.providers.local.processes import is_alive, process_of
from activities.settings import settings

OF_ROOT = Path("/var/lib/baseload-local")
MARK = "BASELOAD_LOCAL_MACHINE"
"""The variable by which the processes of a machine are found after the end of their server."""
HIDDEN = "."
"""What the names of folders begin with that are no machines, or none any more."""
NODE_ROOT = "BASELOAD_NODE_ROOT"
"""The variable by which a machine says where the agent's folder is."""

Record = TypeVar("Record", bound=BaseModel)


class Asked(BaseModel):
    """What was asked for: a machine's name, whose it is, and from when to when it runs at most."""

    model_config = ConfigDict(frozen=True)

    machine_name: str
    provider_id: str
    offer_label: str
    began_at: datetime
    ends_at: datetime
    host: str
    port: int
    user: str


class Server(BaseModel):
    """The process that serves a machine, and its start in clock ticks from boot."""

    model_config = ConfigDict(frozen=True)

    pid: int
    start_ticks: int

    @property
    def is_alive(self) -> bool:
        return is_alive(self.pid, self.start_ticks)


class MachineFolder:
    """The folder of one local machine."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sshd, self.home, self.node = path / "sshd", path / "home", path / "node"

    @property
    def mark(self) -> str:
        """The entry in the environment of its processes."""
        return f"{MARK}={self.path}"

    @property
    def asked(self) -> Asked | None:
        """What was asked for; None: there is no such machine."""
        return _read(Asked, self.path / "machine.json")

    @property
    def server(self) -> Server | None:
        """The process that serves the machine; None: none has begun yet."""
        return _read(Server, self.path / "process.json")

    def write_asked(self, asked: Asked) -> None:
        write(self.path / "machine.json", asked.model_dump_json(indent=1))

    def write_server(self, pid: int) -> None:
        found = process_of(pid)
        assert found is not None, f"{pid}: asked its record, is no live process"  # noqa: S101
        record = Server(pid=pid, start_ticks=found.start_ticks)
        write(self.path / "process.json", record.model_dump_json())

    def make(self) -> None:
        """Make the empty folders, through which the accounts of jobs may pass."""
        shutil.rmtree(self.path, ignore_errors=True)
        for path in (self.path, self.home, self.node):
            path.mkdir(parents=True)
            path.chmod(0o755)
        self.sshd.mkdir()
        self.sshd.chmod(0o700)

    def remove(self) -> None:
        """Remove the folder, whatever was left in it, such as folders in folders without end.

        It is renamed first: the machine is gone at once, and one of its name may be made.
        """
        gone = self.path.with_name(f"{HIDDEN}{self.path.name}.{secrets.token_hex(6)}")
        try:
            self.path.rename(gone)
        except FileNotFoundError:
            return
        subprocess.run(
            ["rm", "-rf", "--one-file-system", "--", str(gone)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )


def machines_folder() -> Path:
    """Where the folders of this host's local machines are."""
    given = settings().local_folder
    return given or (OF_ROOT if os.getuid() == 0 else settings().home / "local")


def machines_in(folder: Path) -> Iterator[tuple[MachineFolder, Asked]]:
    """The machines that were asked for and are not removed, by their names."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        found = MachineFolder(path)
        if not path.name.startswith(HIDDEN) and (asked := found.asked) is not None:
            yield found, asked


def write(path: Path, text: str) -> None:
    """Write a private file, which is there as a whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)
    part.touch(mode=0o600)
    part.write_text(text)
    part.replace(path)


def _read(record: type[Record], path: Path) -> Record | None:
    try:
        return record.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None
