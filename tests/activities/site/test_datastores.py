"""What a site makes of what its nodes say of datastores."""

import pytest
from temporalio.exceptions import ApplicationError

from tests.activities.hostile_sites import HostileSite
from tests.failure.hostile_node import answer
from workflows.contracts import errors
from workflows.contracts.datastores import DatastoreWay


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
