"""Volumes in jobs over HTTP: who may have them, who has them, and what is made of them."""

from typing import Any

import httpx
import pytest

from activities.db import tables
from tests.activities.artifacts.artifact_rows import files_of
from tests.api.http_server import Person, Site
from tests.api.test_artifacts import FILES, complete
from tests.api.test_leases import BEGAN

pytestmark = pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)


async def volume(site: Site, person: Person, name: str = "notes") -> str:
    """A volume of two files."""
    made = await person.made("/v1/volumes", {"name": name, "source": {"type": "empty"}})
    complete(site, made["id"])
    return str(made["id"])


async def submit(person: Person, volume_id: str, access: str, **more: Any) -> httpx.Response:
    body = {
        "name": "notebook", "type": "notebook", "port": 8888,
        "resources": {"cpu_count": 1}, "workers": [{"command": "work"}],
        "data": {"volumes": [{"id": volume_id, "access": access}]}, **more,
    }  # fmt: skip
    return await person.call("POST", "/v1/jobs", json=body)


async def test_a_job_names_its_volumes_with_its_access_and_they_stay_as_long_as_it(
    site: Site, ada: Person
) -> None:
    notes = await volume(site, ada)
    answer = await submit(ada, notes, "write")
    assert answer.status_code == 202, answer.text
    job_id = answer.json()["id"]
    (use,) = site.rows(tables.ArtifactUse, artifact_id=notes)
    assert (use.job_id, use.role) == (job_id, "volume_writer")
    (row,) = site.rows(tables.Job, id=job_id)
    assert row.data_bytes == 2001 + 2 * 4096
    removal = await ada.call("DELETE", f"/v1/volumes/{notes}")
    assert (removal.status_code, job_id in removal.json()["detail"]) == (409, True)
    found = (await ada.get(f"/v1/volumes/{notes}")).json()
    assert (found["job_ids"], found["holders"], found["written_at"]) == ([job_id], [], None)
    site.set(tables.Job, job_id, status="canceled")
    assert (await ada.call("DELETE", f"/v1/volumes/{notes}")).status_code == 202


async def test_a_volume_of_others_or_of_another_project_is_refused_by_its_field(
    site: Site, ada: Person, bob: Person
) -> None:
    notes = await volume(site, ada)
    answer = await submit(bob, notes, "read")
    (error,) = answer.json()["errors"]
    assert (answer.status_code, error["field"]) == (422, "data.volumes.0.id")
    assert "not found" in error["rule"]


async def test_a_member_who_may_only_read_a_volume_runs_no_job_that_writes_to_it(
    site: Site, ada: Person, bob: Person
) -> None:
    notes = await volume(site, ada)
    site.write(
        tables.ProjectMember(
            project_id=ada.project_id, user_id=bob.user_id,
            permissions={"volume": "read", "job": "all"}, created_at=BEGAN,
        )
    )  # fmt: skip
    answer = await submit(bob, notes, "write", project_id=ada.project_id)
    (error,) = answer.json()["errors"]
    assert (error["field"], error["value"]) == ("data.volumes.0.access", "write")
    assert "no permission to change" in error["rule"]
    allowed = await submit(bob, notes, "read", project_id=ada.project_id)
    assert allowed.status_code == 202, allowed.text


async def test_the_holders_of_a_volume_and_who_has_written_it_are_shown(
    site: Site, ada: Person
) -> None:
    notes = await volume(site, ada)
    job_id = (await submit(ada, notes, "write")).json()["id"]
    site.set(tables.Volume, notes, written_at=BEGAN, written_by=job_id)
    node_id = await ada.node(await ada.region())
    site.write(
        tables.Allocation(
            id="alc-1", job_id=job_id, worker=0, attempt=1, node_id=node_id, cpu_count=1,
            memory_bytes=1, gpu_indices=[], created_at=BEGAN,
        )
    )  # fmt: skip
    hold = tables.VolumeHold(
        allocation_id="alc-1", volume_id=notes, job_id=job_id, attempt=1, access="write"
    )
    site.write(hold)
    found = (await ada.get(f"/v1/volumes/{notes}")).json()
    assert found["holders"] == [{"job_id": job_id, "access": "write"}]
    assert found["written_by"] == job_id
    listed = (await ada.get("/v1/volumes")).json()["items"]
    assert listed == [found]
    without_jobs = (await ada.with_key(("volumes:read",)).get(f"/v1/volumes/{notes}")).json()
    assert without_jobs["holders"] == [{"job_id": None, "access": "write"}]
    assert (without_jobs["holder_count"], without_jobs["written_by"]) == (1, None)
    exported = await ada.get(f"/v1/volumes/{notes}/content")
    assert files_of(exported.content) == FILES


async def test_a_job_that_waits_for_its_volume_says_for_whom(site: Site, ada: Person) -> None:
    notes = await volume(site, ada)
    job_id = (await submit(ada, notes, "write")).json()["id"]
    (row,) = site.rows(tables.Job, id=job_id)
    detail = f"volume {notes}: asked to write; job first (job-1) reads it"
    refusal = {"offer_id": "none", "region_id": None, "code": "volume", "detail": detail}
    site.write(
        tables.DemandRefusalsRow(
            project_id=row.project_id,
            demand_key=row.demand_key,
            refusals=[{**refusal, "ever": True}],
        )
    )
    site.set(tables.Job, job_id, status="waiting_for_resources")
    found = (await ada.get(f"/v1/jobs/{job_id}")).json()
    assert found["status_reason"] == detail
    assert found["status_label"] == "waiting for resources: a volume"
