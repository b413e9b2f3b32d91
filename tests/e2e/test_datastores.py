"""Shared folders of a region: a job reads from a real NFS and stores on a real SMB server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.e2e.platform import Platform, Refused, Site
from tests.lab.file_servers import (
    SMB_PASSWORD,
    SMB_UID,
    SMB_USER,
    NfsServer,
    SmbServer,
    missing_programs,
)
from tests.lab.machines import Lab

pytestmark = pytest.mark.timeout(600)


@dataclass(frozen=True)
class Shares:
    """A region with one node and two datastores, by their ids."""

    region_id: str
    nfs: NfsServer
    smb: SmbServer
    nfs_id: str
    smb_id: str


@pytest.fixture(scope="module")
def shares(lab: Lab, platform: Platform, make_site: Callable[..., Site]) -> Iterator[Shares]:
    if missing := missing_programs():
        pytest.fail(f"apt-get install {' '.join(missing)}")
    site, machine = make_site(), lab.add("reader")
    site.join(machine)
    with NfsServer(lab.network, "nfs", 100) as nfs, SmbServer(lab.network, "smb", 101) as smb:
        nfs.start()
        smb.start()
        made = [
            platform.post("/v1/datastores", {"region_id": site.region_id, **body})["id"]
            for body in (
                {"name": "sets", "type": "nfs", "address": nfs.address,
                 "root_path": str(nfs.shared)},
                {"name": "results", "type": "smb", "address": smb.address, "root_path": "/data",
                 "user": SMB_USER, "password": SMB_PASSWORD},
            )
        ]  # fmt: skip
        yield Shares(site.region_id, nfs, smb, *made)
    lab.remove(machine.name)


def regional(datastore_id: str, path: str) -> dict[str, Any]:
    return {"type": "regional", "datastore_id": datastore_id, "path": path}


def test_a_job_reads_from_nfs_and_stores_on_smb(platform: Platform, shares: Shares) -> None:
    for datastore_id in (shares.nfs_id, shares.smb_id):
        ready = platform.until_status(f"/v1/datastores/{datastore_id}", "ready")
        assert ready["way"] == "user-space"  # the lab's kernel has no network file systems
        assert SMB_PASSWORD not in str(ready)
    folder = shares.nfs.shared / "digits/train"
    folder.mkdir(parents=True)
    (folder / "numbers").write_text("1\n2\n3\n")
    command = (
        "sort -r $BASELOAD_INPUT/numbers > $BASELOAD_OUTPUT/reversed; mkdir $BASELOAD_OUTPUT/more;"
        " id -un > $BASELOAD_OUTPUT/more/account; sleep 2; echo x > $BASELOAD_SCRATCH/x;"
        " ls $BASELOAD_DATASTORE > $BASELOAD_OUTPUT/more/uses"
    )
    data = {
        "input": regional(shares.nfs_id, "digits/train"),
        "output": regional(shares.smb_id, "runs/first"),
        "scratch": regional(shares.nfs_id, "tmp"),
    }
    body = {
        "name": "digits", "type": "training", "workers": [{"command": command}], "data": data,
        "resources": {"gpus": "cpu", "cpu_count": 1, "memory_gib": 1},
    }  # fmt: skip
    made = platform.post("/v1/jobs", body)
    assert made["placement"]["region_id"] == shares.region_id  # pinned by its datastores
    job = f"/v1/jobs/{made['id']}"
    with pytest.raises(Refused) as refused:
        platform.ask("DELETE", f"/v1/datastores/{shares.smb_id}")
    assert (refused.value.status, made["id"] in str(refused.value)) == (409, True)
    finished = platform.until_status(job, "finished")
    stored = shares.smb.shared / "runs/first"
    assert (stored / "reversed").read_text() == "3\n2\n1\n"
    assert (stored / "more/account").read_text().startswith("baseload-job-")
    assert (stored / "more/uses").read_text().split() == ["input", "output", "scratch"]
    assert (stored / "reversed").stat().st_uid == SMB_UID
    assert finished["output_bytes"] == 0  # nothing of it is in the platform's own store
    told = {event["type"]: event["message"] for event in platform.items(f"{job}/events")}
    assert "3 files, on datastore results, runs/first" in told["job.stored"]


def test_a_dataset_is_made_of_a_folder_of_a_share_and_read_by_a_job(
    platform: Platform, shares: Shares
) -> None:
    """The control plane itself does not reach the share; a node of the region reads it."""
    platform.until_status(f"/v1/datastores/{shares.nfs_id}", "ready")
    folder = shares.nfs.shared / "cats/deep"
    folder.mkdir(parents=True)
    (folder / "tom").write_text("meow")
    source = regional(shares.nfs_id, "cats")
    made = platform.post("/v1/datasets", {"name": "cats", "source": source})
    ready = platform.until_status(f"/v1/datasets/{made['id']}", "ready")
    assert (ready["file_count"], ready["unpacked_bytes"]) == (1, 4)
    command = "cat $BASELOAD_DATASETS/cats/deep/tom"
    data = {"datasets": [made["id"]], "output": None}
    job = platform.job(command, shares.region_id, data=data)
    platform.until_status(job, "finished")
    assert platform.log(job) == "meow"


def test_an_address_of_the_platform_is_no_datastore(platform: Platform, shares: Shares) -> None:
    """It has the words of a server that does not answer."""
    body = {"region_id": shares.region_id, "name": "own", "type": "nfs", "root_path": "/"}
    with pytest.raises(Refused, match="loopback"):
        platform.post("/v1/datastores", {**body, "address": "127.0.0.1"})
    made = platform.post("/v1/datastores", {**body, "address": "localhost"})
    away = platform.until_status(f"/v1/datastores/{made['id']}", "offline")
    assert "its address is closed to datastores, or no such server" in away["status_reason"]


def test_a_job_waits_for_a_share_that_is_away_and_says_why(
    platform: Platform, shares: Shares
) -> None:
    platform.until_status(f"/v1/datastores/{shares.nfs_id}", "ready")
    (shares.nfs.shared / "later").mkdir()
    (shares.nfs.shared / "later/x").write_text("here")
    shares.nfs.stop()
    job = platform.job(
        "cat $BASELOAD_INPUT/x",
        shares.region_id,
        data={"input": regional(shares.nfs_id, "later"), "output": None},
    )
    waits = platform.until(
        job, lambda found: "nfs://" in (found["status_reason"] or ""), "it says why it waits"
    )
    assert waits["status"] == "waiting_for_data"
    assert "job.datastore-away" in platform.events(job)
    shares.nfs.start()
    platform.until_status(job, "finished")
    assert platform.log(job) == "here"


def test_a_removed_datastore_leaves_its_files_and_is_not_named_again(
    platform: Platform, shares: Shares
) -> None:
    kept = shares.smb.shared / "kept"
    kept.write_text("stays")
    platform.until_status(f"/v1/datastores/{shares.smb_id}", "ready")
    platform.ask("DELETE", f"/v1/datastores/{shares.smb_id}")
    platform.until_status(f"/v1/datastores/{shares.smb_id}", "archived")
    assert kept.read_text() == "stays"
    with pytest.raises(Refused, match="not found"):
        platform.job(
            "true",
            shares.region_id,
            data={"output": regional(shares.smb_id, "x")},
        )
