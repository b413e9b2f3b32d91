"""A stack of stand-in programs, run by the real runner process in a home of its own."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from workers.runner.lifecycle import bring_down, bring_up
from workers.runner.probes import free_port
from workers.runner.process_records import Record, read_record
from workers.runner.settings import CHECKOUT
from workers.runner.stack import Backoff, Listening, Probe, Program, Stack

LISTENER = """
import socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    listener.accept()[0].close()
"""
# Leaves a child behind that ignores SIGTERM, as a badly written program would.
STUBBORN = """
import os, signal, time
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(1000)
"""


class Running:
    """One home and the stand-ins that run in it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = free_port()
        self.said: list[str] = []

    def plan(self) -> Stack:
        probe = Probe(kind="port", host="127.0.0.1", port=self.port)
        listening = Listening(
            host="127.0.0.1", port=self.port, purpose="the listener", setting="LISTENER_PORT=PORT"
        )
        listener = Program(
            name="listener",
            command=(sys.executable, "-c", LISTENER, str(self.port)),
            ready=probe,
            listens=(listening,),
        )
        return Stack(
            home=self.home,
            working_directory=CHECKOUT,
            programs=(
                listener,
                Program(name="sleeper", command=("sleep", "1000"), after=("listener",)),
            ),
            backoff=Backoff(first_s=0.05),
            ready_limit_s=60,
        )

    def plan_with_a_stubborn_program(self) -> Stack:
        plan = self.plan()
        stubborn = Program(name="stubborn", command=(sys.executable, "-c", STUBBORN))
        return plan.model_copy(update={"programs": (*plan.programs, stubborn)})

    def up(self, plan: Callable[[], Stack] | None = None) -> bool:
        return bring_up(self.home, plan or self.plan, self.said.append)

    def down(self) -> None:
        bring_down(self.home, self.said.append)

    def record(self, name: str) -> Record:
        found = read_record(self.home / "run", name)
        assert found is not None, f"no record of {name}"
        return found

    def records(self) -> list[Record]:
        return [self.record(name) for name in ("runner", "listener", "sleeper")]

    def log(self) -> str:
        return (self.home / "logs" / "runner.log").read_text()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    stack = Running(tmp_path / "home")
    yield stack
    stack.down()
