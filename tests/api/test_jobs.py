"""Jobs over HTTP: what is submitted, what is refused and why, what is asked of the workflow."""

import sqlite3
from datetime import UTC, datetime
from typing import Any

import pytest

from activities.db import tables
from activities.db.ids import new_id
from activities.jobs.submissions import open_variables
from api.services import job_submissions
from tests.api.http_server import JOB, Person, Site
from workflows.rules.jobs.submission import read_submission


def _with(**changes: Any) -> dict[str, Any]:
    return JOB | changes


async def test_a_submitted_job_is_a_row_and_a_request_to_start(site: Site, ada: Person) -> None:
    response = await ada.post("/v1/jobs", JOB)
    assert response.status_code == 202
    job = response.json()
    assert job["workflow_id"] == f"job/{job['id']}"
    assert job["project_id"] == ada.project_id
    assert job["resources"]["gpus"] == "cpu"
    assert job["commands"] == [{"command": "python train.py"}]
    assert site.asked_of(job["id"]) == [("start", None)]
    assert (await ada.get(f"/v1/jobs/{job['id']}")).json() == job


async def test_an_array_is_all_of_its_jobs_in_one_change_however_often_it_is_sent(
    site: Site, ada: Person
) -> None:
    body = _with(array=[{"LR": 0.1}, {"LR": 0.01}])
    key = {"Idempotency-Key": "search"}
    answers = [await ada.post("/v1/jobs/arrays", body, headers=key) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert answers[0].json() == answers[1].json()
    made = answers[0].json()["jobs"]
    assert [each["name"] for each in made] == ["digits-0", "digits-1"]
    rows = {row.id: row for row in site.rows(tables.Job)}
    assert rows.keys() == {each["id"] for each in made}
    last = rows[made[1]["id"]]
    assert open_variables(last.id, last.sealed_variables) == {
        "LR": "0.01", "BASELOAD_ARRAY_INDEX": "1", "BASELOAD_ARRAY_SIZE": "2",
    }  # fmt: skip
    assert "0.01" not in str(last.spec)
    assert [site.asked_of(job_id) for job_id in rows] == [[("start", None)]] * 2


async def test_an_array_of_a_thousand_jobs_is_made_and_a_wrong_one_makes_none(
    site: Site, ada: Person
) -> None:
    wrong = _with(array=1000, code={"upload_id": "upl-none"})
    assert (await ada.post("/v1/jobs/arrays", wrong)).status_code == 422
    assert site.rows(tables.Job) == []
    made = (await ada.post("/v1/jobs/arrays", _with(array=1000))).json()
    assert [each["name"] for each in made["jobs"]] == [f"digits-{n}" for n in range(1000)]
    assert len(site.rows(tables.Job)) == 1000


async def test_an_array_has_a_route_of_its_own(ada: Person) -> None:
    for path, body in (("/v1/jobs", _with(array=2)), ("/v1/jobs/arrays", JOB)):
        refused = await ada.post(path, body)
        assert refused.status_code == 422
        assert [error["field"] for error in refused.json()["errors"]] == ["array"]


async def test_values_of_variables_are_sealed_in_the_row_and_masked_in_answers(
    site: Site, ada: Person
) -> None:
    job_id = await ada.job(environment={"variables": {"TOKEN": "hush-hush", "EPOCHS": 20}})
    (row,) = site.rows(tables.Job, id=job_id)
    assert "hush-hush" not in str(row.spec)
    assert b"hush-hush" not in row.sealed_variables
    assert open_variables(job_id, row.sealed_variables) == {"TOKEN": "hush-hush", "EPOCHS": "20"}
    shown = await ada.get(f"/v1/jobs/{job_id}")
    assert shown.json()["environment"]["variables"] == {"TOKEN": "********", "EPOCHS": "********"}


async def test_every_mistake_of_a_document_is_told_at_once(ada: Person) -> None:
    body = {
        "name": "",
        "type": "training",
        "colour": "red",
        "resources": {"gpus": "H1000:4", "disk_size_gb": 5, "cpu_count": "many"},
        "environment": {"python_packages": ["--index-url=x"]},
        "code": {"upload_id": "upl-none"},
        "placement": {"region_id": "reg-none", "providers": ["prv-none"]},
        "workers": [{"command": ""}],
    }
    response = await ada.post("/v1/jobs", body)
    assert response.status_code == 422
    assert response.json()["code"] == "invalid-request"
    told = {error["field"]: error for error in response.json()["errors"]}
    assert set(told) == {
        "name", "colour", "resources.gpus", "resources.disk_size_gb", "resources.cpu_count",
        "environment.python_packages.0", "code.upload_id", "placement.region_id",
        "placement.providers.0", "workers.0.command",
    }  # fmt: skip
    assert told["resources.disk_size_gb"]["value"] == 5
    assert "did you mean" in told["resources.gpus"]["rule"]


@pytest.mark.parametrize("body", [[], "job", 3, None, {"workers": 3}, {"environment": []}])
async def test_what_is_no_job_at_all_is_refused_with_its_mistakes(ada: Person, body: Any) -> None:
    response = await ada.post("/v1/jobs", body)
    assert response.status_code == 422
    assert response.json()["errors"]


async def test_a_gpu_type_that_only_a_node_knows_is_accepted(site: Site, ada: Person) -> None:
    await ada.node(await ada.region(), gpu_type="Quantum 9000", gpu_count=1)
    await _grant(site, ada)
    body = _with(resources={"gpus": "Quantum 9000:1"})
    assert (await ada.post("/v1/jobs", body)).status_code == 202


async def test_code_must_be_an_upload_of_the_same_account(ada: Person, bob: Person) -> None:
    upload = (await bob.upload()).json()
    body = _with(code={"upload_id": upload["id"]})
    response = await ada.post("/v1/jobs", body)
    assert [error["field"] for error in response.json()["errors"]] == ["code.upload_id"]
    assert (await bob.post("/v1/jobs", body)).status_code == 202


async def test_a_job_with_apt_packages_is_taken_in_a_region_that_keeps_none(
    ada: Person, bob: Person
) -> None:
    region_id = await ada.region(public=True)
    changes = {
        "environment": {"apt_packages": ["ffmpeg"]},
        "placement": {"region_id": region_id},
    }
    for person in (bob, ada):
        job_id = await person.job(**changes)
        assert (await person.get(f"/v1/jobs/{job_id}")).json()["status"] == "new"


async def test_a_job_may_name_secrets_of_its_own_project_alone(
    site: Site, ada: Person, bob: Person
) -> None:
    stored = await ada.made(
        f"/v1/projects/{ada.project_id}/secrets", {"name": "hf_token", "value": "hf-secret"}
    )
    assert "value" not in stored
    (row,) = site.rows(tables.StoredSecret)
    assert b"hf-secret" not in row.sealed
    body = _with(environment={"secrets": {"HF_TOKEN": stored["reference"]}})
    assert (await ada.post("/v1/jobs", body)).status_code == 202
    for reference in (stored["reference"], "store://providers/gcp/key"):
        refused = await bob.post("/v1/jobs", _with(environment={"secrets": {"X": reference}}))
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["field"].startswith("environment.secrets")
    missing = stored["reference"].replace("hf_token", "other")
    refused = await ada.post("/v1/jobs", _with(environment={"secrets": {"X": missing}}))
    assert "not found" in refused.json()["errors"][0]["rule"]


async def test_what_costs_needs_a_positive_balance(site: Site, ada: Person) -> None:
    on_gpu = _with(resources={"gpus": "A100:1"})
    refused = await ada.post("/v1/jobs", on_gpu)
    assert refused.status_code == 402
    assert refused.json()["code"] == "insufficient-credits"
    assert "has 0 credits left after device fees" in refused.json()["detail"]
    assert (await ada.post("/v1/jobs", JOB)).status_code == 202, "CPUs are free here"
    await _grant(site, ada)
    assert (await ada.post("/v1/jobs", on_gpu)).status_code == 202


@pytest.mark.parametrize(
    ("job_type", "status", "path", "signal"),
    [
        ("training", "running", "cancel", "cancel"),
        ("training", "waiting_for_resources", "cancel", "cancel"),
        ("training", "finished", "cancel", None),
        ("training", "running", "stop", None),
        ("notebook", "running", "stop", "stop"),
        ("notebook", "failed", "stop", None),
        ("notebook", "stopped", "start", "start_again"),
        ("notebook", "stopped", "stop", "stop"),
        ("notebook", "running", "start", None),
        ("notebook", "stopped", "cancel", "cancel"),
    ],
)
async def test_what_a_person_asks_of_a_job_fits_its_state(
    ada: Person, job_type: str, status: str, path: str, signal: str | None
) -> None:
    service = {"port": 8888} if job_type == "notebook" else {}
    job_id = await ada.job(type=job_type, **service)
    ada.site.set(tables.Job, job_id, status=status)
    response = await ada.post(f"/v1/jobs/{job_id}/{path}")
    asked = [verb for verb, _ in ada.site.asked_of(job_id)]
    if signal is None:
        assert response.json()["code"] == "conflict"
        assert asked == ["start"]
    else:
        assert response.status_code == 202, response.text
        assert asked == ["start", signal]


@pytest.mark.parametrize(("query", "discards"), [("", False), ("?discard=true", True)])
async def test_only_who_asks_for_it_discards_the_output(
    ada: Person, query: str, discards: bool
) -> None:
    job_id = await ada.job()
    assert (await ada.post(f"/v1/jobs/{job_id}/cancel{query}")).status_code == 202
    verb, asked = ada.site.asked_of(job_id)[-1]
    assert (verb, asked["discards"]) == ("cancel", discards)


async def test_a_job_is_removed_once_it_has_ended(site: Site, ada: Person) -> None:
    job_id = await ada.job()
    site.set(tables.Job, job_id, status="running")
    refused = await ada.call("DELETE", f"/v1/jobs/{job_id}")
    assert refused.status_code == 409
    site.set(tables.Job, job_id, status="finished")
    assert (await ada.call("DELETE", f"/v1/jobs/{job_id}")).status_code == 202
    assert site.asked_of(job_id)[-1] == ("start", {"removal": True})


async def test_kill_all_ends_every_open_job_of_the_account_alone(
    site: Site, ada: Person, bob: Person
) -> None:
    running, done, theirs = await ada.job(), await ada.job(), await bob.job()
    site.set(tables.Job, running, status="running")
    site.set(tables.Job, done, status="finished")
    response = await ada.post("/v1/jobs/kill-all")
    assert response.json() == {"job_ids": [running]}
    assert [site.asked_of(job)[-1][0] for job in (running, done, theirs)] == [
        "cancel", "start", "start",
    ]  # fmt: skip


async def test_a_job_shows_its_workers_as_they_were_recorded(site: Site, ada: Person) -> None:
    job_id = await ada.job()
    address = {"node_id": "nod-1", "region_id": "reg-1", "host": "h", "port": 22, "minion_id": "x"}
    worker = {
        "index": 0,
        "status": "exited",
        "assignment": {"worker": 0, "node": address, "gpu_uuids": ["GPU-1"]},
        "run_id": f"{job_id}-0-1",
        "exit": {"exit_code": 3, "signal": None, "reason": "exited"},
        "elapsed_s": 12.5,
        "started_at": "2026-03-01T12:00:00Z",
        "finished_at": None,
    }
    site.set(tables.Job, job_id, workers=[worker], status="failed", status_reason="exit code 3")
    job = (await ada.get(f"/v1/jobs/{job_id}")).json()
    assert (job["status"], job["status_reason"]) == ("failed", "exit code 3")
    assert job["workers"] == [
        {
            "index": 0, "status": "exited", "node_id": "nod-1", "node_name": None,
            "address": None, "lease_id": None,
            "gpu_uuids": ["GPU-1"], "exit_code": 3, "signal": None, "reason": "exited",
            "elapsed_s": 12.5, "started_at": "2026-03-01T12:00:00Z", "finished_at": None,
        }
    ]  # fmt: skip


async def test_placement_tells_why_a_job_waits_and_where_it_went(site: Site, ada: Person) -> None:
    node_id, job_id = await ada.node(await ada.region()), await ada.job()
    refusal = {
        "offer_id": node_id, "region_id": None, "code": "cpu", "detail": "asked 8, 2 free",
        "ever": True,
    }  # fmt: skip
    site.set(tables.Job, job_id, placement_refusals=[refusal])
    found = (await ada.get(f"/v1/jobs/{job_id}/placement")).json()
    assert found["refusals"] == [refusal]
    assert found["assignments"] == []
    (job,) = site.rows(tables.Job, id=job_id)
    site.write(
        tables.Allocation(
            id=new_id("alc"), job_id=job_id, worker=0, attempt=1, node_id=node_id, cpu_count=1,
            memory_bytes=5, gpu_indices=[0, 1], created_at=job.created_at,
        )
    )  # fmt: skip
    (place,) = (await ada.get(f"/v1/jobs/{job_id}/placement")).json()["assignments"]
    assert (place["node_id"], place["node_name"], place["gpu_indices"]) == (node_id, "n1", [0, 1])


async def test_offers_are_the_plan_without_the_job(site: Site, ada: Person, bob: Person) -> None:
    region_id = await ada.region()
    node_id = await ada.node(
        region_id,
        cpu_count=8,
        memory_bytes=2**34,
        hardware={"cpu_count": 8, "memory_bytes": 2**34, "free_disk_bytes": 10**12},
    )
    found = (await ada.get("/v1/offers?gpus=cpu&cpu_count=4")).json()
    assert [(o["rank"], o["node_id"], o["owned"]) for o in found["offers"]] == [(1, node_id, True)]
    none = (await ada.get("/v1/offers?gpus=cpu&cpu_count=16")).json()
    assert none["offers"] == []
    assert none["refusals"][0]["code"] == "cpu"
    assert (await bob.get("/v1/offers?gpus=cpu")).json()["offers"] == []
    wrong = await ada.get("/v1/offers?gpus=H1000:4&disk_size_gb=1")
    assert {error["field"] for error in wrong.json()["errors"]} == {"gpus", "disk_size_gb"}


async def test_offers_are_those_of_the_projects_owner(site: Site, ada: Person, bob: Person) -> None:
    node_id = await ada.node(
        await ada.region(), cpu_count=8, memory_bytes=2**34,
        hardware={"cpu_count": 8, "memory_bytes": 2**34, "free_disk_bytes": 10**12},
    )  # fmt: skip
    project = await ada.made("/v1/projects", {"name": "shared"})
    path = f"/v1/offers?gpus=cpu&project_id={project['id']}"
    assert (await bob.get(path)).status_code == 404
    member = tables.ProjectMember(
        project_id=project["id"], user_id=bob.user_id, permissions={"job": "read"},
        created_at=site.rows(tables.Project)[0].created_at,
    )  # fmt: skip
    site.write(member)
    assert (await bob.get(path)).status_code == 403
    with site.database.write() as session:
        session.merge(member).permissions = {"job": "all"}
    found = (await bob.get(path)).json()["offers"]
    assert [(each["node_id"], each["owned"]) for each in found] == [(node_id, True)]
    assert (await bob.get("/v1/offers?gpus=cpu")).json()["offers"] == []


@pytest.mark.parametrize(
    ("gpus", "codes", "label"),
    [
        ("A100:1", ["gpu-count", "price"], "waiting for resources: GPUs"),
        ("A100:1", ["price"], "waiting for resources"),
        ("A100:1", [], "waiting for resources"),
        (None, ["no-offers"], "waiting for resources"),
    ],
)
async def test_a_job_says_when_it_waits_for_gpus(
    site: Site, ada: Person, gpus: str | None, codes: list[str], label: str
) -> None:
    job_id = await ada.job()
    (row,) = site.rows(tables.Job, id=job_id)
    resources = {"gpus": gpus} if gpus else {"cpu_count": 1}
    refusals = [
        {"offer_id": "n", "region_id": None, "code": code, "detail": "why", "ever": True}
        for code in codes
    ]
    site.set(
        tables.Job, job_id, status="waiting_for_resources", placement_refusals=refusals,
        spec={**row.spec, "resources": resources},
    )  # fmt: skip
    job = (await ada.get(f"/v1/jobs/{job_id}")).json()
    assert (job["status"], job["status_label"]) == ("waiting_for_resources", label)
    site.set(tables.Job, job_id, status="running")
    assert (await ada.get(f"/v1/jobs/{job_id}")).json()["status_label"] == "running"


async def test_a_member_of_a_project_sees_its_jobs_and_creates_only_when_allowed(
    site: Site, ada: Person, bob: Person
) -> None:
    project = await ada.made("/v1/projects", {"name": "shared"})
    job_id = await ada.job(project_id=project["id"])
    assert (await bob.get(f"/v1/jobs/{job_id}")).status_code == 404
    member = tables.ProjectMember(
        project_id=project["id"], user_id=bob.user_id, permissions={"job": "read"},
        created_at=site.rows(tables.Job)[0].created_at,
    )  # fmt: skip
    site.write(member)
    assert (await bob.get(f"/v1/jobs/{job_id}")).status_code == 200
    assert [j["id"] for j in (await bob.get("/v1/jobs")).json()["items"]] == [job_id]
    body = _with(project_id=project["id"])
    assert (await bob.post("/v1/jobs", body)).status_code == 403
    assert (await bob.post(f"/v1/jobs/{job_id}/cancel")).status_code == 403
    with site.database.write() as session:
        session.merge(member).permissions = {"job": "all"}
    made = await bob.made("/v1/jobs", body)
    assert made["account_id"] == ada.account_id, "the project's owner pays"


async def _grant(site: Site, person: Person, amount: int = 1_000_000) -> None:
    admin = site.account(new_id("admin"), administrator=True)
    path = f"/v1/accounts/{person.account_id}/credits"
    await admin.made(path, {"amount_microcredits": amount})


async def test_a_document_is_checked_while_others_write(
    site: Site, ada: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(document: Any, known: Any) -> Any:
        with sqlite3.connect(site.database.url.removeprefix("sqlite:///"), timeout=0) as other:
            other.execute("BEGIN IMMEDIATE")
            other.execute("UPDATE accounts SET name = 'written meanwhile'")
        return read_submission(document, known)

    monkeypatch.setattr(job_submissions, "read_submission", read)
    body = _with(environment={"python_packages": ["a" + " " * 198 + "!"] * 5000})
    # With this header the transaction begins with a read, and locks out others from there on.
    refused = await ada.post("/v1/jobs", body, headers={"Idempotency-Key": "1"})
    assert refused.status_code == 422, refused.text
    fields = [error["field"] for error in refused.json()["errors"]]
    assert fields == ["environment.python_packages"]
    assert (await ada.get("/v1/account")).json()["name"] == "written meanwhile"


async def test_a_members_job_uses_what_the_projects_account_may_use(
    site: Site, ada: Person, bob: Person
) -> None:
    site.write(
        tables.ProjectMember(
            project_id=ada.project_id,
            user_id=bob.user_id,
            permissions={"job": "all"},
            created_at=datetime.now(UTC),
        )
    )
    places = {}
    for person in (ada, bob):
        region_id = await person.region()
        (region,) = site.rows(tables.Region, id=region_id)
        places[person.account_id] = {"region_id": region_id, "providers": [region.provider_id]}
    of_ada = _with(project_id=ada.project_id, placement=places[ada.account_id])
    job = await bob.made("/v1/jobs", of_ada)
    assert job["account_id"] == ada.account_id
    assert job["creator_user_id"] == bob.user_id
    assert job["creator_account_id"] == bob.account_id
    refused = await bob.post("/v1/jobs", of_ada | {"placement": places[bob.account_id]})
    fields = sorted(error["field"] for error in refused.json()["errors"])
    assert fields == ["placement.providers.0", "placement.region_id"]
    assert (await bob.post("/v1/jobs", _with(placement=places[bob.account_id]))).status_code == 202
    refused = await bob.post("/v1/jobs", _with(placement=places[ada.account_id]))
    assert refused.status_code == 422


async def test_a_preview_says_where_a_job_would_go_and_writes_nothing(
    site: Site, ada: Person
) -> None:
    code = {"upload_id": "upl-not-sent-yet"}
    nowhere = (await ada.post("/v1/jobs/preview", _with(code=code))).json()
    assert (nowhere["placeable"], nowhere["offers"]) == (False, [])
    assert [each["code"] for each in nowhere["refusals"]] == ["no-offers"]
    assert (nowhere["worker_count"], nowhere["project_id"]) == (1, ada.project_id)
    assert (site.rows(tables.Job), site.rows(tables.OutboxRow)) == ([], [])
    assert (await ada.get("/v1/audit")).json()["items"] == []


async def test_a_preview_refuses_what_the_submission_would_refuse(ada: Person) -> None:
    wrong = _with(name="", placement={"region_id": "reg-none"})
    previewed = await ada.post("/v1/jobs/preview", wrong)
    submitted = await ada.post("/v1/jobs", wrong)
    assert (previewed.status_code, previewed.json()) == (422, submitted.json())
    reader = ada.with_key(["jobs:read"])
    assert (await reader.post("/v1/jobs/preview", JOB)).status_code == 403


async def test_a_resubmission_is_a_new_job_with_the_same_submission(
    site: Site, ada: Person, bob: Person
) -> None:
    upload = (await ada.upload()).json()
    asked = _with(
        code={"upload_id": upload["id"]}, environment={"variables": {"TOKEN": "hush-hush"}}
    )
    first = await ada.made("/v1/jobs", asked)
    site.set(tables.Job, first["id"], status="failed")
    again = await ada.made(f"/v1/jobs/{first['id']}/resubmit", None)
    assert again["id"] != first["id"]
    earlier, later = (site.rows(tables.Job, id=each["id"])[0] for each in (first, again))
    assert later.spec == earlier.spec | {"project_id": ada.project_id}
    assert open_variables(later.id, later.sealed_variables) == {"TOKEN": "hush-hush"}
    assert site.asked_of(again["id"]) == [("start", None)]
    assert (await bob.post(f"/v1/jobs/{first['id']}/resubmit")).status_code == 404
    site.set(tables.Upload, upload["id"], removed_at=datetime.now(UTC))
    refused = await ada.post(f"/v1/jobs/{first['id']}/resubmit")
    assert [each["field"] for each in refused.json()["errors"]] == ["code.upload_id"]


async def test_a_job_of_an_array_is_submitted_again_with_its_number(
    site: Site, ada: Person
) -> None:
    array = await ada.made("/v1/jobs/arrays", _with(array=[{"LR": "0.1"}, {"LR": "0.2"}]))
    again = await ada.made(f"/v1/jobs/{array['jobs'][1]['id']}/resubmit", None)
    assert again["name"] == "digits-1"
    (row,) = site.rows(tables.Job, id=again["id"])
    variables = open_variables(row.id, row.sealed_variables)
    assert variables == {"LR": "0.2", "BASELOAD_ARRAY_INDEX": "1", "BASELOAD_ARRAY_SIZE": "2"}


async def test_a_secret_is_named_alone_in_the_jobs_own_project(site: Site, ada: Person) -> None:
    path = f"/v1/projects/{ada.project_id}/secrets"
    stored = await ada.made(path, {"name": "hf_token", "value": "hidden"})
    job = await ada.made("/v1/jobs", _with(environment={"secrets": {"HF_TOKEN": "hf_token"}}))
    assert job["environment"]["secrets"] == {"HF_TOKEN": stored["reference"]}
    (row,) = site.rows(tables.Job, id=job["id"])
    assert row.spec["environment"]["secrets"] == {"HF_TOKEN": stored["reference"]}
    refused = await ada.post("/v1/jobs", _with(environment={"secrets": {"HF_TOKEN": "hf_oops"}}))
    (wrong,) = refused.json()["errors"]
    assert wrong["field"] == "environment.secrets.HF_TOKEN"
    assert "hf_oops" not in refused.text, "it may be the secret itself"
