"""`kill --all` over marketplaces: what it ends at each, and what it leaves alone."""

from collections.abc import Iterator
from typing import Any

import pytest
from baseload.commands.terminal import credits_text
from baseload.errors import ApiError

from activities.db import tables
from activities.providers.image_machines import marketplace_name
from activities.providers.registry import driver_of
from activities.providers.vastai import session as vastai_sessions
from activities.providers.vastai.limits import Limiter
from activities.settings import settings
from tests.activities.providers.driver_contract import SPEC
from tests.client.conftest import Desk
from tests.doubles.rented.meter import USD
from tests.doubles.runpod.double import API_KEY as RUNPOD_KEY
from tests.doubles.runpod.double import RunPodDouble
from tests.doubles.runpod.fixtures import runpod
from tests.doubles.runpod.pods import DISK_USD
from tests.doubles.vastai.double import API_KEY as VASTAI_KEY
from tests.doubles.vastai.double import VastDouble
from tests.doubles.vastai.fixtures import vastai
from workflows.contracts.machines import MachineOffer

__all__ = ["runpod", "vastai"]
ORPHAN, OTHER_PROVIDER = "baseload-lea-lost", "prv-of-the-other-installation"
AT_RUNPOD = MachineOffer(
    zone="community",
    machine_type="community-1",
    gpu_type="RTX4090",
    gpu_count=1,
    microcredits_per_hour=340_000,
    provider_offer_id="NVIDIA GeForce RTX 4090",
)
AT_VASTAI = AT_RUNPOD.model_copy(
    update={"zone": "bg", "machine_type": "ask-1", "provider_offer_id": "7000002"}
)


@pytest.fixture(autouse=True)
def at_the_doubles(
    runpod: RunPodDouble, vastai: VastDouble, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    limiter = Limiter(vastai.clock.now, vastai.clock.advance)
    monkeypatch.setattr(vastai_sessions, "limiter_of", lambda endpoint, key: limiter)
    settings.cache_clear()
    yield
    settings.cache_clear()


def enabled(desk: Desk, kind: str, key: str = "") -> str:
    """The id of a ready provider of the account; the kind colab is enabled as machines of one's
    own are."""
    given: tuple[str, ...] = ()
    if key:
        (desk.folder / "key").write_text(key)
        given = ("--key", "key")
    made = desk.json("provider", "enable", kind if key else "physical", *given, "--name", kind)
    desk.site.set(tables.Provider, made["id"], status="ready", kind=kind)
    return str(made["id"])


def endings(desk: Desk, provider_id: str) -> list[dict[str, Any]]:
    """The machines that the provider's workflow was asked to terminate."""
    asked = desk.site.asked_of(provider_id)
    return [dict(argument["machine"]) for verb, argument in asked if verb == "terminate_orphan"]


def test_kill_all_ends_the_orphans_of_every_marketplace_and_none_of_another_installation(
    desk: Desk, runpod: RunPodDouble, vastai: VastDouble
) -> None:
    at_runpod, at_vastai = enabled(desk, "runpod", RUNPOD_KEY), enabled(desk, "vastai", VASTAI_KEY)
    colab, own = enabled(desk, "colab"), enabled(desk, "physical")
    driver_of("runpod", at_runpod).create(ORPHAN, AT_RUNPOD, SPEC)
    driver_of("vastai", at_vastai).create(ORPHAN, AT_VASTAI, SPEC)
    (pod,) = runpod.pods.by_id.values()
    pod.asked["name"] = marketplace_name(ORPHAN, OTHER_PROVIDER)
    driver_of("runpod", at_runpod).create(ORPHAN, AT_RUNPOD, SPEC)
    left = desk.baseload("kill", "--all", "-y", "--timeout", "0")
    assert left.code == 1, "they are there until their providers list them no more"
    assert f"{ORPHAN} in community is" in left.err
    assert f"{ORPHAN} in bg is" in left.err
    assert OTHER_PROVIDER not in left.err
    assert endings(desk, at_runpod) == [{"name": ORPHAN, "zone": "community"}]
    assert endings(desk, at_vastai) == [{"name": ORPHAN, "zone": "bg"}]
    assert (endings(desk, colab), endings(desk, own)) == ([], [])


def test_a_machine_ends_in_whatever_zone_its_provider_lists_it(desk: Desk) -> None:
    provider_id = enabled(desk, "runpod", RUNPOD_KEY)
    zones = ["", "US", "any", "secure", "Texas_US.1"]
    with desk.client() as client:
        for zone in zones:
            client.end_provider_machine(provider_id, ORPHAN, zone=zone)
        with pytest.raises(ApiError):
            client.end_provider_machine(provider_id, ORPHAN, zone="x" * 64)
    assert endings(desk, provider_id) == [{"name": ORPHAN, "zone": zone} for zone in zones]


def test_the_list_of_machines_says_what_an_orphan_costs(desk: Desk, runpod: RunPodDouble) -> None:
    provider_id = enabled(desk, "runpod", RUNPOD_KEY)
    driver_of("runpod", provider_id).create(ORPHAN, AT_RUNPOD, SPEC)
    listed = desk.baseload("leases", "--listed")
    (pod,) = runpod.pods.by_id.values()
    with_disk = round(pod.usd * USD) + pod.asked["disk"] * round(DISK_USD * USD) // 720
    assert credits_text(with_disk) in listed.out
    assert "nobody" in listed.out
