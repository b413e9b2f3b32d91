"""A machine of the link that resolves a hostname all the time, by python-zeroconf.

`python -m tests.demo_data.listener web.local. ADDRESS` prints a line for each change of what its
cache has: the seconds of the monotonic clock, and the addresses. `Listener` runs it in a machine of
the lab, which has neither an agent nor anything else of the platform.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from zeroconf import IPVersion, Zeroconf, current_time_millis
from zeroconf._dns import DNSAddress
from zeroconf._services.info import AddressResolverIPv4

from tests.lab.machine import Machine

LOOK_S = 0.02
ASK_S = 1.0
"""So often it asks while nobody has answered."""
ANSWER_MS = 200


def listen(name: str, address: str) -> None:
    """Ask at this address, and print each change, until the process is ended."""
    with Zeroconf([address], ip_version=IPVersion.V4Only) as responders:
        last: tuple[str, ...] | None = None
        asked_s = 0.0
        while True:
            found = cached(responders, name)
            if found != last:
                last = found
                sys.stdout.write(f"{time.monotonic():.3f} {' '.join(found)}\n")
                sys.stdout.flush()
            if not found and time.monotonic() - asked_s > ASK_S:
                asked_s = time.monotonic()
                AddressResolverIPv4(name).request(responders, ANSWER_MS)
            time.sleep(LOOK_S)


def cached(responders: Zeroconf, name: str) -> tuple[str, ...]:
    """The addresses of the name that are not expired."""
    now_ms = current_time_millis()
    entries = responders.cache.entries_with_name(name)
    fresh = [
        each for each in entries if isinstance(each, DNSAddress) and not each.is_expired(now_ms)
    ]
    return tuple(sorted(socket.inet_ntoa(each.address) for each in fresh))


class Listener:
    """The listener in the network namespace of a machine; it ends with the block."""

    def __init__(self, machine: Machine, name: str, folder: Path) -> None:
        self.machine = machine
        self._output = folder / f"{machine.name}.resolved"
        program = sys.executable, "-m", __spec__.name, f"{name}.", machine.address
        namespace = f"--net=/proc/{machine.init_pid}/ns/net"
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "nsenter", namespace, "--", *program],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def changes(self) -> list[tuple[float, tuple[str, ...]]]:
        """What it has printed: when, in seconds of the monotonic clock, and the addresses.

        Raises: RuntimeError, when it has ended, with what it said.
        """
        text = self._output.read_text()
        if self._process.poll() is not None:
            raise RuntimeError(f"{self.machine.name}: the listener has ended: {text[-2000:]}")
        lines = [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]
        return [(float(at), tuple(addresses)) for at, *addresses in lines]

    def now(self) -> tuple[str, ...]:
        """The addresses that its cache has now."""
        changes = self.changes()
        return changes[-1][1] if changes else ()

    def since(self, at: float, *addresses: str) -> float:
        """The seconds from then until the cache had these addresses; it must have them now."""
        when, found = self.changes()[-1]
        if found != addresses:
            raise RuntimeError(f"{self.machine.name}: has {found}, not {addresses}")
        return when - at

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        self._process.wait(timeout=30)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    listen(*sys.argv[1:])
