"""The double of RunPod as a client sees it: pods, their prices, refusals, bills."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from tests.doubles.rented.login import HOST_KEY_BASE64, PUBLIC, said
from tests.doubles.runpod.double import API_KEY, RunPodDouble

RTX4090 = "NVIDIA GeForce RTX 4090"
Json = dict[str, Any]


def asked(name: str = "gpu-1", **more: Any) -> Json:
    body = {
        "name": name,
        "image": "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404",
        "cloud": "SECURE",
        "gpu": {"id": RTX4090, "count": 2},
        "disk": 72,
        "ports": ["22/tcp"],
        "env": {"PUBLIC_KEY": PUBLIC, "HOST_KEY": HOST_KEY_BASE64},
        "startSsh": True,
    }
    return {**body, **more}


def client_of(double: RunPodDouble, key: str = API_KEY) -> httpx.Client:
    heads = {"Authorization": f"Bearer {key}"}
    return httpx.Client(base_url=double.url, headers=heads, trust_env=False, timeout=20)


@pytest.fixture
def client(runpod: RunPodDouble) -> Iterator[httpx.Client]:
    with client_of(runpod) as made:
        yield made


def test_a_pod_goes_from_provisioning_to_its_port(
    runpod: RunPodDouble, client: httpx.Client
) -> None:
    made = client.post("/v2/pods", json=asked())
    pod = made.json()
    assert (made.status_code, pod["status"], pod["ssh"]) == (
        201, "PROVISIONING", {"proxy": None, "direct": None},
    )  # fmt: skip
    assert (pod["cost"], pod["gpu"]) == (1.38, {"id": RTX4090, "count": 2})
    runpod.clock.advance(5)
    starting = client.get(f"/v2/pods/{pod['id']}").json()
    assert (starting["status"], starting["ssh"]["direct"]) == ("STARTING", None)
    runpod.clock.advance(60)
    running = client.get(f"/v2/pods/{pod['id']}").json()
    assert running["status"] == "RUNNING"
    assert running["ssh"]["direct"]["username"] == "root"
    assert running["runtime"]["ports"][0]["public"] == running["ssh"]["direct"]["port"]
    assert [each["id"] for each in client.get("/v2/pods").json()["pods"]] == [pod["id"]]


def test_a_deleted_pod_is_not_found_and_costs_nothing_more(
    runpod: RunPodDouble, client: httpx.Client
) -> None:
    pod = client.post("/v2/pods", json=asked()).json()
    runpod.clock.advance(3600)
    assert client.delete(f"/v2/pods/{pod['id']}").status_code == 204
    runpod.clock.advance(3600)
    assert client.delete(f"/v2/pods/{pod['id']}").status_code == 404
    assert client.get(f"/v2/pods/{pod['id']}").status_code == 404
    assert client.get("/v2/pods").json() == {"pods": []}
    assert runpod.meter.seconds("gpu-1") == 3600
    assert runpod.meter.microcredits("gpu-1") == 1_380_000 + 10_000


def test_names_are_not_unique(runpod: RunPodDouble, client: httpx.Client) -> None:
    first, second = (client.post("/v2/pods", json=asked()).json()["id"] for _ in range(2))
    assert first != second
    assert len(client.get("/v2/pods").json()["pods"]) == 2
    assert runpod.pods.made == 2


@pytest.mark.parametrize(
    ("change", "status", "word"),
    [
        ({"terminateAfter": "2026-11-22T00:00:00Z"}, 422, "terminateAfter"),
        ({"gpu": {"id": RTX4090, "number": 1}}, 422, "number"),
        ({"env": {"N": 1}}, 422, "$.env.N"),
        ({"disk": 0}, 422, "$.disk"),
        ({"cloud": "ALL"}, 422, "$.cloud"),
    ],
)
def test_a_body_that_the_contract_does_not_know_is_a_violation(
    runpod: RunPodDouble, client: httpx.Client, change: Json, status: int, word: str
) -> None:
    answer = client.post("/v2/pods", json=asked(**change))
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert word in answer.json()["errors"][0]
    assert word in runpod.violations.pop()
    assert runpod.pods.made == 0


def test_a_rule_and_a_lack_are_the_same_status_and_only_the_detail_differs(
    runpod: RunPodDouble, client: httpx.Client
) -> None:
    both = {"persistent": {"size": 10, "path": "/w"}, "network": []}
    rule = client.post("/v2/pods", json=asked(mounts=both))
    runpod.catalogue.free[RTX4090, "SECURE"] = 1
    lack = client.post("/v2/pods", json=asked())
    assert (rule.status_code, lack.status_code) == (400, 400)
    assert "mutually exclusive" in rule.json()["detail"]
    assert "no longer any instances available" in lack.json()["detail"]
    community = asked(cloud="COMMUNITY", gpu={"id": "NVIDIA H200"})
    assert "no longer any" in client.post("/v2/pods", json=community).json()["detail"]


def test_pods_use_the_stock_that_the_catalogue_tells(
    runpod: RunPodDouble, client: httpx.Client
) -> None:
    def level() -> str:
        query = {"include": "AVAILABILITY", "product": "POD", "cloud": "SECURE", "count": "2"}
        gpus = client.get("/v2/catalog/gpus", params=query).json()["gpus"]
        return str(next(each["availability"] for each in gpus if each["id"] == RTX4090))

    runpod.catalogue.free[RTX4090, "SECURE"] = 3
    assert level() == "LOW"
    pod = client.post("/v2/pods", json=asked()).json()
    assert level() == "NONE"
    client.delete(f"/v2/pods/{pod['id']}")
    assert level() == "LOW"


def test_the_catalogue_without_availability_has_list_prices_alone(client: httpx.Client) -> None:
    gpus = {each["id"]: each for each in client.get("/v2/catalog/gpus").json()["gpus"]}
    assert gpus[RTX4090]["price"] == {"secure": 0.69, "community": 0.34}
    assert "availability" not in gpus[RTX4090]
    assert client.get("/v2/catalog/gpus", params={"include": "AVAILABILITY"}).status_code == 400


def test_keys_decide_who_may_do_what(runpod: RunPodDouble) -> None:
    runpod.keys["reads"] = False
    with client_of(runpod, "wrong") as wrong, client_of(runpod, "reads") as reads:
        assert wrong.get("/v2/account/ssh-keys").status_code == 401
        assert "ratelimit" not in wrong.get("/v2/pods").headers
        assert reads.get("/v2/account/ssh-keys").json() == {"keys": []}
        assert reads.post("/v2/pods", json=asked()).status_code == 403
    with httpx.Client(base_url=runpod.url, trust_env=False) as nobody:
        assert nobody.get("/v2/pods").json()["detail"] == "missing bearer token"


def test_the_account_s_keys_are_let_in_only_where_the_request_names_none(
    runpod: RunPodDouble, client: httpx.Client
) -> None:
    client.put("/v2/account/ssh-keys", json={"keys": ["ssh-ed25519 AAAA account"]})
    own = client.post("/v2/pods", json=asked()).json()["env"]["PUBLIC_KEY"]
    none = client.post("/v2/pods", json=asked(env={})).json()["env"]["PUBLIC_KEY"]
    unasked = client.post("/v2/pods", json=asked(env={}, startSsh=False)).json()["env"]
    assert (own, none, unasked) == (PUBLIC, "ssh-ed25519 AAAA account", {})


def test_a_poor_account_and_a_closed_pool_are_refused(
    runpod: RunPodDouble, client: httpx.Client
) -> None:
    runpod.catalogue.forbidden.add(RTX4090)
    assert client.post("/v2/pods", json=asked()).status_code == 403
    runpod.catalogue.forbidden.clear()
    runpod.renting.balance = 1.0
    assert client.post("/v2/pods", json=asked()).status_code == 402


def test_the_61st_call_of_a_minute_is_too_many(runpod: RunPodDouble, client: httpx.Client) -> None:
    runpod.clock.advance(60 - runpod.clock.now() % 60 + 48)
    answers = [client.get("/v2/pods") for _ in range(61)]
    assert [each.status_code for each in answers[:60]] == [200] * 60
    last = answers[-1]
    assert (last.status_code, last.headers["retry-after"]) == (429, "12")
    assert last.headers["ratelimit"].startswith('"minute";r=0;t=12')
    assert last.headers["ratelimit-policy"].startswith('"minute";q=60;w=60')
    runpod.clock.advance(12)
    assert client.get("/v2/pods").status_code == 200


def test_a_stopped_pod_frees_its_gpus_and_pays_for_its_volume(
    runpod: RunPodDouble, client: httpx.Client
) -> None:
    volume = {"persistent": {"size": 100, "path": "/workspace"}}
    pod = client.post("/v2/pods", json=asked(mounts=volume)).json()
    path = f"/v2/pods/{pod['id']}/action"
    assert client.post(path, json={"action": "restart"}).status_code == 409
    stopped = client.post(path, json={"action": "stop"}).json()
    assert (stopped["status"], stopped["cost"]) == ("EXITED", 0.0)
    assert runpod.catalogue.free_of(RTX4090, "SECURE") == 16
    [disk] = runpod.meter.running()
    assert (disk.what, disk.price) == ("disk", round(100 * 0.20 / 720 * 1_000_000))
    assert client.post(path, json={"action": "start"}).json()["status"] == "PROVISIONING"
    assert client.post(path, json={"action": "terminate"}).status_code == 204


def test_bills_follow_the_meter(runpod: RunPodDouble, client: httpx.Client) -> None:
    pod = client.post("/v2/pods", json=asked()).json()
    runpod.clock.advance(5400)
    client.delete(f"/v2/pods/{pod['id']}")
    query = {"bucketSize": "hour", "lastN": "3", "podId": pod["id"]}
    bill = client.get("/v2/billing/pods", params=query).json()
    assert [round(each["gpuAmount"], 4) for each in bill["records"]] == [1.38, 0.69]
    assert round(bill["metadata"]["totals"]["totalAmount"] * 1e6) == runpod.meter.microcredits()


async def test_a_pod_is_logged_in_to_by_the_key_and_the_host_key_of_its_environment(
    make_runpod: Callable[..., RunPodDouble],
) -> None:
    double = make_runpod()
    with client_of(double) as client:
        pod = client.post("/v2/pods", json=asked()).json()
        double.clock.advance(65)
        where = client.get(f"/v2/pods/{pod['id']}").json()["ssh"]["direct"]
        shown = await said(where["host"], where["port"], "nvidia-smi -L; echo $PUBLIC_KEY")
        assert shown.count("NVIDIA GeForce RTX 4090") == 2
        assert PUBLIC not in shown
        client.delete(f"/v2/pods/{pod['id']}")
    with pytest.raises(ConnectionRefusedError):
        await said(where["host"], where["port"], "true")
