"""How many resources one account may have: no account takes the room of others."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import text
from sqlmodel import SQLModel, col, select

from activities.accounts.limits import LIMITS, Limited
from activities.db import tables
from activities.db.session import Database
from activities.settings import Settings, settings
from tests.api.device_rows import edge_region, edge_things
from tests.api.federated_rows import join, story
from tests.api.http_server import JOB, Person, Site, host_key, tar_gz
from tests.api.test_datastores import region_with_node
from tests.api.test_deployments import credit
from workflows.contracts.statuses import JobStatus

MOST = 3
Setting = Callable[..., None]


@pytest.fixture
def set_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[Setting]:
    def change(**values: Any) -> None:
        for name, value in values.items():
            assert name in Settings.model_fields
            monkeypatch.setenv(f"BASELOAD_{name.upper()}", str(value))
        settings.cache_clear()

    yield change
    settings.cache_clear()


async def _job(person: Person, number: int) -> httpx.Response:
    return await person.post("/v1/jobs", JOB | {"name": f"j{number}"})


async def _key(person: Person, number: int) -> httpx.Response:
    return await person.post("/v1/api-keys", {"name": f"k{number}"})


async def _project(person: Person, number: int) -> httpx.Response:
    return await person.post("/v1/projects", {"name": f"p{number}"})


async def _user(person: Person, number: int) -> httpx.Response:
    return await person.post("/v1/users", {"email": f"u{number}@{person.account_id}.test"})


async def _invitation(person: Person, number: int) -> httpx.Response:
    return await person.post("/v1/invitations", {"email": f"i{number}@b.test", "role": "member"})


async def _secret(person: Person, number: int) -> httpx.Response:
    body = {"name": f"S{number}", "value": "v"}
    return await person.post(f"/v1/projects/{person.project_id}/secrets", body)


async def _upload(person: Person, number: int) -> httpx.Response:
    return await person.upload(tar_gz({"a": str(number).encode()}))


async def _dataset(person: Person, number: int) -> httpx.Response:
    return await person.post("/v1/datasets", {"name": f"d{number}", "source": {"type": "upload"}})


async def _join_token(person: Person, _: int) -> httpx.Response:
    regions = person.site.rows(tables.Region, account_id=person.account_id)
    region_id = regions[0].id if regions else await person.region()
    return await person.post("/v1/join-tokens", {"region_id": region_id})


async def _reservation(person: Person, number: int) -> httpx.Response:
    person.site.set(tables.Account, person.account_id, plan="team")
    regions = person.site.rows(tables.Region, account_id=person.account_id)
    region_id = regions[0].id if regions else await region_with_node(person.site, person)
    return await person.post(
        "/v1/reservations",
        {"region_id": region_id, "name": f"r{number}", "hostname": f"r{number}", "port": 8888},
    )


async def _boot_drive_request(person: Person, _: int) -> httpx.Response:
    regions = person.site.rows(tables.Region, account_id=person.account_id)
    region_id = regions[0].id if regions else await person.region()
    body = {"region_id": region_id, "count": 1, "ship_to": ["Ada", "London"]}
    return await person.post("/v1/boot-drive-requests", body)


async def _edge(person: Person) -> str:
    """The one region of a person, which takes devices."""
    regions = person.site.rows(tables.Region, account_id=person.account_id)
    return regions[0].id if regions else await edge_region(person.site, person)


async def _device(person: Person, number: int) -> httpx.Response:
    body = {"region_id": await _edge(person), "name": f"d{number}", "minion_id": host_key()[1]}
    return await person.post("/v1/devices", body)


async def _configuration(person: Person, number: int) -> httpx.Response:
    body = {"region_id": await _edge(person), "name": f"c{number}", "command": "serve"}
    return await person.post("/v1/device-configurations", body)


async def _deployment(person: Person, _: int) -> httpx.Response:
    if not person.site.rows(tables.DeviceDeployment, account_id=person.account_id):
        credit(person.site, person, 1)
        await edge_things(person, await _edge(person), "edge")
    (row,) = person.site.rows(tables.Device, account_id=person.account_id)
    return await person.post("/v1/device-deployments", {"device_ids": [row.id]})


async def _federated_job(person: Person, number: int) -> httpx.Response:
    site = person.site
    site.set(tables.Account, person.account_id, plan="enterprise")
    source = {"name": f"m{number}", "source": {"type": "upload"}}
    model_id = str((await person.made("/v1/models", source))["id"])
    site.set(tables.Model, model_id, status="ready")
    asked = {"name": f"f{number}", "type": "inference", "project_id": person.project_id}
    data = {"model": {"id": model_id}, "output": None}
    return await person.post("/v1/federated-jobs", JOB | asked | {"data": data})


Make = Callable[[Person, int], Awaitable[httpx.Response]]
MAKES: dict[str, tuple[Make, type[Any], int]] = {
    "account_most_open_jobs": (_job, tables.Job, 0),
    "account_most_api_keys": (_key, tables.ApiKey, 1),
    "account_most_projects": (_project, tables.Project, 1),
    "account_most_users": (_user, tables.User, 1),
    "account_most_invitations": (_invitation, tables.Invitation, 0),
    "account_most_secrets": (_secret, tables.StoredSecret, 0),
    "account_most_uploads": (_upload, tables.Upload, 0),
    "account_most_artifacts": (_dataset, tables.Dataset, 0),
    "account_most_reservations": (_reservation, tables.Reservation, 0),
    "account_most_boot_drive_requests": (_boot_drive_request, tables.BootDriveRequest, 0),
    "account_most_join_tokens": (_join_token, tables.JoinToken, 0),
    "account_most_devices": (_device, tables.Device, 0),
    "account_most_device_configurations": (_configuration, tables.DeviceConfiguration, 0),
    "account_most_open_deployments": (_deployment, tables.DeviceDeployment, 1),
    "project_most_open_federated_jobs": (_federated_job, tables.FederatedJob, 0),
}
"""By setting: what makes one more, its table, and how many an account has from its beginning."""


def test_every_limit_of_an_account_is_tried_here() -> None:
    assert {limit.setting for limit in LIMITS.values()} == set(MAKES)


@pytest.mark.parametrize("setting", MAKES)
async def test_an_account_has_at_most_so_many_and_is_told_what_was_found(
    site: Site, ada: Person, bob: Person, set_settings: Setting, setting: str
) -> None:
    make, table, had = MAKES[setting]
    set_settings(**{setting: MOST})
    answers = [await make(ada, number) for number in range(had, MOST + 1)]
    assert [answer.is_success for answer in answers[:-1]] == [True] * (MOST - had)
    refused = answers[-1].json()
    assert (refused["status"], refused["code"]) == (409, "limit-reached")
    holder_id = ada.project_id if setting.startswith("project_") else ada.account_id
    for part in (holder_id, f"found {MOST}", f"at most {MOST} (BASELOAD_{setting.upper()})"):
        assert part in refused["detail"]
    assert len(site.rows(table, account_id=ada.account_id)) == MOST
    assert (await make(bob, had)).is_success


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
@pytest.mark.parametrize(
    "setting",
    ["account_most_open_jobs", "account_most_projects", "project_most_open_federated_jobs"],
)
async def test_requests_at_once_make_no_more_than_one_after_another(
    site: Site, ada: Person, set_settings: Setting, setting: str
) -> None:
    make, table, _ = MAKES[setting]
    set_settings(**{setting: MOST})
    answers = await asyncio.gather(*(make(ada, number) for number in range(12)))
    assert {answer.is_success for answer in answers} == {True, False}
    assert len(site.rows(table, account_id=ada.account_id)) == MOST


async def test_a_limit_holds_for_administrators_unless_the_settings_say_otherwise(
    site: Site, admin: Person, set_settings: Setting
) -> None:
    set_settings(account_most_projects=1)
    assert (await _project(admin, 1)).json()["code"] == "limit-reached"
    set_settings(administrators_have_limits="false")
    assert (await _project(admin, 1)).status_code == 201


def test_a_job_is_open_until_its_status_is_final() -> None:
    [index] = [
        index
        for index in SQLModel.metadata.tables["jobs"].indexes
        if index.name == "jobs_open_by_account"
    ]
    condition = str(index.dialect_options["sqlite"]["where"])
    assert {each for each in JobStatus if f"'{each}'" in condition} == {
        each for each in JobStatus if each.is_final
    }
    [counted] = LIMITS[tables.Job].counted("acc-1", datetime.now(UTC))
    assert condition in str(counted)


async def test_a_job_that_has_ended_makes_room_and_a_stopped_one_does_not(
    site: Site, ada: Person, set_settings: Setting
) -> None:
    set_settings(account_most_open_jobs=1)
    job_id = await ada.job()
    for status, code in (("stopped", 409), ("running", 409), ("failed", 202)):
        site.set(tables.Job, job_id, status=status)
        assert (await _job(ada, 1)).status_code == code, status


async def test_a_job_in_a_shared_project_counts_for_the_account_of_the_project(
    site: Site, ada: Person, bob: Person, set_settings: Setting
) -> None:
    site.write(
        tables.ProjectMember(
            project_id=ada.project_id,
            user_id=bob.user_id,
            permissions={"job": "all"},
            created_at=datetime.now(UTC),
        )
    )
    set_settings(account_most_open_jobs=1)
    await bob.job()
    await bob.job(project_id=ada.project_id)
    refused = await bob.post("/v1/jobs", JOB | {"project_id": ada.project_id})
    assert refused.json()["code"] == "limit-reached"
    assert (await _job(ada, 1)).status_code == 409


async def test_the_open_federated_jobs_of_one_project_leave_room_in_another_one(
    site: Site, set_settings: Setting
) -> None:
    parties = await story(site)
    set_settings(project_most_open_federated_jobs=1)
    made = await parties.created()
    refused = (await parties.maker.post("/v1/federated-jobs", parties.document)).json()
    assert refused["code"] == "limit-reached"
    assert f"project {parties.project_id}: asked for 1 more open federated job" in refused["detail"]
    other = (await parties.clinic.made("/v1/projects", {"name": "other"}))["id"]
    join(site, parties.maker, other, {"federated": "all"})
    await parties.created(project_id=other)
    site.set(tables.FederatedJob, made["id"], status="settled")
    await parties.created()


async def test_revoked_and_expired_keys_and_bound_tokens_make_room(
    site: Site, ada: Person, set_settings: Setting
) -> None:
    set_settings(account_most_api_keys=2, account_most_join_tokens=1)
    made = (await _key(ada, 1)).json()
    assert (await _key(ada, 2)).status_code == 409
    assert (await ada.call("DELETE", f"/v1/api-keys/{made['id']}")).status_code == 200
    made = (await _key(ada, 2)).json()
    site.set(tables.ApiKey, made["id"], expires_at=datetime.now(UTC) - timedelta(seconds=1))
    assert (await _key(ada, 3)).status_code == 201
    made = (await _join_token(ada, 1)).json()
    assert (await _join_token(ada, 2)).status_code == 409
    site.set(tables.JoinToken, made["id"], minion_id="SHA256:x")
    assert (await _join_token(ada, 2)).status_code == 201


async def test_a_secret_that_replaces_another_is_taken_at_the_limit(
    site: Site, ada: Person, set_settings: Setting
) -> None:
    set_settings(account_most_secrets=1)
    assert (await _secret(ada, 1)).status_code == 201
    assert (await _secret(ada, 1)).status_code == 201
    assert (await _secret(ada, 2)).status_code == 409


@pytest.mark.parametrize("limited", LIMITS)
def test_what_an_account_has_is_counted_by_an_index(
    migrated: Database, limited: type[Limited]
) -> None:
    """The plan of SQLite, where no row but the account's own is looked at."""
    limit = LIMITS[limited]
    now = datetime.now(UTC)
    for counted in limit.counted("acc-1", now):
        words = str(
            select(col(limited.id if hasattr(limited, "id") else limited.name))
            .where(counted)
            .compile(migrated._read, compile_kwargs={"literal_binds": True})
        )
        with migrated.read() as session:
            plan = [
                row[3] for row in session.connection().execute(text(f"EXPLAIN QUERY PLAN {words}"))
            ]
        assert all("USING" in step and f"{limit.holder}_id=?" in step for step in plan), plan
        assert limited is not tables.Job or any("jobs_open_by_account" in step for step in plan)


async def test_uploads_at_once_are_as_many_as_the_settings_say(
    site: Site, ada: Person, set_settings: Setting
) -> None:
    set_settings(account_uploads_at_once=1)
    with site.app.state.receiving.counted(ada.account_id):
        refused = await _upload(ada, 1)
    assert refused.json()["code"] == "too-many-requests"
    assert (await _upload(ada, 1)).status_code == 201


async def test_a_reservation_that_is_removed_makes_room(
    site: Site, ada: Person, set_settings: Setting
) -> None:
    set_settings(account_most_reservations=1)
    made = (await _reservation(ada, 0)).json()
    assert (await _reservation(ada, 1)).json()["code"] == "limit-reached"
    assert (await ada.call("DELETE", f"/v1/reservations/{made['id']}")).status_code == 200
    assert (await _reservation(ada, 1)).status_code == 201
