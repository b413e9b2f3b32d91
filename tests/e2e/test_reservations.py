"""A reservation in a running stack: a service keeps its name while it moves between two nodes."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.e2e.platform import Platform, Refused, Site
from tests.lab.link import Link
from tests.lab.machine import Machine
from tests.lab.machines import Lab
from tests.lab.waiting import wait_until

pytestmark = pytest.mark.timeout(600)
PORT = 8123
SERVES = f"hostname > where; exec python3 -m http.server {PORT}"
FOLLOWS_S = 5.0


@dataclass(frozen=True)
class Reserved:
    """A region with two nodes and a reservation, asked for from the host as a third machine."""

    region_id: str
    reservation: str
    machines: dict[str, Machine]
    """By the path of its node."""
    link: Link


@pytest.fixture(scope="module")
def reserved(lab: Lab, platform: Platform, make_site: Callable[..., Site]) -> Iterator[Reserved]:
    site, machines = make_site(), [lab.add("front-a"), lab.add("front-b")]
    nodes = dict(zip(site.join(*machines), machines, strict=True))
    body = {"region_id": site.region_id, "name": "front", "hostname": "front", "port": PORT}
    reservation = f"/v1/reservations/{platform.post('/v1/reservations', body)['id']}"
    link = Link(lab.network, "front.local.")
    yield Reserved(site.region_id, reservation, nodes, link)
    link.close()
    for machine in machines:
        lab.remove(machine.name)


def served_by(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}:{PORT}/where", timeout=5) as answer:
        text: str = answer.read().decode()
    return text.strip()


def endpoint(platform: Platform, reserved: Reserved, name: str) -> str:
    return platform.job(
        SERVES,
        reserved.region_id,
        name=name,
        type="endpoint",
        placement={},
        reservation_id=reserved.reservation.rpartition("/")[2],
    )


def cancel(platform: Platform, job: str) -> None:
    platform.post(f"{job}/cancel")
    platform.until(job, lambda found: found["status"] == "canceled", "canceled")


def until_served(platform: Platform, reserved: Reserved, job: str) -> tuple[str, Machine]:
    """The node that the job runs on, once the hostname leads there within its time."""
    running = platform.until(job, lambda found: found["status"] == "running", "it runs")
    began_s = time.monotonic()
    node = f"/v1/nodes/{running['workers'][0]['node_id']}"
    machine = reserved.machines[node]
    reserved.link.until(machine.address)
    assert time.monotonic() - began_s < FOLLOWS_S
    (address,) = reserved.link.resolve()
    wait_until(lambda: _answers(address) == machine.name, "the service is reached by its name")
    return node, machine


def _answers(address: str) -> str:
    try:
        return served_by(address)
    except OSError:
        return ""


def test_a_service_keeps_its_name_on_another_node_and_no_other_job_has_it_meanwhile(
    platform: Platform, reserved: Reserved
) -> None:
    first = endpoint(platform, reserved, "first")
    node, _ = until_served(platform, reserved, first)
    published = platform.until(
        reserved.reservation, lambda found: found["events"], "what the node says is shown"
    )
    assert published["events"][0]["state"] == "published"
    assert published["holder"]["job_name"] == "first"
    assert "job.hostname-published" in platform.events(first)
    second = endpoint(platform, reserved, "second")
    waits = platform.until(second, lambda found: found["placement_refusals"], "it says why")
    (refusal,) = waits["placement_refusals"]
    first_id = first.rpartition("/")[2]
    assert refusal["detail"] == f"reservation front: job first ({first_id}) holds it"
    with pytest.raises(Refused) as refused:
        platform.ask("DELETE", reserved.reservation)
    assert (refused.value.status, first_id in str(refused.value)) == (409, True)
    platform.post(f"{node}/maintenance")
    platform.post(f"{first}/stop")
    other, _ = until_served(platform, reserved, second)
    assert other != node
    platform.until_status(first, "stopped")
    cancel(platform, second)
    platform.post(f"{first}/start")
    assert until_served(platform, reserved, first)[0] == other  # It has moved between the nodes.
    cancel(platform, first)
    wait_until(lambda: reserved.link.believed() == [], "the name is taken back", FOLLOWS_S)
    platform.post(f"{node}/activate")


def test_another_machine_with_the_name_is_told_by_the_job_and_the_reservation(
    platform: Platform, reserved: Reserved
) -> None:
    with reserved.link.claim() as rival:
        job = endpoint(platform, reserved, "late")
        platform.until_status(job, "running")
        told = platform.until(
            reserved.reservation,
            lambda found: found["events"][0]["state"] == "conflict",
            "the conflict is shown",
        )
        assert rival in told["events"][0]["message"]
        assert "job.hostname-conflict" in platform.events(job)
    platform.until(
        reserved.reservation,
        lambda found: found["events"][0]["state"] == "published",
        "the name is published when the other machine has gone",
    )
    cancel(platform, job)
    platform.ask("DELETE", reserved.reservation)
