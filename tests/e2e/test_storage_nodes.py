"""A region's storage node through the whole stack: first, used by two nodes, replaced, lost."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.platform import Platform, Refused, Resource, Site
from tests.lab.agent import ROOT
from tests.lab.fixtures import BootMachine
from tests.lab.machine import Machine

pytestmark = pytest.mark.timeout(600)
READ = "cat $BASELOAD_DATASETS/digits/one; sleep 1"


def kept(machine: Machine, kind: str) -> list[str]:
    return sorted(machine.run("ls", f"{ROOT}/cache/{kind}").split())


def test_a_storage_node_serves_its_region_and_is_replaced_while_a_job_runs(
    platform: Platform, make_site: Callable[..., Site], boot_machine: BootMachine
) -> None:
    site = make_site(storage_mode="central")
    old, new, worker = (boot_machine("sshd") for _ in range(3))
    with pytest.raises(Refused, match="needs its storage node first"):
        site.add(worker)
    site.announce(old)
    store = platform.until_status(site.add(old, services=["storage"]), "active")
    assert store["preparation"]["cache"] == f"{old.address}:8710"
    assert store["preparation"]["cache_is_secure"]
    site.join(worker)
    dataset = platform.dataset("digits", {"one": b"from the dataset"})
    data = {"datasets": [dataset.rpartition("/")[2]]}
    first = platform.job(READ, site.region_id, data=data)
    platform.until_status(first, "finished")
    assert platform.log(first) == "from the dataset"
    assert len(kept(old, "parts")) == 1
    with pytest.raises(Refused, match="is the storage node of"):
        platform.ask("DELETE", f"/v1/nodes/{store['id']}", params={"force": True})

    running = platform.job("sleep 25", site.region_id)
    platform.until_status(running, "running")
    site.announce(new)
    asked: Resource = {"name": "store-2", "minion_id": new.minion_id}
    added = platform.post(f"/v1/nodes/{store['id']}/replace", asked)
    assert added["fills_from"] == store["id"]
    platform.until_status(f"/v1/nodes/{store['id']}", "archived")
    platform.until_status(f"/v1/nodes/{added['id']}", "active")
    assert kept(new, "parts") == kept(old, "parts")
    assert "region.storage-replaced" in platform.events(f"/v1/regions/{site.region_id}")
    platform.until_status(running, "finished")

    worker.run("sh", "-c", f"rm -rf {ROOT}/contents")
    second = platform.job(READ, site.region_id, data=data)
    platform.until_status(second, "finished")
    told = {one["type"]: one["message"] for one in platform.items(f"{second}/events")}
    assert "cache" in told["job.data-staged"]
    new.power_cut()
    worker.run("sh", "-c", f"rm -rf {ROOT}/contents")
    third = platform.job(READ, site.region_id, data=data)
    platform.until_status(third, "finished")
    assert platform.log(third) == "from the dataset"
