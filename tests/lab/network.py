"""The lab's network: a switch in a namespace, joined to the host by one private cable."""

from __future__ import annotations

import contextlib
import random
import subprocess
from pathlib import Path

from tests.lab.host import execute
from tests.lab.waiting import wait_until

HOST_LINK = "baselab"
BLOCK = "10.77"
SUBNETS = range(16, 250)


def own_namespace(pid: int) -> None:
    """Wait until the process has left the host's network namespace."""
    host = Path("/proc/self/ns/net").readlink()
    wait_until(
        lambda: Path(f"/proc/{pid}/ns/net").readlink() != host, f"process {pid}: own network"
    )


def inside(pid: int, *command: str) -> str:
    """Run a command of the host in the network namespace of a process."""
    return execute("nsenter", f"--net=/proc/{pid}/ns/net", *command)


class Network:
    """10.77.N.0/24: the host (and so the tests and the stack) is .1, machines are .11 and up.

    block: the first two numbers of the addresses instead of 10.77.
    Nothing of it is named on the host but one interface, `baselab<N>`; all of it ends with the
    switch's process, which ends with the thread that made it.
    """

    def __init__(self, block: str = BLOCK) -> None:
        self.block = block
        self._switch = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "sleep", "infinity"],
            stdin=subprocess.DEVNULL,
        )
        own_namespace(self._switch.pid)
        self.number = self._take_subnet()
        inside(self._switch.pid, "ip", "link", "add", "br0", "type", "bridge")
        inside(self._switch.pid, "ip", "link", "set", "br0", "up")
        inside(self._switch.pid, "ip", "link", "set", "host", "master", "br0", "up")
        execute("ip", "address", "add", f"{self.host_address}/24", "dev", self.link)
        execute("ip", "link", "set", self.link, "up")

    @property
    def link(self) -> str:
        return f"{HOST_LINK}{self.number}"

    @property
    def switch_pid(self) -> int:
        return self._switch.pid

    @property
    def host_address(self) -> str:
        """Where the machines reach the host."""
        return f"{self.block}.{self.number}.1"

    def address(self, index: int) -> str:
        """The address of the index-th machine."""
        return f"{self.block}.{self.number}.{11 + index}"

    def _take_subnet(self) -> int:
        """The interface's name is the lock: the kernel makes it once."""
        for number in random.sample(SUBNETS, len(SUBNETS)):
            link = f"{HOST_LINK}{number}"
            with contextlib.suppress(RuntimeError):
                execute("ip", "link", "add", link, "type", "veth", "peer", "name", "host",
                        "netns", str(self._switch.pid))  # fmt: skip
                return number
        raise RuntimeError("lab network: the subnets 16 to 249 are all in use")

    def plug(self, pid: int, name: str, address: str, card: str = "eth0") -> None:
        """Give the machine with the power supply `pid` its cable, always with the same MAC."""
        last = int(address.rsplit(".", 1)[1])
        mac = f"02:77:00:00:{self.number:02x}:{last:02x}"
        inside(self.switch_pid, "ip", "link", "add", name, "type", "veth", "peer", "name", card,
               "address", mac, "netns", str(pid))  # fmt: skip
        inside(self.switch_pid, "ip", "link", "set", name, "master", "br0", "up")
        inside(pid, "ip", "address", "add", f"{address}/24", "dev", card)
        inside(pid, "ip", "link", "set", card, "up")

    def unplug(self, name: str) -> None:
        """Take the cable away: nothing that was sent is answered, and nobody is told."""
        inside(self.switch_pid, "ip", "link", "set", name, "down")

    def plug_again(self, name: str) -> None:
        inside(self.switch_pid, "ip", "link", "set", name, "up")

    def discard(self, name: str) -> None:
        """Remove what is left of a cable whose machine is gone."""
        with contextlib.suppress(
            RuntimeError
        ):  # the kernel removes it with the machine's namespace, a bit later
            inside(self.switch_pid, "ip", "link", "delete", name)

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):
            execute("ip", "link", "delete", self.link)
        self._switch.kill()
        self._switch.wait()
