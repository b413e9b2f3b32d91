"""What goes wrong at the double of RunPod when a test asks for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import asyncssh
import httpx
import pytest

from tests.doubles.rented.faults import FaultKind
from tests.doubles.rented.login import said
from tests.doubles.runpod.double import RunPodDouble
from tests.doubles.runpod.test_pods import Json, asked, client_of


@pytest.fixture
def client(runpod: RunPodDouble) -> Iterator[httpx.Client]:
    with client_of(runpod) as made:
        yield made


def test_a_lost_answer_leaves_a_pod_that_is_charged(
    runpod: RunPodDouble, client: httpx.Client
) -> None:
    runpod.fault(FaultKind.LOST_REPLY, "pods.create", every=2, times=None)
    client.post("/v2/pods", json=asked("first"))
    with pytest.raises(httpx.TransportError):
        client.post("/v2/pods", json=asked("second"))
    names = [each["name"] for each in client.get("/v2/pods").json()["pods"]]
    assert names == ["first", "second"]
    assert len(runpod.meter.running()) == 4
    assert runpod.faults.count() == {"lost_reply": 1}


def test_a_lost_request_leaves_nothing(runpod: RunPodDouble, client: httpx.Client) -> None:
    runpod.fault(FaultKind.LOST_REQUEST, "pods.create")
    with pytest.raises(httpx.TransportError):
        client.post("/v2/pods", json=asked())
    assert runpod.pods.made == 0


@pytest.mark.parametrize(("kind", "made"), [(FaultKind.ERROR, 0), (FaultKind.ERROR_AFTER, 1)])
def test_a_5xx_says_nothing_of_whether_it_was_done(
    runpod: RunPodDouble, client: httpx.Client, kind: FaultKind, made: int
) -> None:
    runpod.fault(kind, "pods.create", status=503)
    assert client.post("/v2/pods", json=asked()).status_code == 503
    assert runpod.pods.made == made


def test_a_hang_lasts_until_it_is_cleared(runpod: RunPodDouble, client: httpx.Client) -> None:
    fault = runpod.fault(FaultKind.HANG, "pods.create")
    answers: list[int] = []
    asking = threading.Thread(
        target=lambda: answers.append(client.post("/v2/pods", json=asked()).status_code)
    )
    asking.start()
    with runpod.clock.lock:
        assert runpod.clock.moved.wait_for(lambda: runpod.pods.made == 1, 20)
        assert answers == []
        runpod.faults.scripted.remove(fault)
    asking.join(20)
    assert answers == [201]


def test_a_delay_is_over_when_the_clock_says_so(runpod: RunPodDouble, client: httpx.Client) -> None:
    runpod.fault(FaultKind.DELAY, "pods.list", seconds=30)
    answers: list[int] = []
    asking = threading.Thread(target=lambda: answers.append(client.get("/v2/pods").status_code))
    asking.start()
    while not runpod.calls:
        runpod.clock.advance(0)
    runpod.clock.advance(29)
    assert answers == []
    runpod.clock.advance(1)
    asking.join(20)
    assert answers == [200]


def test_what_was_offered_is_gone_or_dearer_or_other(
    runpod: RunPodDouble, client: httpx.Client
) -> None:
    runpod.fault(FaultKind.NO_CAPACITY, "pods.create")
    runpod.fault(FaultKind.DEARER, "pods.create", factor=2.0)
    runpod.fault(FaultKind.OTHER_MACHINE, "pods.create")
    gone, dear, other = (client.post("/v2/pods", json=asked()) for _ in range(3))
    assert "no longer any" in gone.json()["detail"]
    assert dear.json()["cost"] == 2.76
    assert other.json()["gpu"] == {"id": "NVIDIA RTX A4000", "count": 1}


def test_ports_come_late_or_never(runpod: RunPodDouble, client: httpx.Client) -> None:
    runpod.fault(FaultKind.PORTS_LATE, "boot", name="late", seconds=120)
    runpod.fault(FaultKind.NO_PORTS, "boot", name="never")
    late, never = (
        client.post("/v2/pods", json=asked(each)).json()["id"] for each in ("late", "never")
    )

    def direct(pod: str) -> object:
        found = client.get(f"/v2/pods/{pod}").json()
        assert found["status"] == "RUNNING"
        return found["ssh"]["direct"]

    runpod.clock.advance(65)
    assert (direct(late), direct(never)) == (None, None)
    runpod.clock.advance(120)
    assert direct(late) is not None
    assert direct(never) is None


def test_a_host_that_vanishes_is_noticed_later_and_not_charged(
    runpod: RunPodDouble, client: httpx.Client
) -> None:
    runpod.fault(FaultKind.VANISH, "boot", seconds=600)
    pod = client.post("/v2/pods", json=asked()).json()["id"]
    runpod.clock.advance(65 + 600)
    assert client.get(f"/v2/pods/{pod}").json()["status"] == "RUNNING"
    assert client.get(f"/v2/pods/{pod}").json()["ssh"]["direct"] is None
    runpod.clock.advance(30)
    assert client.get(f"/v2/pods/{pod}").json()["status"] == "ERROR"
    assert runpod.meter.seconds("gpu-1") == 665


def test_the_cloud_is_away_for_a_while(runpod: RunPodDouble, client: httpx.Client) -> None:
    runpod.away(90)
    with pytest.raises(httpx.TransportError):
        client.get("/v2/pods")
    runpod.clock.advance(90)
    assert client.get("/v2/pods").status_code == 200
    assert runpod.faults.count() == {"away": 1}


def test_a_container_that_cannot_be_made_ends_in_error(
    runpod: RunPodDouble, client: httpx.Client
) -> None:
    runpod.fault(FaultKind.NEVER_STARTS, "boot")
    pod = client.post("/v2/pods", json=asked()).json()["id"]
    runpod.clock.advance(65)
    found = client.get(f"/v2/pods/{pod}").json()
    assert (found["status"], found["cost"]) == ("ERROR", 0.0)


async def test_a_command_that_starts_sshd_is_seen_through_its_variables(
    make_runpod: Callable[..., RunPodDouble],
) -> None:
    double = make_runpod()
    env = {**asked()["env"], "START": "exec /usr/sbin/sshd -D"}
    with client_of(double) as client:
        body = asked(args="""bash -c 'eval "$START"'""", image="ours:1", env=env)
        pod = client.post("/v2/pods", json=body).json()["id"]
        double.clock.advance(65)
        where = client.get(f"/v2/pods/{pod}").json()["ssh"]["direct"]
    assert await said(where["host"], where["port"], "echo in") == "in"


async def test_an_image_s_own_sshd_shows_another_host_key(
    make_runpod: Callable[..., RunPodDouble],
) -> None:
    double = make_runpod()
    double.fault(FaultKind.OWN_HOST_KEY, "boot")
    with client_of(double) as client:
        pod = client.post("/v2/pods", json=asked()).json()["id"]
        double.clock.advance(65)
        where = client.get(f"/v2/pods/{pod}").json()["ssh"]["direct"]
    with pytest.raises(asyncssh.HostKeyNotVerifiable):
        await said(where["host"], where["port"], "true")
    assert await said(where["host"], where["port"], "echo in", double.boot.public_key(pod)) == "in"


@pytest.mark.parametrize(
    "change",
    [{"args": "sleep infinity"}, {"image": "nginx:1"}, {"env": {}, "startSsh": False}],
)
async def test_no_sshd_answers_where_none_is_started(
    make_runpod: Callable[..., RunPodDouble], change: Json
) -> None:
    double = make_runpod()
    with client_of(double) as client:
        pod = client.post("/v2/pods", json=asked(**change)).json()["id"]
        double.clock.advance(65)
        where = client.get(f"/v2/pods/{pod}").json()["ssh"]["direct"]
    with pytest.raises(ConnectionRefusedError):
        await said(where["host"], where["port"], "true")
