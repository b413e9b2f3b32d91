"""The double of Vast.ai as a client sees it: the search, instances, keys, limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import asyncssh
import httpx
import pytest

from tests.doubles.rented.login import HOST_KEY, PUBLIC, said
from tests.doubles.vastai.double import API_KEY, VastDouble

Json = dict[str, Any]
CHEAP = 7000002
ONSTART = (
    f"cat > /etc/ssh/ssh_host_ed25519_key <<'KEY'\n{HOST_KEY.export_private_key().decode()}KEY\n"
)


def asked(label: str = "gpu-1", **more: Any) -> Json:
    body = {
        "client_id": "me",
        "image": "vastai/pytorch:2.7",
        "disk": 72.0,
        "label": label,
        "runtype": "ssh_direc ssh_proxy",
        "onstart": ONSTART,
        "env": {"-p 22:22": "1", "NAME": "value"},
        "cancel_unavail": True,
    }
    return {**body, **more}


def client_of(double: VastDouble, key: str = API_KEY) -> httpx.Client:
    heads = {"Authorization": f"Bearer {key}"}
    return httpx.Client(base_url=double.url, headers=heads, trust_env=False, timeout=20)


def rent(double: VastDouble, client: httpx.Client, ask: int = CHEAP, **more: Any) -> httpx.Response:
    """Rent once the limit allows it."""
    double.clock.advance(5)
    return client.put(f"/api/v0/asks/{ask}/", json=asked(**more))


def see(double: VastDouble, client: httpx.Client, number: int) -> Any:
    double.clock.advance(2)
    return client.get(f"/api/v0/instances/{number}/", params={"owner": "me"}).json()["instances"]


@pytest.fixture
def client(vastai: VastDouble) -> Iterator[httpx.Client]:
    with client_of(vastai) as made:
        yield made


def test_a_search_filters_and_orders(client: httpx.Client) -> None:
    query = {
        "gpu_name": {"eq": "RTX 4090"}, "num_gpus": {"eq": 1}, "direct_port_count": {"gte": 1},
        "type": "on-demand", "order": [["dph_total", "asc"]], "allocated_storage": 72.0,
    }  # fmt: skip
    offers = client.post("/api/v0/bundles/", json=query).json()["offers"]
    assert [each["id"] for each in offers] == [7000002, 7000001]
    assert offers[0]["dph_total"] == pytest.approx(0.31 + 72 * 0.15 / 720)
    query["dph_total"] = {"lte": 0.4}
    new = client.put("/api/v0/search/asks/", json={"select_cols": ["*"], "q": query}).json()
    assert [each["id"] for each in new["offers"]] == [7000002]
    ram = {"gpu_name": {"eq": "A100 SXM4"}, "gpu_ram": {"gte": 76_000, "lte": 88_000}}
    big = client.post("/api/v0/bundles/", json=ram).json()["offers"]
    assert [each["id"] for each in big] == [7000007]


def test_an_instance_goes_from_nothing_to_its_port(
    vastai: VastDouble, client: httpx.Client
) -> None:
    made = rent(vastai, client).json()
    number = made["new_contract"]
    assert made == {"success": True, "new_contract": number}
    seen = [see(vastai, client, number)["actual_status"] for _ in range(6)]
    assert seen == [None, None, "created", "created", "loading", "loading"]
    vastai.clock.advance(60)
    running = see(vastai, client, number)
    assert running["actual_status"] == "running"
    assert running["public_ipaddr"] != running["public_ipaddr"].strip()
    [binding] = running["ports"]["22/tcp"]
    assert int(binding["HostPort"]) == running["ssh_port"]
    assert running["dph_total"] == pytest.approx(0.31 + 72 * 0.15 / 720)
    assert running["extra_env"] == [["-p 22:22", "1"], ["NAME", "value"]]


def test_an_ask_is_rented_once_and_comes_back(vastai: VastDouble, client: httpx.Client) -> None:
    number = rent(vastai, client).json()["new_contract"]
    taken = rent(vastai, client)
    assert (taken.status_code, taken.json()["error"]) == (410, "no_such_ask")
    client.delete(f"/api/v0/instances/{number}/")
    assert rent(vastai, client).status_code == 200
    unknown = rent(vastai, client, 1)
    assert (unknown.status_code, unknown.json()["error"]) == (404, "invalid_args")
    assert "no_such_ask" in unknown.json()["msg"]


def test_an_ask_that_is_gone_makes_a_stopped_instance_unless_that_is_cancelled(
    vastai: VastDouble, client: httpx.Client
) -> None:
    vastai.market.withdraw(CHEAP)
    assert rent(vastai, client).status_code == 410
    number = rent(vastai, client, cancel_unavail=False).json()["new_contract"]
    found = see(vastai, client, number)
    states = {found[name] for name in ("cur_state", "next_state", "intended_status")}
    assert states == {"stopped"}
    assert [each.what for each in vastai.meter.running()] == ["disk"]


def test_storage_is_charged_from_creation_and_gpus_from_running(
    vastai: VastDouble, client: httpx.Client
) -> None:
    number = rent(vastai, client).json()["new_contract"]
    vastai.clock.advance(70)
    vastai.clock.advance(3600)
    client.put(f"/api/v0/instances/{number}/", json={"state": "stopped"})
    vastai.clock.advance(3600)
    client.delete(f"/api/v0/instances/{number}/")
    vastai.clock.advance(3600)
    assert vastai.meter.seconds("gpu-1", "gpu") == pytest.approx(3600)
    assert vastai.meter.seconds("gpu-1", "disk") == pytest.approx(70 + 7200)
    assert vastai.meter.microcredits() == pytest.approx(310_000 + 15_000 * 7270 / 3600, abs=1)


def test_what_is_missing_is_refused_in_one_of_two_ways(
    vastai: VastDouble, client: httpx.Client
) -> None:
    assert client.delete("/api/v0/instances/4242/").status_code == 404
    vastai.served.missing_is_200 = True
    vastai.clock.advance(3)
    answer = client.delete("/api/v0/instances/4242/")
    assert answer.status_code == 200
    assert answer.json()["error"] == "no_such_instance"
    assert client.get("/api/v0/instances/4242/").json() == {"instances": None}


def test_a_list_has_pages_filters_and_columns(vastai: VastDouble, client: httpx.Client) -> None:
    vastai.limits.intervals = {}
    for number in range(27):
        vastai.market.add(
            type(vastai.market.offers[CHEAP])(8000000 + number, "RTX 4090", 1, 24564, 0.3)
        )
        rent(vastai, client, 8000000 + number, label=f"gpu-{number % 2}")
    first = client.get("/api/v1/instances/", params={"limit": "100"}).json()
    assert (first["instances_found"], first["total_instances"]) == (25, 27)
    assert first["label_counts"] == {"gpu-0": 14, "gpu-1": 13}
    rest = client.get("/api/v1/instances/", params={"after_token": first["next_token"]}).json()
    assert (rest["instances_found"], rest["next_token"]) == (2, None)
    query = {"select_filters": '{"label":{"eq":"gpu-1"}}', "select_cols": '["label","nothing"]'}
    named = client.get("/api/v1/instances/", params=query).json()
    assert named["total_instances"] == 13
    assert named["instances"][0] == {"label": "gpu-1", "nothing": None}
    computed = client.get("/api/v1/instances/", params={"select_filters": '{"num_gpus":{"eq":1}}'})
    assert computed.status_code == 400
    assert client.get("/api/v1/instances/", params={"after_token": "x"}).status_code == 400
    assert client.get("/api/v0/instances/").status_code == 410


def test_a_call_that_comes_too_early_is_refused_in_plain_text_and_waits_longer(
    vastai: VastDouble, client: httpx.Client
) -> None:
    client.put(f"/api/v0/asks/{CHEAP}/", json=asked())
    early = client.put("/api/v0/asks/7000001/", json=asked("second"))
    assert (early.status_code, early.text) == (
        429, "API requests too frequent: endpoint threshold=4.5",
    )  # fmt: skip
    assert "retry-after" not in early.headers
    vastai.clock.advance(11)
    assert client.put("/api/v0/asks/7000001/", json=asked("second")).status_code == 429
    vastai.clock.advance(12)
    assert client.put("/api/v0/asks/7000001/", json=asked("second")).status_code == 200


def test_the_searches_of_a_day_run_out_until_midnight(
    vastai: VastDouble, client: httpx.Client
) -> None:
    vastai.limits.searches = 1
    assert client.post("/api/v0/bundles/", json={}).status_code == 200
    assert client.post("/api/v0/bundles/", json={}).json()["error"] == "search_quota_exceeded"
    vastai.clock.advance(12 * 3600)
    assert client.post("/api/v0/bundles/", json={}).status_code == 200


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"image_name": "x"}, "image_name"),
        ({"label": "x" * 257}, "$.label"),
        ({"runtype": "ssh_directly"}, "$.runtype"),
        ({"env": {"N": 1}}, "$.env"),
        ({"client_id": "you"}, "$.client_id"),
    ],
)
def test_a_body_that_the_documents_do_not_know_is_a_violation(
    vastai: VastDouble, client: httpx.Client, change: Json, word: str
) -> None:
    answer = client.put(f"/api/v0/asks/{CHEAP}/", json=asked(**change))
    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_args")
    assert word in vastai.violations.pop()
    assert vastai.instances.made == 0


@pytest.mark.parametrize(
    "change",
    [
        {"disk": 7.0},
        {"disk": 501.0},
        {"onstart": "x" * 4097},
        {"env": {"KEY": "x" * 257}},
        {"env": {f"N{number}": "x" * 250 for number in range(140)}},
        {"env": "-e A=1 -v /:/host"},
    ],
)
def test_a_rule_of_vast_ai_is_refused_without_an_instance(
    vastai: VastDouble, client: httpx.Client, change: Json
) -> None:
    assert client.put(f"/api/v0/asks/{CHEAP}/", json=asked(**change)).status_code == 400
    assert vastai.instances.made == 0


def test_a_wrong_key_and_a_wrong_path_are_refused(vastai: VastDouble) -> None:
    with client_of(vastai, "wrong") as wrong:
        assert wrong.get("/api/v0/users/current/").json()["error"] == "auth_error"
    with httpx.Client(base_url=vastai.url, trust_env=False) as nobody:
        assert nobody.get("/api/v1/instances/").status_code == 401
        query = {"api_key": API_KEY}
        assert nobody.get("/api/v0/users/current/", params=query).json()["balance"] == 1000.0
        assert nobody.get("/api/v1/instances", params=query).status_code == 404
    assert "there is no such call" in vastai.violations.pop()


def test_the_account_s_keys_are_listed_once_there_are_some(
    vastai: VastDouble, client: httpx.Client
) -> None:
    assert client.get("/api/v0/ssh/").status_code == 404
    made = client.post("/api/v0/ssh/", json={"ssh_key": PUBLIC}).json()
    assert made["key"]["public_key"] == PUBLIC
    assert [each["key"] for each in client.get("/api/v0/ssh/").json()] == [PUBLIC]


async def test_an_instance_lets_in_the_keys_of_the_account_and_of_its_own(
    make_vastai: Callable[..., VastDouble],
) -> None:
    double = make_vastai()
    with client_of(double) as client:
        number = rent(double, client).json()["new_contract"]
        double.clock.advance(70)
        found = see(double, client, number)
        where = found["public_ipaddr"].strip(), int(found["ports"]["22/tcp"][0]["HostPort"])
        with pytest.raises(Exception, match="Permission denied"):
            await said(*where, "true")
        client.post(f"/api/v0/instances/{number}/ssh/", json={"ssh_key": PUBLIC})
        assert PUBLIC in client.get(f"/api/v0/instances/{number}/ssh/").json()["ssh_keys"]
        assert "RTX 4090" in await said(*where, "nvidia-smi -L")
        client.delete(f"/api/v0/instances/{number}/")
    with pytest.raises(ConnectionRefusedError):
        await said(*where, "true")


async def test_a_key_of_the_account_reaches_every_instance(
    make_vastai: Callable[..., VastDouble],
) -> None:
    double = make_vastai()
    with client_of(double) as client:
        number = rent(double, client).json()["new_contract"]
        client.post("/api/v0/ssh/", json={"ssh_key": PUBLIC})
        double.clock.advance(70)
        found = see(double, client, number)
    assert await said(found["ssh_host"], found["ssh_port"], "echo in") == "in"


async def test_a_script_may_run_an_ssh_server_of_its_own_at_a_published_port(
    make_vastai: Callable[..., VastDouble],
) -> None:
    double = make_vastai()
    onstart = f"{ONSTART}echo '{PUBLIC}' > /etc/keys\n/usr/sbin/sshd -p 10022 -h /etc/ssh/key"
    with client_of(double) as client:
        env = {"-p 10022:10022": "1"}
        number = rent(double, client, onstart=onstart, env=env).json()["new_contract"]
        double.clock.advance(70)
        found = see(double, client, number)
        host = found["public_ipaddr"].strip()
        own, usual = (int(found["ports"][f"{each}/tcp"][0]["HostPort"]) for each in (10022, 22))
        assert await said(host, own, "echo in") == "in"
        with pytest.raises(asyncssh.HostKeyNotVerifiable):
            await said(host, usual, "true")
        client.delete(f"/api/v0/instances/{number}/")
    for port in (own, usual):
        with pytest.raises(ConnectionRefusedError):
            await said(host, port, "true")
