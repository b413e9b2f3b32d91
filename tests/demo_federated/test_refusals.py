"""The platform still refuses in the words that the story expects; what it says of all is real."""

import ast
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from baseload.commands.lookup import UnknownNameError, find_newest_job

from activities.db import tables
from activities.db.ids import new_id
from api.problems import Problem
from api.services import sessions
from tests.api.federated_rows import federated_job, join, story
from tests.api.http_server import JOB, Person, Site
from tests.demo_federated import story as told
from workflows.contracts.sessions import SessionKind
from workflows.rules.federation.parties import Confinement, Parties, refusals_of


def expected() -> Counter[str]:
    """The words of all refusals of the story."""
    tree = ast.parse(Path(told.__file__).read_text())
    calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call)]
    return Counter(
        str(cast("ast.Constant", call.args[0]).value)
        for call in calls
        if isinstance(call.func, ast.Attribute) and call.func.attr == "refused"
    )


def words_of(answer: httpx.Response) -> str:
    assert answer.is_error, answer.text
    return answer.text


async def creations(site: Site) -> list[str]:
    """As `refused_without_leave`: no member, one for ordinary jobs, no plan; and the model.

    And as `withheld_after_it`: the maker's ordinary job, and what a job's name finds for it.
    """
    parties = await story(site)
    maker, route = parties.maker, "/v1/federated-jobs"
    document = parties.changed(data={"output": None})
    key = (parties.project_id, maker.user_id)
    with site.database.write() as session:
        session.delete(session.get_one(tables.ProjectMember, key))
    said = [words_of(await maker.post(route, document))]
    join(site, maker, parties.project_id, {"job": "all"})
    said.append(words_of(await maker.post(route, document)))
    with site.database.write() as session:
        session.get_one(tables.ProjectMember, key).permissions = {"federated": "all"}
    site.set(tables.Account, maker.account_id, plan="individual")
    said.append(words_of(await maker.post(route, document)))
    said.append(words_of(await parties.clinic.get(f"/v1/models/{parties.model_id}")))
    said.append(words_of(await maker.post("/v1/jobs", JOB | {"project_id": parties.project_id})))
    await parties.clinic.job(project_id=parties.project_id, name="reads")
    return [*said, await not_found(maker, "reads")]


async def not_found(person: Person, name: str) -> str:
    """What the command line says of a job by this name, which the person does not see."""
    jobs = (await person.get("/v1/jobs")).json()["items"]
    transport = SimpleNamespace(pages=lambda *_, **__: iter(jobs))
    with pytest.raises(UnknownNameError) as refusal:
        find_newest_job(cast("Any", SimpleNamespace(transport=transport)), name)
    return str(refusal.value)


async def withheld(ada: Person) -> list[str]:
    """As `withheld_after_it`, for the consumer."""
    job_id = await ada.job()
    federated_id = federated_job(ada, job_id=new_id("job"), logs="none")
    ada.site.set(tables.Job, job_id, federated_id=federated_id, status="finished")
    paths = (f"/v1/jobs/{job_id}/logs", f"/v1/jobs/{job_id}/output")
    return [words_of(await ada.get(path)) for path in paths]


def session_refused() -> str:
    """As `kept_while_it_runs`, for the consumer."""
    place = SimpleNamespace(job_id="job-1", is_federated=True, port=None)
    request = SimpleNamespace(kind=SessionKind.COMMAND, port=None)
    with pytest.raises(Problem) as refusal:
        sessions.check_kind(cast("Any", place), cast("Any", request))
    return str(refusal.value.detail)


async def test_the_refusals_that_the_story_expects_are_those_of_the_platform(site: Site) -> None:
    said = [*await creations(site), *await withheld(site.account("ada")), session_refused()]
    unsaid = [words for words in expected() if not any(words in each for each in said)]
    assert unsaid == [], said
    assert len(expected()) == 7
    without = [each for each in said if not any(words in each for words in expected())]
    assert without == []


def test_a_consent_that_is_withdrawn_is_told_in_the_words_that_the_story_expects() -> None:
    parties = Parties(
        creator_account_id="acc-2", consumer_account_id="acc-1", project_name="reads",
        model_id="mod-1", plan_refusal=None, is_user_there=True, may_create=False,
        model_account_id="acc-2", model_status="ready", is_project_there=True, only_owned=True,
        has_machines=True, allowed=Confinement(),
    )  # fmt: skip
    [refusal] = refusals_of(parties)
    expects = "no permission to create federated jobs"
    assert expects in refusal.words
    assert expects in Path(told.__file__).read_text()
