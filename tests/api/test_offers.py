"""Offers and waiting jobs where a cloud would make machines, or is making them."""

from activities.db import tables
from tests.activities.cloud_rows import add_cloud_region, add_shortage
from tests.api.http_server import Person, Site


def add_region(site: Site, ada: Person) -> str:
    """A healthy region in a cloud, of the person's account."""
    with site.database.write() as session:
        project = session.get_one(tables.Project, ada.project_id)
        account = session.get_one(tables.Account, project.account_id)
        region = add_cloud_region(session, account, "asia-northeast1")
        add_shortage(session, region, "asia-northeast1-a/a2-highgpu-1g+1xA100/spot", "none left")
        return region.id


async def test_machines_that_would_be_made_are_offered_with_their_zones_and_prices(
    site: Site, ada: Person, bob: Person
) -> None:
    region_id = add_region(site, ada)
    found = (await ada.get("/v1/offers?gpus=A100:1")).json()
    assert found["placeable"]
    shown = [
        (one["rank"], one["node_id"], one["machine_type"], one["spot"], one["zones"])
        for one in found["offers"]
    ]
    assert shown == [
        (1, None, "a2-highgpu-1g", True, ["asia-northeast1-c"]),
        (2, None, "a2-highgpu-1g", False, ["asia-northeast1-a", "asia-northeast1-c"]),
    ]
    spot = found["offers"][0]
    assert spot["offer_id"] == f"{region_id}/a2-highgpu-1g/1xA100/spot"
    disks = round(375 * 64_000 / 730) + 60 * 100_000 // 730
    assert (spot["microcredits_per_hour"], spot["price_is_estimate"]) == (2_101_928 + disks, True)
    assert spot["price_read_on"] == "2026-08-22"
    only = (await ada.get("/v1/offers?gpus=A100:1&spot=required&max_price=2000000")).json()
    assert {refusal["code"] for refusal in only["refusals"]} == {"price", "spot"}
    assert (await bob.get("/v1/offers?gpus=A100:1")).json()["offers"] == []


async def test_a_job_whose_machine_is_being_made_says_so(site: Site, ada: Person) -> None:
    job_id = await ada.job()
    told = {
        "offer_id": "reg-1/m", "region_id": "reg-1", "code": "being-made",
        "detail": "a machine is being made for it", "ever": True,
    }  # fmt: skip
    status = "waiting_for_resources"
    site.set(tables.Job, job_id, status=status, placement_refusals=[told])
    job = (await ada.get(f"/v1/jobs/{job_id}")).json()
    assert (job["status"], job["status_reason"]) == (status, told["detail"])
    site.set(tables.Job, job_id, status="canceled")
    assert (await ada.get(f"/v1/jobs/{job_id}")).json()["status_reason"] is None
