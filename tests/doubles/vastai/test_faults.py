"""What goes wrong at the double of Vast.ai when a test asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import asyncssh
import httpx
import pytest

from tests.doubles.rented.faults import FaultKind
from tests.doubles.rented.login import PUBLIC, said
from tests.doubles.vastai.double import VastDouble
from tests.doubles.vastai.test_instances import client_of, rent, see


@pytest.fixture
def client(vastai: VastDouble) -> Iterator[httpx.Client]:
    with client_of(vastai) as made:
        yield made


def test_a_lost_answer_leaves_an_instance_that_is_found_by_its_label(
    vastai: VastDouble, client: httpx.Client
) -> None:
    vastai.fault(FaultKind.LOST_REPLY, "asks.accept")
    with pytest.raises(httpx.TransportError):
        rent(vastai, client)
    query = {"select_filters": '{"label":{"eq":"gpu-1"}}'}
    assert client.get("/api/v1/instances/", params=query).json()["total_instances"] == 1
    assert len(vastai.meter.running()) == 1


def test_an_error_may_carry_a_contract_that_is_charged(
    vastai: VastDouble, client: httpx.Client
) -> None:
    vastai.fault(FaultKind.FAILED_BUT_MADE, "asks.accept")
    answer = rent(vastai, client)
    assert (answer.status_code, answer.json()["success"]) == (400, False)
    number = answer.json()["new_contract"]
    assert see(vastai, client, number)["intended_status"] == "stopped"
    vastai.clock.advance(3600)
    assert vastai.meter.microcredits() > 0
    assert client.delete(f"/api/v0/instances/{number}/").json() == {"success": True}


def test_a_failure_may_come_with_http_200(vastai: VastDouble, client: httpx.Client) -> None:
    vastai.fault(FaultKind.FAILED_WITH_200, "asks.accept")
    answer = rent(vastai, client)
    assert (answer.status_code, answer.json()["success"]) == (200, False)
    assert vastai.instances.made == 0


def test_an_offer_goes_between_the_search_and_the_rental(
    vastai: VastDouble, client: httpx.Client
) -> None:
    vastai.fault(FaultKind.NO_CAPACITY, "asks.accept")
    [offer] = client.post("/api/v0/bundles/", json={"id": {"eq": 7000002}}).json()["offers"]
    assert rent(vastai, client, offer["id"]).status_code == 410
    assert rent(vastai, client, offer["id"]).status_code == 200


def test_a_rental_that_was_to_be_cancelled_may_be_scheduled_nevertheless(
    vastai: VastDouble, client: httpx.Client
) -> None:
    vastai.fault(FaultKind.SCHEDULED, "asks.accept")
    number = rent(vastai, client).json()["new_contract"]
    vastai.clock.advance(600)
    found = see(vastai, client, number)
    assert (found["cur_state"], found["actual_status"]) == ("stopped", None)


def test_a_machine_may_be_other_or_dearer_than_its_offer(
    vastai: VastDouble, client: httpx.Client
) -> None:
    vastai.fault(FaultKind.OTHER_MACHINE, "asks.accept")
    vastai.fault(FaultKind.DEARER, "asks.accept", factor=3.0)
    other = see(vastai, client, rent(vastai, client).json()["new_contract"])
    dear = see(vastai, client, rent(vastai, client, 7000001).json()["new_contract"])
    assert other["gpu_name"] == "RTX 3060"
    assert dear["dph_base"] == pytest.approx(1.26)


def test_too_many_and_5xx_are_no_json(vastai: VastDouble, client: httpx.Client) -> None:
    vastai.fault(FaultKind.TOO_MANY, "instances.list")
    vastai.fault(FaultKind.ERROR, "instances.list", status=502)
    many, bad = (client.get("/api/v1/instances/") for _ in range(2))
    assert (many.status_code, many.text) == (429, "API requests too frequent")
    assert (bad.status_code, bad.text[:6]) == (502, "<html>")


def test_ports_come_late_and_the_proxy_is_there_at_once(
    vastai: VastDouble, client: httpx.Client
) -> None:
    vastai.fault(FaultKind.PORTS_LATE, "boot", seconds=45)
    number = rent(vastai, client).json()["new_contract"]
    vastai.clock.advance(70)
    found = see(vastai, client, number)
    assert (found["actual_status"], found["ports"]) == ("running", None)
    assert found["ssh_port"] is not None
    vastai.clock.advance(45)
    assert see(vastai, client, number)["ports"]["22/tcp"]


def test_a_host_without_ports_has_none_in_its_list(
    vastai: VastDouble, client: httpx.Client
) -> None:
    number = rent(vastai, client, 7000005).json()["new_contract"]
    vastai.clock.advance(70)
    assert see(vastai, client, number)["ports"] == {}


def test_a_container_that_cannot_be_made_stays_created(
    vastai: VastDouble, client: httpx.Client
) -> None:
    vastai.fault(FaultKind.NEVER_STARTS, "boot")
    number = rent(vastai, client).json()["new_contract"]
    vastai.clock.advance(600)
    found = see(vastai, client, number)
    assert found["actual_status"] == "created"
    assert "OCI runtime create failed" in found["status_msg"]


def test_a_host_that_vanishes_is_offline_later_not_charged_and_may_come_back(
    vastai: VastDouble, client: httpx.Client
) -> None:
    vastai.fault(FaultKind.VANISH, "boot", seconds=600)
    number = rent(vastai, client).json()["new_contract"]
    vastai.clock.advance(670)
    assert vastai.meter.running() == []
    assert see(vastai, client, number)["actual_status"] == "running"
    vastai.clock.advance(30)
    assert see(vastai, client, number)["actual_status"] == "offline"
    vastai.faults.clear()
    vastai.instances.by_id[number].fault = None
    vastai.instances.happens("host_back", "gpu-1")
    assert see(vastai, client, number)["actual_status"] == "running"
    assert {each.what for each in vastai.meter.running()} == {"gpu", "disk"}


@pytest.mark.parametrize(
    ("event", "status"), [("exit", "exited"), ("unknown", "unknown"), ("delete_by_hand", None)]
)
def test_things_happen_to_instances(
    vastai: VastDouble, client: httpx.Client, event: str, status: str | None
) -> None:
    number = rent(vastai, client).json()["new_contract"]
    vastai.clock.advance(70)
    vastai.instances.happens(event, "gpu-1")
    found = see(vastai, client, number)
    assert (found and found["actual_status"]) == status


async def test_a_script_that_comes_too_late_leaves_a_host_key_that_nobody_knows(
    make_vastai: Callable[..., VastDouble],
) -> None:
    double = make_vastai()
    double.fault(FaultKind.OWN_HOST_KEY, "boot")
    double.account.add_key(PUBLIC, 0.0)
    with client_of(double) as client:
        number = rent(double, client).json()["new_contract"]
        double.clock.advance(70)
        found = see(double, client, number)
    with pytest.raises(asyncssh.HostKeyNotVerifiable):
        await said(found["ssh_host"], found["ssh_port"], "true")
