"""The stage: the platform in a home of its own, two file servers and a web server beside it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.doubles.file_server import FileServer
from tests.lab.file_servers import NfsServer, SmbServer
from tests.lab.machines import Lab
from workers.runner.lifecycle import attached, bring_down, bring_up
from workers.runner.narration import Story
from workers.runner.probes import free_port
from workers.runner.programs import LOOPBACK, default_stack
from workers.runner.settings import RunnerSettings
from workers.runner.stack import Stack

HOME_NAME = "demo-data"
SSH_PROGRAM = "sshd"
NFS_INDEX, SMB_INDEX = 100, 101
"""The places of the file servers in the lab's network."""


@dataclass(frozen=True)
class Stage:
    """What the story is played on."""

    settings: RunnerSettings
    lab: Lab
    web: FileServer
    nfs: NfsServer
    smb: SmbServer

    def sent_bytes(self) -> int:
        """What this host has sent to the lab's machines so far: the platform's side of the cable.

        What the machines send each other does not pass it.
        """
        return int((self.link / "statistics/tx_bytes").read_text())

    @property
    def link(self) -> Path:
        """This host's end of the lab's cable."""
        return Path("/sys/class/net") / self.lab.network.link


@contextmanager
def running_stack(home: Path, lab: Lab, story: Story) -> Iterator[Stage]:
    """From nothing, whatever an earlier one has left, and to nothing again.

    Raises: StackError, when it cannot be brought up or down.
    """
    bring_down(home, story.tell)
    shutil.rmtree(home, ignore_errors=True)
    settings = RunnerSettings(
        home=home,
        api=f"{lab.network.host_address}:{free_port(lab.network.host_address)}",
        temporal_port=free_port(),
        ui_port=free_port(),
    )
    with ExitStack() as servers:
        servers.callback(bring_down, home, story.tell)
        with story.step("Start the platform, an NFS, an SMB and a web server"):
            bring_up(home, lambda: plan(settings), story.tell)
            web = servers.enter_context(FileServer().serving())
            nfs = servers.enter_context(NfsServer(lab.network, "nfs", NFS_INDEX))
            smb = servers.enter_context(SmbServer(lab.network, "smb", SMB_INDEX))
            nfs.start()
            smb.start()
            story.tell(f"NFS: {nfs.address}:{nfs.shared}")
            story.tell(f"SMB: //{smb.address}/data")
            story.tell(f"API: {settings.api_url}/docs, Temporal UI: {settings.ui_url}")
        with attached(home, story.tell):
            yield Stage(settings, lab, web, nfs, smb)


def plan(settings: RunnerSettings) -> Stack:
    """What `make up` runs, less this machine's SSH server; the web server's address is allowed."""
    usual = default_stack(settings)
    own = ",".join((LOOPBACK, "localhost", settings.api_host, os.environ.get("NO_PROXY", "")))
    environment = {
        "BASELOAD_SOURCE_NETWORKS": f"{LOOPBACK}/32",
        "NO_PROXY": own,
        "no_proxy": own,
    }
    programs = [
        program.model_copy(update={"environment": {**program.environment, **environment}})
        for program in usual.programs
        if program.name != SSH_PROGRAM
    ]
    return usual.model_copy(update={"programs": tuple(programs)})
