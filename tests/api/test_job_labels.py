"""Labels of jobs over HTTP: jobs keep them, and are listed by them."""

from tests.api.http_server import JOB, Person
from tests.api.test_invitations import accept, invited


async def _named(person: Person, *labels: str) -> set[str]:
    answer = await person.get("/v1/jobs", params={"label": list(labels)})
    assert answer.status_code == 200, answer.text
    return {job["name"] for job in answer.json()["items"]}


async def test_jobs_are_listed_by_all_of_their_labels(ada: Person) -> None:
    await ada.job(name="first", labels={"team": "vision", "run": 1})
    await ada.job(name="second", labels={"team": "vision", "run": 2})
    await ada.job(name="third", labels={"team": "speech"})
    await ada.job(name="bare")
    assert await _named(ada, "team=vision") == {"first", "second"}
    assert await _named(ada, "team=vision", "run=2") == {"second"}
    assert await _named(ada, "team=vision", "run=3") == set()
    assert await _named(ada, "team") == {"first", "second", "third"}
    assert await _named(ada) == {"first", "second", "third", "bare"}


async def test_nobody_lists_jobs_of_others_by_labels(ada: Person, bob: Person) -> None:
    await ada.job(labels={"team": "vision"})
    assert await _named(bob, "team=vision") == set()


async def test_a_member_lists_jobs_of_a_shared_project_by_labels(ada: Person, bob: Person) -> None:
    made = await invited(ada)
    assert (await accept(bob, made)).status_code == 200
    await ada.job(name="shared", labels={"team": "vision"}, project_id=made["project_id"])
    await ada.job(name="hidden", labels={"team": "vision"})
    await bob.job(name="own", labels={"team": "vision"})
    assert await _named(bob, "team=vision") == {"shared", "own"}


async def test_a_job_shows_its_labels_and_a_second_submission_keeps_them(ada: Person) -> None:
    job_id = await ada.job(labels={"team": "vision"})
    assert (await ada.get(f"/v1/jobs/{job_id}")).json()["labels"] == {"team": "vision"}
    again = (await ada.post(f"/v1/jobs/{job_id}/resubmit")).json()
    assert again["labels"] == {"team": "vision"}
    found = (await ada.get("/v1/jobs", params={"label": "team=vision"})).json()["items"]
    assert {job["id"] for job in found} == {job_id, again["id"]}


async def test_all_jobs_of_an_array_have_its_labels(ada: Person) -> None:
    await ada.made("/v1/jobs/arrays", JOB | {"array": 3, "labels": {"sweep": "7"}})
    assert await _named(ada, "sweep=7") == {"digits-0", "digits-1", "digits-2"}


async def test_pages_of_one_label_have_every_job_once(ada: Person) -> None:
    made = {await ada.job(labels={"team": "vision"}) for _ in range(5)}
    await ada.job(labels={"team": "speech"})
    seen: list[str] = []
    asked: dict[str, str] = {"label": "team=vision", "limit": "2"}
    while True:
        answer = (await ada.get("/v1/jobs", params=asked)).json()
        seen += [job["id"] for job in answer["items"]]
        if answer["next"] is None:
            break
        asked["after"] = answer["next"]
    assert len(seen) == 5
    assert set(seen) == made


async def test_a_wrong_filter_names_the_rule(ada: Person) -> None:
    refused = await ada.get("/v1/jobs", params={"label": ["team=vision", "=x"]})
    assert refused.status_code == 422
    (mistake,) = refused.json()["errors"]
    assert mistake["field"] == "label.1"
    assert mistake["rule"].startswith("is KEY=VALUE, or KEY for any value")
    many = await ada.get("/v1/jobs", params={"label": ["a=b"] * 17})
    assert many.status_code == 422


async def test_a_wrong_label_of_a_job_is_one_mistake(ada: Person) -> None:
    refused = await ada.post("/v1/jobs", JOB | {"labels": {"team": ""}})
    assert refused.status_code == 422
    assert [each["field"] for each in refused.json()["errors"]] == ["labels.team"]
