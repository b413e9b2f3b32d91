"""What holds for every route: keys, accounts, idempotency, pages, problems. On both databases."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from activities.db import tables
from api.authorization import hash_of
from tests.api.http_server import JOB, Person, Site, host_key


@pytest.fixture(params=["sqlite", "postgresql"])
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _is_problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = response.json()
    assert problem["code"] == code
    assert problem["status"] == status
    return problem


# ── keys and accounts ───────────────────────────────────────────────────────────────────────────


async def test_without_a_good_key_nothing_is_answered(site: Site, ada: Person) -> None:
    past = datetime.now(UTC) - timedelta(seconds=1)
    keys = {
        "unknown": "bl_unknown",
        "expired": ada.with_key(expires_at=past).secret,
        "revoked": ada.with_key(revoked_at=past).secret,
    }
    async with site.client() as client:
        _is_problem(await client.get("/v1/jobs"), 401, "unauthorized")
        for secret in keys.values():
            headers = {"Authorization": f"Bearer {secret}"}
            refused = await client.get("/v1/jobs", headers=headers)
            _is_problem(refused, 401, "unauthorized")
            assert refused.headers["WWW-Authenticate"] == "Bearer"
            assert secret not in refused.text


async def test_what_is_someone_elses_is_not_there(ada: Person, bob: Person) -> None:
    node_id, job_id = await ada.node(await ada.region()), await ada.job()
    for path in (f"/v1/nodes/{node_id}", f"/v1/jobs/{job_id}", f"/v1/jobs/{job_id}/logs"):
        assert (await ada.get(path)).status_code == 200
        problem = _is_problem(await bob.get(path), 404, "not-found")
        assert problem["detail"].endswith("not found")
    _is_problem(await bob.call("DELETE", f"/v1/jobs/{job_id}"), 404, "not-found")
    assert (await bob.get("/v1/jobs")).json() == {"items": [], "next": None}


@pytest.mark.parametrize(
    ("scopes", "reads_jobs", "writes_jobs", "reads_nodes"),
    [
        (["*"], True, True, True),
        (["read"], True, False, True),
        (["jobs:read"], True, False, False),
        (["jobs:write"], True, True, False),
        (["nodes:write"], False, False, True),
    ],
)
async def test_a_key_does_what_its_scopes_allow(
    ada: Person, scopes: list[str], reads_jobs: bool, writes_jobs: bool, reads_nodes: bool
) -> None:
    key = ada.with_key(scopes)
    answers = [
        await key.get("/v1/jobs"),
        await key.post("/v1/jobs", JOB),
        await key.get("/v1/nodes"),
    ]
    for answer, allowed in zip(answers, (reads_jobs, writes_jobs, reads_nodes), strict=True):
        if allowed:
            assert answer.is_success
        else:
            _is_problem(answer, 403, "forbidden")


async def test_a_key_is_shown_once_kept_hashed_and_gives_no_more_than_it_has(
    site: Site, ada: Person
) -> None:
    made = await ada.made("/v1/api-keys", {"name": "ci", "scopes": ["jobs:read"]})
    assert made["secret"].startswith("bl_")
    (row,) = [row for row in site.rows(tables.ApiKey) if row.id == made["id"]]
    assert row.secret_sha256 == hash_of(made["secret"])
    assert made["secret"] not in (await ada.get("/v1/api-keys")).text
    maker = ada.with_key(["api-keys:write"])
    _is_problem(await maker.post("/v1/api-keys", {"name": "x", "scopes": ["*"]}), 403, "forbidden")
    wrong = await ada.post("/v1/api-keys", {"name": "x", "scopes": ["root"]})
    assert _is_problem(wrong, 422, "invalid-request")["errors"][0]["field"] == "scopes.0"
    past = await ada.post("/v1/api-keys", {"name": "x", "expires_at": "2020-01-01T00:00:00Z"})
    assert _is_problem(past, 422, "invalid-request")["errors"][0]["field"] == "expires_at"


async def test_a_key_made_under_an_idempotency_key_is_the_same_and_not_kept_in_plain(
    site: Site, ada: Person
) -> None:
    headers = {"Idempotency-Key": "once"}
    first = (await ada.post("/v1/api-keys", {"name": "ci"}, headers=headers)).json()
    again = (await ada.post("/v1/api-keys", {"name": "ci"}, headers=headers)).json()
    assert again == first
    (kept,) = site.rows(tables.IdempotencyKey)
    assert first["secret"] not in str(kept.body)


async def test_a_revoked_key_opens_nothing_any_more(site: Site, ada: Person) -> None:
    made = await ada.made("/v1/api-keys", {"name": "ci"})
    headers = {"Authorization": f"Bearer {made['secret']}"}
    async with site.client(headers) as client:
        assert (await client.get("/v1/account")).status_code == 200
        assert (await ada.call("DELETE", f"/v1/api-keys/{made['id']}")).status_code == 200
        _is_problem(await client.get("/v1/account"), 401, "unauthorized")


async def test_an_administrator_acts_for_an_account_and_nobody_else_does(
    ada: Person, bob: Person, admin: Person
) -> None:
    for_ada = {"X-Baseload-Account": ada.account_id}
    assert (await admin.get("/v1/account", headers=for_ada)).json()["id"] == ada.account_id
    made = await admin.post("/v1/jobs", JOB, headers=for_ada)
    assert made.json()["account_id"] == ada.account_id
    _is_problem(await bob.get("/v1/account", headers=for_ada), 403, "forbidden")
    unknown = {"X-Baseload-Account": "acc-none"}
    _is_problem(await admin.get("/v1/account", headers=unknown), 404, "not-found")
    key = await admin.post("/v1/api-keys", {"name": "first"}, headers=for_ada)
    assert key.json()["user_id"] == ada.user_id


async def test_accounts_are_for_administrators(ada: Person, admin: Person) -> None:
    _is_problem(await ada.get("/v1/accounts"), 403, "forbidden")
    body = {"name": "acme", "owner_email": "Owner@Acme.test"}
    acme = await admin.made("/v1/accounts", body)
    assert acme["plan"] == "individual"
    _is_problem(await admin.post("/v1/accounts", body), 409, "conflict")
    changed = await admin.call("PATCH", f"/v1/accounts/{acme['id']}", json={"plan": "team"})
    assert changed.json()["plan"] == "team"
    paid = {"billing_account_id": admin.account_id}
    changed = await admin.call("PATCH", f"/v1/accounts/{acme['id']}", json=paid)
    assert changed.json()["billing_account_id"] == admin.account_id
    loop = await admin.call("PATCH", f"/v1/accounts/{admin.account_id}", json=paid)
    assert _is_problem(loop, 422, "invalid-request")["errors"][0]["field"] == "billing_account_id"


# ── idempotency ─────────────────────────────────────────────────────────────────────────────────


async def test_fifty_sends_of_one_submission_are_one_job(site: Site, ada: Person) -> None:
    headers = {"Idempotency-Key": "digits-1"}
    answers = await asyncio.gather(*(ada.post("/v1/jobs", JOB, headers=headers) for _ in range(50)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.text for answer in answers}) == 1
    (job,) = site.rows(tables.Job)
    assert site.asked_of(job.id) == [("start", None)]
    assert sum("Idempotent-Replayed" in answer.headers for answer in answers) == 49


async def test_the_same_key_with_another_body_is_refused(site: Site, ada: Person) -> None:
    headers = {"Idempotency-Key": "digits-1"}
    await ada.post("/v1/jobs", JOB, headers=headers)
    other = await ada.post("/v1/jobs", JOB | {"name": "other"}, headers=headers)
    _is_problem(other, 409, "idempotency-conflict")
    elsewhere = await ada.post("/v1/providers", {"kind": "physical"}, headers=headers)
    _is_problem(elsewhere, 409, "idempotency-conflict")
    assert len(site.rows(tables.Job)) == 1


async def test_keys_of_two_accounts_are_two_keys(site: Site, ada: Person, bob: Person) -> None:
    headers = {"Idempotency-Key": "same"}
    for person in (ada, bob):
        assert (await person.post("/v1/jobs", JOB, headers=headers)).status_code == 202
    assert len(site.rows(tables.Job)) == 2


async def test_a_refused_request_does_not_use_up_its_key(ada: Person) -> None:
    headers = {"Idempotency-Key": "try"}
    assert (await ada.post("/v1/jobs", {}, headers=headers)).status_code == 422
    assert (await ada.post("/v1/jobs", JOB, headers=headers)).status_code == 202


async def test_of_many_who_add_one_machine_one_of_each_account_does(
    site: Site, ada: Person, bob: Person
) -> None:
    _, minion_id = host_key()
    places = {person.account_id: await person.region() for person in (ada, bob)}
    answers = await asyncio.gather(
        *(
            person.post(
                "/v1/nodes",
                {"region_id": places[person.account_id], "name": f"n{n}", "minion_id": minion_id},
            )
            for n in range(10)
            for person in (ada, bob)
        )
    )
    assert sorted(answer.status_code for answer in answers) == [202] * 2 + [409] * 18
    for person in (ada, bob):
        assert len(site.rows(tables.Node, account_id=person.account_id)) == 1


async def test_of_many_regions_of_one_name_one_is_made(site: Site, ada: Person) -> None:
    body = {"provider_id": await ada.provider(), "name": "home"}
    answers = await asyncio.gather(*(ada.post("/v1/regions", body) for _ in range(10)))
    assert sorted(answer.status_code for answer in answers) == [202] + [409] * 9
    assert len(site.rows(tables.Region)) == 1


async def test_of_many_accounts_of_one_name_one_is_made(site: Site, admin: Person) -> None:
    answers = await asyncio.gather(
        *(admin.post("/v1/accounts", {"name": "acme"}) for _ in range(10))
    )
    assert sorted(answer.status_code for answer in answers) == [201] + [409] * 9
    assert len(site.rows(tables.Account, name="acme")) == 1


# ── pages, audit, problems ──────────────────────────────────────────────────────────────────────


async def test_pages_are_newest_first_and_hold_everything_once(ada: Person) -> None:
    made = [await ada.job(name=f"job {number}") for number in range(7)]
    seen, cursor = [], ""
    while True:
        body = (await ada.get(f"/v1/jobs?limit=3{cursor}")).json()
        assert len(body["items"]) <= 3
        seen += [item["id"] for item in body["items"]]
        if body["next"] is None:
            break
        cursor = f"&after={body['next']}"
        await ada.job(name="made meanwhile")
    assert seen == list(reversed(made))


@pytest.mark.parametrize("query", ["limit=0", "limit=501", "limit=x", "after=%20", "after=%FF"])
async def test_a_page_that_cannot_be_is_refused(ada: Person, query: str) -> None:
    for path in ("/v1/jobs", "/v1/events"):
        problem = _is_problem(await ada.get(f"{path}?{query}"), 422, "invalid-request")
        assert problem["errors"][0]["field"] == query.partition("=")[0]


async def test_a_cursor_of_another_list_is_refused(ada: Person) -> None:
    for _ in range(2):
        await ada.job()
    cursor = (await ada.get("/v1/jobs?limit=1")).json()["next"]
    _is_problem(await ada.get(f"/v1/events?after={cursor}"), 422, "invalid-request")


async def test_every_change_leaves_an_audit_entry(ada: Person) -> None:
    job_id = await ada.job()
    await ada.post(f"/v1/jobs/{job_id}/cancel")
    await ada.post("/v1/jobs", {})
    entries = (await ada.get("/v1/audit")).json()["items"]
    assert [(entry["action"], entry["resource_id"]) for entry in entries] == [
        ("cancel_job", job_id),
        ("submit_job", job_id),
    ]


async def test_a_body_that_is_too_large_is_refused_with_the_limit(ada: Person) -> None:
    large = b'{"name": "' + b"x" * 1024**2 + b'"}'

    async def chunks() -> Any:
        for start in range(0, len(large), 65_536):
            yield large[start : start + 65_536]

    for content in (large, chunks()):
        response = await ada.call("POST", "/v1/jobs", content=content)
        problem = _is_problem(response, 413, "too-large")
        assert problem["errors"][0]["rule"] == "is at most 1048576 bytes"


async def test_what_is_not_there_or_not_json_is_a_problem_too(site: Site, ada: Person) -> None:
    _is_problem(await ada.get("/v1/nothing"), 404, "not-found")
    _is_problem(await ada.call("PUT", "/v1/jobs"), 405, "method-not-allowed")
    headers = {"Content-Type": "application/json"}
    broken = await ada.call("POST", "/v1/jobs", content=b"{", headers=headers)
    _is_problem(broken, 400, "malformed-request")


async def test_a_failure_of_ours_says_nothing_of_our_inside(
    site: Site, ada: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("password=hunter2")

    monkeypatch.setattr("api.services.job_submissions.job_response", fail)
    response = await ada.post("/v1/jobs", JOB)
    _is_problem(response, 500, "internal-error")
    assert "hunter2" not in response.text
    assert site.rows(tables.Job) == []


async def test_health_tells_whether_database_and_temporal_answer(site: Site) -> None:
    async with site.client() as client:
        assert (await client.get("/healthz")).json() == {"status": "ok"}
        assert (await client.get("/readyz")).json()["temporal"] == "ok"
        assert (await client.get("/docs")).status_code == 200
        assert "/v1/jobs" in (await client.get("/openapi.json")).json()["paths"]
        site.temporal_is_up = False
        down = await client.get("/readyz")
        assert down.status_code == 503
        assert down.json()["database"] == "ok"
        assert "does not answer" in down.json()["temporal"]


async def test_metrics_count_requests_by_route_and_resources_by_status(
    site: Site, ada: Person
) -> None:
    job_id = await ada.job()
    await ada.get(f"/v1/jobs/{job_id}")
    async with site.client() as client:
        text = (await client.get("/metrics")).text
    assert 'route="/v1/jobs/{job_id}",status="200"' in text
    assert 'baseload_jobs{status="new"} 1.0' in text
    assert job_id not in text


async def test_an_audit_entry_names_what_has_no_id_as_well(ada: Person) -> None:
    path = f"/v1/projects/{ada.project_id}/secrets"
    stored = await ada.made(path, {"name": "token", "value": "hidden"})
    await ada.call("DELETE", f"{path}/token")
    await ada.post("/v1/jobs/kill-all")
    entries = (await ada.get("/v1/audit")).json()["items"]
    assert [(entry["action"], entry["resource_id"]) for entry in entries] == [
        ("kill_all_jobs", ada.account_id),
        ("remove_project_secret", stored["reference"]),
        ("store_project_secret", stored["reference"]),
    ]
