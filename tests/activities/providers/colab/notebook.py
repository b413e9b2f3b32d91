"""A notebook whose cell is run for real: its own SSH server behind a tunnel of ngrok's double.

Of the programs that the cell runs, ngrok alone is another one, which is found by PATH.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from activities.providers.base import Bootstrap
from activities.providers.colab.kind import cell_of
from tests.chaos.leftovers import processes_left
from tests.doubles.http_double import Answer, Asked, serving
from tests.doubles.rented.plain_boot import (
    MARK,
    NODE_ROOT,
    kill_marked,
    marked,
    signal_marked,
    with_children,
)

ROOT = Path(__file__).parents[4]
NGROK = """#!/bin/sh
echo "$1 $NGROK_AUTHTOKEN" > "$HOME/given_to_ngrok"
exec "{python}" -m tests.doubles.ngrok "127.0.0.1:$2" --api-port {port}
"""
SSHD = """#!/bin/sh
sed -i '/^SetEnv /s|$| "{root}={folder}/node" "{mark}={folder}"|' "$3"
exec /usr/sbin/sshd "$@"
"""
"""What the sessions of a server have besides, because several notebooks share this host."""
NGROK_TOKEN = "2abcOfTheUser"
EXPIRES_AT = "2126-01-01T00:00:00Z"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Notebook:
    """What runs in the folder, until `close`: the kernel's process, and all that it has begun."""

    def __init__(self, folder: Path, *programs: tuple[str, str]) -> None:
        self.folder = folder
        self.agent_port = free_port()
        bin_folder = folder / "bin"
        bin_folder.mkdir(parents=True)
        ngrok = NGROK.format(python=sys.executable, port=self.agent_port)
        for name, text in (("ngrok", ngrok), *programs):
            (bin_folder / name).write_text(text)
            (bin_folder / name).chmod(0o755)
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, cell: str, **env: str) -> None:
        """Begin to run a cell."""
        self.close()
        (self.folder / "cell.py").write_text(cell)
        with (self.folder / "printed").open("wb") as printed:
            self._process = subprocess.Popen(
                [sys.executable, str(self.folder / "cell.py")],
                cwd=self.folder,
                env={
                    "HOME": str(self.folder),
                    "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
                    "PYTHONPATH": str(ROOT),
                    "BASELOAD_SSH_PORT": str(free_port()),
                    "NGROK_API": f"http://127.0.0.1:{self.agent_port}",
                    "NGROK_AUTHTOKEN": NGROK_TOKEN,
                    **env,
                },
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                start_new_session=True,
            )

    @property
    def printed(self) -> str:
        return (self.folder / "printed").read_text()

    @property
    def has_ended(self) -> bool:
        """Whether the cell does not run any more."""
        return self._process is None or self._process.poll() is not None

    def wait(self) -> int:
        """The exit status of the kernel's process."""
        assert self._process is not None
        return self._process.wait(60)

    def close(self) -> None:
        """Everything ends at once, as when the runtime is taken away."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(20)
            self._process = None


class MarkedNotebook(Notebook):
    """All that ever runs in it has a mark, and the agent's folder is its own."""

    def __init__(self, folder: Path) -> None:
        sshd = SSHD.format(root=NODE_ROOT, mark=MARK, folder=folder)
        super().__init__(folder, ("sshd", sshd))

    def run(self, cell: str, **env: str) -> None:
        super().run(cell, **env, **{MARK: str(self.folder)})

    def close(self) -> None:
        signal_marked(str(self.folder), signal.SIGKILL)
        super().close()
        kill_marked(str(self.folder))

    def stand_still(self) -> None:
        """Connections are taken, and nothing else is done."""
        signal_marked(str(self.folder), signal.SIGSTOP)

    def go_on(self) -> None:
        signal_marked(str(self.folder), signal.SIGCONT)

    def left(self) -> Iterator[str]:
        """What runs of ours are in it: their processes and their folders."""
        yield from processes_left("notebook", with_children(marked(str(self.folder))))
        with suppress(FileNotFoundError):
            for each in (self.folder / "node/runs").iterdir():
                yield f"notebook: run folder {each.name}"


def announced(notebook: Notebook, public_key: str, wait: Callable[..., Any]) -> dict[str, Any]:
    """What the cell of a notebook says of itself to an API that takes everything.

    wait: of the caller, until something is true.
    """
    taken: list[dict[str, Any]] = []

    def take(asked: Asked) -> Answer:
        taken.append(json.loads(asked.body))
        body = json.dumps({"expires_at": EXPIRES_AT}).encode()
        return Answer(202, body, {"Content-Type": "application/json"})

    with serving(take) as url:
        values = Bootstrap(api_url=url, public_key=public_key, token="colab_1")
        notebook.run(cell_of(values))
        wait(lambda: "expires at" in notebook.printed, "the cell has announced the notebook")
    (said,) = taken
    return said
