"""Boot-drive requests from the command; whoever sits here is an administrator."""

from tests.client.conftest import Desk
from tests.client.test_datastores import region

__all__ = ["region"]


def test_drives_are_requested_listed_approved_shipped_and_received(desk: Desk, region: str) -> None:
    lines = ("Ada Lovelace", "12 St James's Square", "London")
    where = [part for line in lines for part in ("--ship-to", line)]
    made = desk.json("boot-drive", "request", "--region", region, "--count", "3", *where)
    request_id = str(made["id"])
    assert (made["status"], made["count"], made["ship_to"]) == ("requested", 3, list(lines))
    for verb in ("ls", "list"):
        assert request_id in desk.baseload("boot-drive", verb, "--status", "requested").out
    assert desk.json("boot-drive", "ls", "--region", region, "--status", "shipped")["items"] == []
    (listed,) = desk.json("boot-drive", "list", "--all-accounts")["items"]
    assert listed == made
    refused = desk.baseload("boot-drive", "ship", request_id)
    assert (refused.code, "can become approved" in refused.err) == (3, True)
    assert desk.baseload("boot-drive", "approve", request_id).out.endswith("approved\n")
    parcel = ("--carrier", "Royal Mail", "--tracking", "RM-42")
    assert desk.json("boot-drive", "ship", request_id, *parcel)["tracking"] == "RM-42"
    shown = desk.baseload("boot-drive", "show", request_id).out
    for words in (*lines, "Royal Mail", "RM-42", "boot-drive-request.shipped"):
        assert words in shown
    assert desk.baseload("boot-drive", "receive", request_id).out.endswith("received\n")
    assert len(desk.json("boot-drive", "show", request_id)["events"]) == 4


def test_the_events_of_a_request_are_shown_by_its_id(desk: Desk, region: str) -> None:
    asked = ("boot-drive", "request", "--region", region, "--ship-to", "Ada", "--ship-to", "London")
    request_id = str(desk.json(*asked)["id"])
    other = str(desk.json(*asked)["id"])
    desk.baseload("boot-drive", "approve", request_id)
    shown = desk.baseload("events", request_id).out.splitlines()
    types = ["boot-drive-request.requested", "boot-drive-request.approved"]
    assert [line.split()[2] for line in shown] == types
    assert "by ada@" in shown[0]
    assert other not in "".join(shown)
    unknown = desk.baseload("events", f"bdr-{'0' * 26}")
    assert (unknown.code != 0, "not found" in unknown.err or "no " in unknown.err) == (True, True)


def test_a_request_is_refused_or_withdrawn(desk: Desk, region: str) -> None:
    asked = ("boot-drive", "request", "--region", region, "--ship-to", "Ada", "--ship-to", "London")
    first, second = (str(desk.json(*asked)["id"]) for _ in range(2))
    desk.baseload("boot-drive", "refuse", first, "--reason", "no drives left")
    assert "no drives left" in desk.baseload("boot-drive", "show", first).out
    assert desk.json("boot-drive", "withdraw", second)["status"] == "withdrawn"
