"""The audit log over HTTP: who acted for whom, who was refused, and who read what is not theirs."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from activities.accounts.audit import INSTALLATION
from activities.db import tables
from api.audit_notes import MAX_REFUSALS, Reads, Refusal, Refusals
from api.authorization import hash_of
from tests.api.http_server import JOB, Person, Site


async def entries(person: Person, **headers: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await person.get("/v1/audit", headers=headers)).json()["items"]
    return found


def shown(entry: dict[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(entry[name] for name in names)


async def test_what_an_administrator_does_for_an_account_is_in_its_entries(
    ada: Person, admin: Person
) -> None:
    for_ada = {"X-Baseload-Account": ada.account_id}
    job = (await admin.post("/v1/jobs", JOB, headers=for_ada)).json()
    granted = await admin.made(f"/v1/accounts/{ada.account_id}/credits", {"amount_microcredits": 5})
    await ada.post(f"/v1/jobs/{job['id']}/cancel")
    names = ("action", "resource_id", "actor_account_id", "acting_as")
    expected = [
        ("cancel_job", job["id"], None, None),
        ("grant_credits", granted["id"], admin.account_id, "administrator"),
        ("submit_job", job["id"], admin.account_id, "administrator"),
    ]
    assert [shown(entry, *names) for entry in await entries(ada)] == expected
    assert [shown(entry, *names) for entry in await entries(admin, **for_ada)] == expected
    # The administrator's own entries are those of what the administrator did.
    assert [shown(entry, *names) for entry in await entries(admin)] == expected[1:]


async def test_an_entry_has_the_address_but_an_administrators_is_theirs(
    ada: Person, admin: Person
) -> None:
    await ada.job()
    await admin.post("/v1/jobs", JOB, headers={"X-Baseload-Account": ada.account_id})
    assert [entry["address"] for entry in await entries(ada)] == [None, "127.0.0.1"]
    of_admin = await entries(admin, **{"X-Baseload-Account": ada.account_id})
    assert [entry["address"] for entry in of_admin] == ["127.0.0.1", "127.0.0.1"]


async def test_what_a_member_does_in_a_project_is_in_its_owners_entries(
    site: Site, ada: Person, bob: Person
) -> None:
    project_id = share(site, ada, bob)
    job_id = await bob.job(project_id=project_id)
    await bob.post(f"/v1/jobs/{job_id}/cancel")
    for person in (ada, bob):
        names = ("action", "account_id", "actor_account_id", "acting_as")
        assert [shown(entry, *names) for entry in await entries(person)] == [
            ("cancel_job", ada.account_id, bob.account_id, "member"),
            ("submit_job", ada.account_id, bob.account_id, "member"),
        ]


async def test_a_flood_of_unknown_keys_is_one_entry_and_no_transaction_each(
    site: Site, admin: Person
) -> None:
    async with site.client({"Authorization": "Bearer bl_unknown"}) as client:
        for path in ("/v1/jobs", "/v1/nodes", "/v1/account"):
            assert (await client.get(path)).status_code == 401
    assert site.rows(tables.AuditRow) == []
    site.app.state.refusals.write()
    site.app.state.refusals.write()
    (entry,) = await entries(admin)
    names = ("account_id", "action", "outcome", "count", "key_id", "address")
    assert shown(entry, *names) == (
        INSTALLATION, "authenticate", "unauthorized", 3, None, "127.0.0.1"
    )  # fmt: skip


async def test_an_account_learns_that_its_key_was_refused(
    site: Site, ada: Person, bob: Person
) -> None:
    past = datetime.now(UTC) - timedelta(seconds=1)
    expired, revoked = ada.with_key(expires_at=past), ada.with_key(revoked_at=past)
    reader = ada.with_key(["jobs:read"])
    for _ in range(2):
        await expired.get("/v1/jobs")
        await revoked.get("/v1/jobs")
        await reader.post("/v1/jobs", JOB)
    await reader.get("/v1/jobs", headers={"X-Baseload-Account": bob.account_id})
    site.app.state.refusals.write()
    found = {shown(entry, "key_id", "action", "outcome", "count") for entry in await entries(ada)}
    keys = {key.secret_sha256: key.id for key in site.rows(tables.ApiKey)}
    ids = [keys[hash_of(person.secret)] for person in (expired, revoked, reader)]
    assert found == {
        (ids[0], "authenticate", "unauthorized", 2),
        (ids[1], "authenticate", "unauthorized", 2),
        (ids[2], "submit_job", "forbidden", 2),
        (ids[2], "authenticate", "forbidden", 1),
    }
    assert await entries(bob) == []


async def test_refusals_of_too_many_kinds_are_counted_together(site: Site, admin: Person) -> None:
    for number in range(MAX_REFUSALS + 5):
        site.app.state.refusals._count(_refusal(f"10.0.0.{number}"), datetime.now(UTC), 1)
    site.app.state.refusals.write()
    rows = site.rows(tables.AuditRow)
    assert len(rows) == MAX_REFUSALS + 1
    assert [row.count for row in rows if row.action == "others"] == [5]


async def test_refusals_wait_while_the_database_does_not_answer(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals: Refusals = site.app.state.refusals
    refusals._count(_refusal("10.0.0.1"), datetime.now(UTC), 2)
    with monkeypatch.context() as away:
        away.setattr("api.audit_notes.database", _away)
        refusals.write()
    refusals.write()
    assert [row.count for row in site.rows(tables.AuditRow)] == [2]


async def test_a_key_that_is_tried_where_none_is_needed_is_in_the_entries(
    site: Site, admin: Person
) -> None:
    away = {"Authorization": "Bearer bl_unknown", "X-Forwarded-For": "192.0.2.7"}
    async with site.client(away) as client:
        await client.get("/readyz")
    site.app.state.refusals.write()
    assert [shown(entry, "action", "outcome") for entry in await entries(admin)] == [
        ("authenticate", "unauthorized")
    ]


async def test_reads_by_others_than_owner_and_creator_are_in_the_owners_entries(
    site: Site, ada: Person, bob: Person, admin: Person
) -> None:
    project_id = share(site, ada, bob)
    of_ada = await ada.job(project_id=project_id)
    of_bob = await bob.job(project_id=project_id)
    for_ada = {"X-Baseload-Account": ada.account_id}
    before = len(await entries(ada))
    for _ in range(3):
        for job_id in (of_ada, of_bob):
            await ada.get(f"/v1/jobs/{job_id}/logs")
            await bob.get(f"/v1/jobs/{job_id}/logs")
            await bob.get(f"/v1/jobs/{job_id}/output")
    await admin.get(f"/v1/jobs/{of_ada}/logs", headers=for_ada)
    await admin.get(f"/v1/projects/{project_id}/secrets", headers=for_ada)
    await ada.get(f"/v1/projects/{project_id}/secrets")
    found = (await entries(ada))[:-before]
    assert [shown(entry, "action", "resource_id", "acting_as") for entry in found] == [
        ("list_project_secrets", project_id, "administrator"),
        ("get_job_logs", of_ada, "administrator"),
        ("get_job_output", of_ada, "member"),
        ("get_job_logs", of_ada, "member"),
    ]
    assert {entry["actor_account_id"] for entry in found} == {bob.account_id, admin.account_id}


async def test_a_read_that_cannot_be_noted_is_not_answered(
    site: Site, ada: Person, admin: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await ada.job()
    path, for_ada = f"/v1/jobs/{job_id}/logs", {"X-Baseload-Account": ada.account_id}
    with monkeypatch.context() as away:
        away.setattr("api.audit_notes.database", _away)
        assert (await admin.get(path, headers=for_ada)).status_code == 503
    assert (await admin.get(path, headers=for_ada)).status_code == 200
    assert (await entries(ada))[0]["action"] == "get_job_logs"


async def test_a_read_is_noted_again_a_minute_later(site: Site, ada: Person, admin: Person) -> None:
    now = 0.0
    site.app.state.reads = Reads(clock=lambda: now)
    job_id = await ada.job()
    for _ in range(2):
        for _ in range(2):
            headers = {"X-Baseload-Account": ada.account_id}
            await admin.get(f"/v1/jobs/{job_id}/logs", headers=headers)
        now += 60.0
    actions = [entry["action"] for entry in await entries(ada)]
    assert actions == ["get_job_logs", "get_job_logs", "submit_job"]


async def test_an_administrator_verifies_all_chains(site: Site, ada: Person, admin: Person) -> None:
    job_id = await ada.job()
    await ada.post(f"/v1/jobs/{job_id}/cancel")
    found = (await admin.get("/v1/audit/verification")).json()
    assert shown(found, "intact", "chains", "entries", "broken") == (True, 1, 2, [])
    with site.database.connection() as connection:
        connection.execute(text("DROP TRIGGER audit_refuse_update"))
        connection.execute(text("UPDATE audit SET resource_id = 'job-0' WHERE number = 1"))
    (oldest,) = (row for row in site.rows(tables.AuditRow) if row.number == 1)
    found = (await admin.get("/v1/audit/verification")).json()
    assert found["intact"] is False
    assert found["broken"] == [
        {
            "account_id": ada.account_id,
            "number": 1,
            "entry_id": oldest.id,
            "reason": "is not as it was written",
        }
    ]


def share(site: Site, owner: Person, member: Person) -> str:
    """A project of the owner, in which the member may do everything with jobs."""
    now = datetime.now(UTC)
    project = tables.Project(
        id="prj-shared", account_id=owner.account_id, name="s", created_at=now, updated_at=now
    )
    site.write(project)
    site.write(
        tables.ProjectMember(
            project_id=project.id,
            user_id=member.user_id,
            permissions={"job": "all"},
            created_at=now,
        )
    )
    return project.id


def _refusal(address: str) -> Refusal:
    return Refusal(INSTALLATION, "authenticate", "unauthorized", address=address)


def _away() -> Any:
    raise OperationalError("", {}, Exception("away"))
