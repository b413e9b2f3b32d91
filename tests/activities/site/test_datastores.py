"""What a site makes of what its nodes say of datastores."""

import subprocess
from ipaddress import ip_address

import pytest
from temporalio.exceptions import ApplicationError

from activities.agent.datastores import kernel, verbs
from activities.settings import settings
from activities.site import datastore_networks, datastores, staging
from activities.storage import run_specs
from tests.activities.hostile_sites import HostileSite
from tests.failure.hostile_node import answer
from workflows.contracts import errors
from workflows.contracts.datastores import DatastoreWay
from workflows.effects.datastores import check_datastore
from workflows.effects.jobs import stage_worker, store_output
from workflows.jobs import datastore_waits


async def test_what_a_node_sees_of_a_datastore_is_told_with_its_way(hostile: HostileSite) -> None:
    hostile.is_honest()
    found = await hostile.do("check_datastore")
    assert (found.is_reachable, found.is_writable, found.is_refused) == (True, False, False)
    assert (found.way, found.reason) == (DatastoreWay.USER_SPACE, "can only be read")


async def test_a_node_says_how_it_reaches_shares(hostile: HostileSite) -> None:
    hostile.is_honest()
    found = (await hostile.do("prepare")).preparation
    assert (found.nfs_way, found.smb_way) == ("kernel", "user-space (kernel without cifs)")


async def test_an_output_on_a_datastore_takes_no_room_in_the_object_store(
    hostile: HostileSite,
) -> None:
    hostile.is_honest()
    found = await hostile.do("store_on_datastore")
    assert (found.stored_bytes, found.file_count) == (0, 2)
    assert found.place == "datastore lab, results"
    left_out = {"files": 2, "bytes": 9, "left_out": 3}
    hostile.machine.says["store_on_datastore"] = answer(**left_out)
    assert (await hostile.do("store_on_datastore")).place.endswith("(without 3 links or odd names)")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("datastore-away", errors.DATASTORE_AWAY),
        ("datastore-refused", errors.WORK_REFUSED),
        ("datastore-path", errors.WORK_REFUSED),
        ("no-datastore-client", errors.NODE_REFUSED),
    ],
)
async def test_each_refusal_says_who_can_mend_it(
    hostile: HostileSite, code: str, kind: str
) -> None:
    hostile.is_honest()
    error = {"code": code, "message": "nfs://nas/lab: no answer for 45 s"}
    hostile.machine.says["store_on_datastore"] = answer(ok=False, error=error)
    with pytest.raises(ApplicationError, match="no answer for 45 s") as refused:
        await hostile.do("store_on_datastore")
    assert refused.value.type == kind


async def test_a_run_that_needs_a_newer_worker_waits_for_one(
    hostile: HostileSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The staging is tried again, by this worker or by one that has been upgraded."""
    hostile.is_honest()
    monkeypatch.setattr(run_specs, "required_by", lambda _: ["wings"])
    for verb in ("stage", "store_on_datastore"):
        with pytest.raises(ApplicationError, match="requires wings") as refused:
            await hostile.do(verb)
        assert refused.value.type == errors.UNAVAILABLE
        assert errors.UNAVAILABLE not in stage_worker.non_retryable


def test_each_limit_is_below_that_of_whoever_waits_for_it() -> None:
    """So the one that names the datastore wins, and the next attempt goes on with what is there."""
    tries = len(kernel.NFS_VERSIONS) * (kernel.MOUNT_S + 5) + kernel.RESOLVE_S
    assert tries + verbs.CHECK_S < datastores.CHECK_S < check_datastore.start_to_close_s
    assert verbs.INPUT_S < staging.STAGE_S < stage_worker.start_to_close_s
    assert 2 * stage_worker.start_to_close_s <= (stage_worker.schedule_to_close_s or 0)
    assert verbs.OUTPUT_S < datastores.STORE_S < store_output.start_to_close_s
    assert store_output.start_to_close_s < (store_output.schedule_to_close_s or 0)
    for limit in (datastore_waits.STAGING_LIMIT, datastore_waits.OUTPUT_LIMIT):
        assert datastore_waits.LONGEST_PAUSE < datastore_waits.WORKED < limit
        assert limit < datastore_waits.LONGEST
    assert max(tries, verbs.CHECK_S) < datastore_waits.WORKED.total_seconds() / 2


def test_nodes_are_told_where_the_control_plane_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BASELOAD_PLATFORM_NETWORKS", "10.1.0.0/16, 10.2.0.0/16")
    monkeypatch.setenv("BASELOAD_DATASTORE_NETWORKS", "10.2.0.9/32")
    monkeypatch.setenv("BASELOAD_TEMPORAL_ADDRESS", "192.0.2.7:7233")
    monkeypatch.setattr(datastore_networks, "own_addresses", lambda: ["198.51.100.4"])
    settings.cache_clear()
    try:
        found = datastore_networks.networks_for_agent()
    finally:
        monkeypatch.undo()
        settings.cache_clear()
    assert found["open"] == ["10.2.0.9/32"]
    assert found["closed"] == ["10.1.0.0/16", "10.2.0.0/16", "192.0.2.7", "198.51.100.4"]


def test_the_own_addresses_are_those_that_the_kernel_takes_for_its_own() -> None:
    shown = subprocess.run(["ip", "-o", "addr"], capture_output=True, text=True, check=True).stdout
    words = [line.split() for line in shown.splitlines()]
    ours = {line[3].partition("/")[0] for line in words if line[2] in ("inet", "inet6")}
    found = datastore_networks.own_addresses()
    assert set(found) <= ours
    assert not [one for one in found if ip_address(one).is_loopback]
    assert len(found) > 0
