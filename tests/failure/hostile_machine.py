"""A machine of the lab whose owner decides what the agent there says: real until told to lie.

It is a whole node with our own agent, behind a Python of its owner's: a script that asks, verb by
verb, whether to say something first, instead, or without end.
"""

from __future__ import annotations

from tests.failure.lies import Lie
from tests.lab.machine import Machine

PYTHON = "usr/bin/python3"
"""The first Python that the platform tries."""
LIES = "/srv/lies"
REAL = "REAL"
"""In the script: the Python that was there before."""
SCRIPT = f"""#!/bin/sh
for verb; do :; done
case "$verb" in *[!a-z_]*|"") exec {REAL} "$@" ;; esac
lie="{LIES}/$verb"
if [ -e "$lie.asked" ]; then echo asked >> "$lie.asked"; fi
if [ -e "$lie.instead" ]; then cat "$lie.instead"; exit 0; fi
if [ -e "$lie.endless" ]; then while cat "$lie.endless"; do :; done; exit 0; fi
if [ -e "$lie.first" ]; then cat "$lie.first"; fi
exec {REAL} "$@"
"""


class HostileMachine:
    """The lies of one machine, which is a node with jobs like any other while it tells none."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        real = machine.run("readlink", "-f", f"/{PYTHON}").strip()
        assert real != f"/{PYTHON}", "the script would run itself"
        machine.run("rm", f"/{PYTHON}")
        file = machine.disk / PYTHON
        file.write_text(SCRIPT.replace(REAL, real))
        file.chmod(0o755)
        machine.run("mkdir", "-p", LIES)

    def lie(self, lie: Lie) -> None:
        """Tell this lie, and no other, from now on; the end of its watch makes the platform ask."""
        self.be_honest()
        folder = self.machine.disk / LIES.lstrip("/")
        (folder / f"{lie.verb}.asked").write_text("")
        (folder / f"{lie.verb}.{lie.how}").write_bytes(lie.said)
        self.end_watch()

    def asked(self, verb: str) -> int:
        """How often the platform has met the present lie."""
        return len((self.machine.disk / LIES.lstrip("/") / f"{verb}.asked").read_text().split())

    def be_honest(self) -> None:
        """Say what the agent says."""
        for file in (self.machine.disk / LIES.lstrip("/")).iterdir():
            file.unlink()

    def end_watch(self) -> None:
        """End the watchers, which the platform begins anew."""
        self.machine.run("pkill", "-KILL", "-f", " watch$", check=False)

    def names(self) -> list[str]:
        """The names of the runs that were placed here, which their owner can read."""
        return sorted(one.name for one in (self.machine.disk / "var/lib/baseload/runs").iterdir())
