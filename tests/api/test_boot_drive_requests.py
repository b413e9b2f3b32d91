"""Boot-drive requests over HTTP: who may do what in which status, and who sees the address."""

from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from activities.db import tables
from activities.db.ids import new_id
from tests.api.http_server import Person, Site

PATH = "/v1/boot-drive-requests"
ADDRESS = ["Ada Lovelace", "12 St James's Square", "London SW1Y 4JH", "United Kingdom"]
DECISIONS: dict[str, dict[str, str] | None] = {
    "approve": None,
    "refuse": {"reason": "no drives left"},
    "ship": {},
}
BODIES = {**DECISIONS, "receive": None, "withdraw": None}


def boot_drive_request(site: Site, person: Person, region_id: str, **more: Any) -> str:
    """A request of this person for the region, as a row."""
    now = datetime.now(UTC)
    row = tables.BootDriveRequest(
        id=new_id("bdr"),
        account_id=person.account_id,
        region_id=region_id,
        **{
            "drive_count": 2,
            "ship_to": ADDRESS,
            "status": "requested",
            "created_at": now,
            "updated_at": now,
            **more,
        },
    )
    with site.database.write() as session:
        session.add(row)
        found: str = row.id
    return found


def asked(region_id: str, **more: Any) -> dict[str, Any]:
    return {"region_id": region_id, "count": 2, "ship_to": ADDRESS, **more}


async def _events(person: Person, request_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await person.get(f"{PATH}/{request_id}/events")).json()["items"]
    return found


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
async def test_drives_are_asked_for_approved_shipped_and_received(
    ada: Person, admin: Person
) -> None:
    region_id = await ada.region()
    response = await ada.post(PATH, asked(region_id))
    made = response.json()
    assert (response.status_code, made["status"], made["ship_to"]) == (201, "requested", ADDRESS)
    path = f"{PATH}/{made['id']}"
    assert (await ada.get(path)).json() == made
    assert (await admin.post(f"{path}/approve")).json()["status"] == "approved"
    parcel = {"carrier": "Royal Mail", "tracking": "RM-42"}
    shipped = (await admin.post(f"{path}/ship", parcel)).json()
    assert (shipped["status"], shipped["carrier"], shipped["tracking"]) == (
        *("shipped", "Royal Mail"),
        "RM-42",
    )
    assert (await ada.post(f"{path}/receive")).json()["status"] == "received"
    events = list(reversed(await _events(ada, made["id"])))
    assert [(each["sequence"], each["type"]) for each in events] == [
        (0, "boot-drive-request.requested"),
        (1, "boot-drive-request.approved"),
        (2, "boot-drive-request.shipped"),
        (3, "boot-drive-request.received"),
    ]
    seen = await _events(admin, made["id"])
    assert [each["id"] for each in seen] == [each["id"] for each in reversed(events)]


async def test_a_refusal_has_a_reason_that_the_account_reads(ada: Person, admin: Person) -> None:
    made = await ada.made(PATH, asked(await ada.region()))
    path = f"{PATH}/{made['id']}"
    assert (await admin.post(f"{path}/refuse", {})).status_code == 422
    await admin.post(f"{path}/refuse", {"reason": "no drives left"})
    found = (await ada.get(path)).json()
    assert (found["status"], found["status_reason"]) == ("refused", "no drives left")
    newest = (await _events(ada, made["id"]))[0]
    assert (newest["type"], newest["details"]) == (
        "boot-drive-request.refused",
        {"reason": "no drives left"},
    )


@pytest.mark.parametrize(
    ("status", "allowed"),
    [
        ("requested", {"approve", "refuse", "withdraw"}),
        ("approved", {"ship"}),
        ("shipped", {"receive"}),
        *((ended, set()) for ended in ("refused", "withdrawn", "received")),
    ],
)
async def test_another_change_is_refused_and_names_the_status_and_what_is_allowed(
    site: Site, admin: Person, status: str, allowed: set[str]
) -> None:
    region_id = await admin.region()
    becomes = {"approve": "approved", "refuse": "refused", "ship": "shipped",
               "receive": "received", "withdraw": "withdrawn"}  # fmt: skip
    for verb, body in BODIES.items():
        request_id = boot_drive_request(site, admin, region_id, status=status)
        response = await admin.post(f"{PATH}/{request_id}/{verb}", body)
        found = (await admin.get(f"{PATH}/{request_id}")).json()["status"]
        if verb in allowed:
            assert (response.status_code, found) == (200, becomes[verb])
            continue
        detail = response.json()["detail"]
        assert (response.status_code, response.json()["code"], found) == (409, "conflict", status)
        assert f"{request_id}: is {status}" in detail
        assert all(becomes[each] in detail for each in allowed) or "has ended" in detail


async def test_only_an_administrator_decides_and_only_the_account_receives(
    site: Site, ada: Person, bob: Person, admin: Person
) -> None:
    region_id = await ada.region()
    for verb, body in DECISIONS.items():
        request_id = boot_drive_request(site, ada, region_id)
        response = await ada.post(f"{PATH}/{request_id}/{verb}", body)
        assert (response.status_code, response.json()["code"]) == (403, "forbidden")
    request_id = boot_drive_request(site, ada, region_id, status="shipped")
    for person in (bob, admin):
        assert (await person.post(f"{PATH}/{request_id}/receive")).status_code == 404
    acting = {"X-Baseload-Account": ada.account_id}
    response = await admin.call("POST", f"{PATH}/{request_id}/receive", headers=acting)
    assert response.status_code == 200


async def test_an_administrator_who_reads_a_postal_address_leaves_an_audit_entry(
    site: Site, ada: Person, bob: Person, admin: Person
) -> None:
    region_id, of_admin = await ada.region(), await admin.region()
    request_id = boot_drive_request(site, ada, region_id)
    boot_drive_request(site, ada, region_id, ship_to=None, status="received")
    boot_drive_request(site, admin, of_admin)
    of_bob = boot_drive_request(site, bob, await bob.region())
    before = len((await ada.get("/v1/audit")).json()["items"])
    for _ in range(2):
        await ada.get(f"{PATH}/{request_id}")
        await admin.get(f"{PATH}/{request_id}")
        await admin.get(PATH)
        assert len((await admin.get(f"{PATH}?all_accounts=true")).json()["items"]) == 4
    found = (await ada.get("/v1/audit")).json()["items"][:-before]
    reads = [(each["action"], each["resource_id"], each["acting_as"]) for each in found]
    assert reads == [
        ("list_boot_drive_requests", request_id, "administrator"),
        ("get_boot_drive_request", request_id, "administrator"),
    ]
    assert {each["actor_account_id"] for each in found} == {admin.account_id}
    newest = (await bob.get("/v1/audit")).json()["items"][0]
    assert (newest["action"], newest["resource_id"]) == ("list_boot_drive_requests", of_bob)


async def test_a_postal_address_whose_reading_cannot_be_noted_is_not_shown(
    site: Site, ada: Person, admin: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    request_id = boot_drive_request(site, ada, await ada.region())
    paths = (f"{PATH}/{request_id}", f"{PATH}?all_accounts=true")
    with monkeypatch.context() as away:
        away.setattr("api.audit_notes.database", _away)
        for path in paths:
            response = await admin.get(path)
            assert response.status_code == 503
            assert ADDRESS[0] not in response.text
    for path in paths:
        assert (await admin.get(path)).status_code == 200
    found = (await ada.get("/v1/audit")).json()["items"]
    assert [each["action"] for each in found[:2]] == [
        "list_boot_drive_requests",
        "get_boot_drive_request",
    ]


def _away() -> None:
    raise OperationalError("INSERT", None, Exception("the database does not answer"))


async def test_lists_are_of_the_account_and_an_administrator_can_list_everybodys(
    site: Site, ada: Person, bob: Person, admin: Person
) -> None:
    region_id = await ada.region()
    first = boot_drive_request(site, ada, region_id)
    second = boot_drive_request(site, ada, region_id, status="shipped")
    third = boot_drive_request(site, bob, await bob.region())

    async def ids(person: Person, query: str = "") -> list[str]:
        return [each["id"] for each in (await person.get(f"{PATH}{query}")).json()["items"]]

    assert await ids(ada) == [second, first]
    assert await ids(ada, "?status=shipped") == [second]
    assert await ids(ada, f"?region_id={region_id}&status=requested") == [first]
    assert await ids(admin) == []
    assert await ids(admin, "?all_accounts=true&status=requested") == [third, first]
    assert (await ada.get(f"{PATH}?all_accounts=true")).status_code == 403
    assert (await admin.get(f"{PATH}/{first}")).json()["ship_to"] == ADDRESS


async def test_the_address_is_in_no_event_no_audit_entry_and_no_refusal(
    site: Site, ada: Person, admin: Person
) -> None:
    made = await ada.made(PATH, asked(await ada.region()))
    await admin.post(f"{PATH}/{made['id']}/approve")
    await admin.post(f"{PATH}/{made['id']}/ship", {"tracking": "RM-42"})
    wrong = await ada.post(PATH, asked("reg-0", ship_to=[*ADDRESS, "a\x1bb", "c" * 101]))
    kept = [*site.rows(tables.EventRow), *site.rows(tables.AuditRow), wrong.text]
    for word in (*ADDRESS, "RM-42", "\x1b", "c" * 20):
        assert not [each for each in kept if word in repr(each)], word
    assert {error["field"] for error in wrong.json()["errors"]} == {"ship_to.4", "ship_to.5"}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"count": 0}, "count"),
        ({"count": 21}, "count"),
        ({"ship_to": ["Ada"]}, "ship_to"),
        ({"ship_to": ["line"] * 9}, "ship_to"),
        ({"ship_to": ["Ada", "  "]}, "ship_to.1"),
    ],
)
async def test_a_wrong_field_is_named(ada: Person, body: dict[str, Any], field: str) -> None:
    response = await ada.post(PATH, asked(await ada.region(), **body))
    assert response.status_code == 422
    assert [error["field"] for error in response.json()["errors"]] == [field]


async def test_a_region_in_a_cloud_or_one_that_is_removed_gets_no_drives(
    site: Site, ada: Person, admin: Person
) -> None:
    region_id = await ada.region()
    request_id = boot_drive_request(site, ada, region_id)
    site.set(tables.Region, region_id, status="removing")
    for response in (
        await ada.post(PATH, asked(region_id)),
        await admin.post(f"{PATH}/{request_id}/approve"),
    ):
        assert (response.status_code, "is removing" in response.json()["detail"]) == (409, True)
    site.set(tables.Region, region_id, status="healthy", provider_kind="gcp")
    (error,) = (await ada.post(PATH, asked(region_id))).json()["errors"]
    assert (error["field"], "machines you own" in error["rule"]) == ("region_id", True)


async def test_what_an_administrator_decides_is_in_the_audit_log_of_the_account(
    site: Site, ada: Person, admin: Person
) -> None:
    made = await ada.made(PATH, asked(await ada.region()))
    await admin.post(f"{PATH}/{made['id']}/approve")
    (entry,) = site.rows(tables.AuditRow, action="approve_boot_drive_request")
    assert (entry.account_id, entry.actor_account_id, entry.resource_id) == (
        ada.account_id,
        admin.account_id,
        made["id"],
    )
