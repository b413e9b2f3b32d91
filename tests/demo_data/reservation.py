"""A service that keeps its name: a job moves between two nodes, and a third machine follows."""

from __future__ import annotations

import time

from tests.demo_data.listener import Listener
from tests.demo_data.telling import NODES, REGION, Telling
from tests.lab.machine import Machine
from workers.runner.commands import Resource
from workers.runner.local_node import shortened

NAME, HOSTNAME, PORT, DESK = "front", "web", 8123, "desk"
PUBLISHED = f"{HOSTNAME}.local"
FOLLOWS_S = 5.0
"""The name leads to a service at most so long after its job is running."""
JOB = """\
name: {name}
type: endpoint
resources: {{gpus: cpu, cpu_count: 1, memory_gib: 1}}
reservation_id: {reservation}
workers:
- command: |
    hostname > where
    exec python3 -m http.server "$BASELOAD_PORT"
"""


def service_with_a_name(telling: Telling) -> None:
    """A machine that is no node finds the service by its name, then on another node again."""
    telling.baseload(
        "reservation", "create", NAME, "--region", REGION, "--hostname", HOSTNAME,
        "--port", str(PORT),
    )  # fmt: skip
    desk = telling.stage.lab.add(DESK)
    telling.tell(f"{DESK} ({desk.address}) is on the same network, and no node")
    file = telling.stage.settings.home / f"{NAME}.yaml"
    file.write_text(JOB.format(name=NAME, reservation=_reservation(telling)["id"]))
    with Listener(desk, PUBLISHED, telling.stage.settings.home) as listener:
        telling.until(f"{DESK} runs python-zeroconf", listener.changes)
        telling.expect(f"for {DESK} nobody is {PUBLISHED}", listener.now() == ())
        telling.tell(f"$ cat {shortened(file)}\n{file.read_text().rstrip()}")
        telling.baseload("submit", shortened(file))
        first = _found(telling, listener)
        _move(telling, listener, first)
        _end(telling, listener)
    telling.baseload("reservation", "rm", NAME)
    telling.expect("the reservation is gone", not _reservation(telling))


def _move(telling: Telling, listener: Listener, first: Machine) -> None:
    """Stop the job, and start it where only the other node takes jobs."""
    (other,) = (each for each in NODES if each != first.name)
    telling.must_move_to(other)
    telling.expect(f"its job goes on meanwhile: {first.name} answers", _served(listener, first))
    stopped_s = time.monotonic()
    telling.baseload("stop", NAME, "--yes")
    telling.reached("jobs", NAME, "stopped")
    telling.until(f"{DESK} has forgotten the name", lambda: listener.now() == ())
    gone_s = listener.since(stopped_s)
    started_s = time.monotonic()
    telling.baseload("start", NAME, "--yes")
    second = _found(telling, listener)
    telling.expect(f"it has moved from {first.name} to {second.name}", second.name == other)
    found_s = listener.since(started_s, second.address)
    telling.expect(f"nobody serves at {first.address}", not _served(listener, first))
    telling.tell(f"`baseload stop` to no name: {gone_s:.1f} s")
    telling.tell(f"`baseload start` to the name at {second.name}: {found_s:.1f} s")
    telling.tell(f"the name was away for {found_s + started_s - stopped_s - gone_s:.1f} s")


def _found(telling: Telling, listener: Listener) -> Machine:
    """The machine to which the name leads, once the job runs there and answers."""
    job = telling.reached("jobs", NAME, "running")
    running_s = time.monotonic()
    (worker,) = job["workers"]
    machine = telling.stage.lab.machines[str(worker["node_name"])]
    claim = f"{PUBLISHED} is {machine.address}, which is {machine.name}, for {DESK}"
    telling.until(claim, lambda: listener.now() == (machine.address,))
    late_s = max(0.0, listener.since(running_s, machine.address))
    telling.expect(f"… {late_s:.1f} s after the job is seen to run", late_s < FOLLOWS_S)
    line = " ".join(_request(machine))
    telling.until(f"{DESK}$ {line}: {machine.name}", lambda: _served(listener, machine))
    telling.baseload("reservation", "show", NAME)
    return machine


def _served(listener: Listener, machine: Machine) -> bool:
    """Whether the machine answers to who asks the name's port at its address, with its own name."""
    return listener.machine.run(*_request(machine), check=False).strip() == machine.name


def _request(machine: Machine) -> tuple[str, ...]:
    """Asks for the name of the machine at the address that the listener has, as no libnss-mdns is
    there."""
    at = f"{PUBLISHED}:{PORT}:{machine.address}"
    return "curl", "-sm", "5", "--resolve", at, f"http://{PUBLISHED}:{PORT}/where"


def _end(telling: Telling, listener: Listener) -> None:
    ended_s = time.monotonic()
    telling.baseload("cancel", NAME, "--yes")
    telling.reached("jobs", NAME, "canceled")
    telling.until(f"{DESK} has forgotten the name again", lambda: listener.now() == ())
    telling.tell(f"`baseload cancel` to no name: {listener.since(ended_s):.1f} s")
    telling.expect("no job holds the reservation", _reservation(telling)["holder"] is None)


def _reservation(telling: Telling) -> Resource:
    """As the API has it; empty: there is none."""
    found = telling.api.get("/v1/reservations")["items"]
    return next((dict(each) for each in found if each["name"] == NAME), {})
