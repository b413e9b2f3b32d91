"""Every route × every place that names a thing, with a thing of another account.

The stranger's key may do everything, and the rest of each request is sound and the stranger's own.
So only the check of that one place refuses the request.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest

from tests.api.http_server import Person, Site
from tests.api.refusals.document import UNAVAILABLE, Place, kind_of, named_places, places
from tests.api.refusals.holdings import Holdings, holdings, listed_machines, rows_of_others
from tests.api.test_access import ADMINISTRATORS, ROUTES, Route
from workflows.contracts.lifecycles import ARTIFACT_NOUNS

FILTERS = {
    "list_nodes query region_id",
    "list_leases query provider_id",
    "list_jobs query project_id",
    "list_data_progress query job_id",
    *(f"list_{noun.plural} query project_id" for noun in ARTIFACT_NOUNS),
    "list_transactions query job_id",
    "get_tco query node_id",
    *(
        f"get_statement query {subject}_id"
        for subject in ("project", "provider", "region", "job", "device")
    ),
    "list_audit query resource_id",
    *(
        f"list_federated_jobs query {subject}"
        for subject in ("project_id", "model_id", "consumer_account_id")
    ),
    "list_offers query region_id",
    "list_datastores query region_id",
    "list_reservations query region_id",
    "list_boot_drive_requests query region_id",
    *("list_devices query region_id", "list_devices query configuration_id"),
    *("list_deployments query region_id", "list_deployments query configuration_id"),
    "list_device_configurations query region_id",
}
"""What leaves nothing of a list, because a list has what is the caller's alone."""
ACCEPTED = {"add_node body minion_id", "end_provider_machine path name"}
"""What anybody may say of what is their own: the key of a host, the name of a machine."""
CONFLICTS = {"replace_node body minion_id", "add_device body minion_id"}
"""What is refused whatever is said there: the holder's node is no storage node."""
INVALID = {
    "create_api_key body user_id",
    *(f"create_{noun.name} body source.secret" for noun in ARTIFACT_NOUNS),
    *(f"create_{noun.name} body source.datastore_id" for noun in ARTIFACT_NOUNS),
    *("enable_provider body credentials", "change_provider body credentials"),
    *("change_device body configuration_id", "create_deployment body device_ids[]"),
    "list_offers query providers",
    *(
        f"{verb}_device_configuration body {field}"
        for verb in ("create", "change")
        for field in ("model.id", "checkpoints[]", "output.datastore_id", "environment.secrets{}")
    ),
    "create_federated_job body data.model.id",
    *(
        f"{name} body {field}"
        for name in ("submit_job", "preview_job", "submit_job_array", "create_federated_job")
        for field in (
            *("code.upload_id", "data.input.upload_id", "placement.region_id"),
            *("data.input.id", "data.input.job_id", "data.input.secret", "data.output.secret"),
            *("data.input.datastore_id", "data.output.datastore_id", "data.scratch.datastore_id"),
            *("placement.providers[]", "environment.secrets{}", "reservation_id"),
        )
    ),
}
"""Where the answer is a field error, as for what is not there."""
NOT_LOOKED_UP = {"preview_job body code.upload_id", "preview_job body data.input.upload_id"}
"""What a preview does not look for, because it may not have been sent yet."""


class Case(NamedTuple):
    """A route, and the places that name another account's things, with the kind of each."""

    route: Route
    places: dict[Place, str]

    @property
    def name(self) -> str:
        return f"{self.route.name} {' and '.join(str(place) for place in self.places)}"

    @property
    def status(self) -> int:
        """How a stranger is answered."""
        if self.route.name in ADMINISTRATORS:
            return 403
        if self.name in ACCEPTED:
            return 202
        if self.name in FILTERS:
            return 200
        if self.name in CONFLICTS:
            return 409
        return 422 if self.name in INVALID else 404


def _cases() -> Iterator[Case]:
    """Each place alone, and all that are in the path together."""
    for route in ROUTES:
        named = named_places(route)
        yield from (Case(route, {place: kind}) for place, kind in named.items())
        in_path = {place: kind for place, kind in named.items() if place.where == "path"}
        if len(in_path) > 1:
            yield Case(route, in_path)


CASES = [case for case in _cases() if case.name not in NOT_LOOKED_UP]


@pytest.fixture
async def hers(ada: Person) -> Holdings:
    return await holdings(ada, "ada-lovelace")


@pytest.fixture
async def his(bob: Person) -> Holdings:
    return await holdings(bob, "bob-taylor")


async def _answer(holder: Holdings, asked: dict[str, Any]) -> httpx.Response:
    with listed_machines():
        return await holder.person.call(**asked)


def _told(response: httpx.Response, *sent: str) -> str:
    """What an answer says, but for what the request itself has said."""
    text = response.text
    for each in sorted(sent, key=len, reverse=True):
        text = text.replace(each, "…")
    return f"{response.status_code} {text}"


def test_every_place_and_every_exception_is_known() -> None:
    for route in ROUTES:
        for place in places(route):
            kind_of(route, place)
    names = {case.name for case in _cases()}
    assert names >= FILTERS | ACCEPTED | CONFLICTS | INVALID | NOT_LOOKED_UP


def _named(holder: Holdings, case: Case) -> dict[Place, str]:
    return {place: holder.named[kind] for place, kind in case.places.items()}


def _changed(name: str) -> str:
    """A name of the same form, of a thing that nobody has: its last characters are others."""
    return name[:-3] + name[-3:].translate(str.maketrans("0123456789abcdef", "1234567890bcdefa"))


def _shows(told: str, mark: str) -> bool:
    """Whether a mark is there as a word of its own: a random id may hold a short one."""
    return re.search(rf"(?<![0-9a-z]){re.escape(mark)}(?![0-9a-z])", told) is not None


async def test_what_another_account_has_is_refused_and_neither_changed_nor_shown(
    site: Site, hers: Holdings, his: Holdings
) -> None:
    before = rows_of_others(site.database, his)
    wrong = []
    for case in CASES:
        sent = _named(hers, case)
        answer = await _answer(his, his.request(case.route, sent))
        told = _told(answer, *sent.values())
        if answer.status_code != case.status:
            wrong.append(f"{case.name}: {told}")
        wrong += [f"{case.name} shows {each}" for each in hers.marks if _shows(told, each)]
        after = rows_of_others(site.database, his)
        wrong += [f"{case.name} changes {row}" for row in before ^ after]
        before = after
    assert wrong == []


async def test_what_another_account_has_is_answered_as_what_is_not_there(
    hers: Holdings, his: Holdings
) -> None:
    wrong = []
    for case in CASES:
        if case.status not in (404, 422):
            continue
        sent = _named(hers, case)
        absent = {place: _changed(text) for place, text in sent.items()}
        answers = [
            _told(await _answer(his, his.request(case.route, named)), *named.values())
            for named in (sent, absent)
        ]
        if answers[0] != answers[1]:
            wrong.append(f"{case.name}: {answers}")
    assert wrong == []


async def test_the_owner_is_answered_otherwise_than_a_stranger(
    hers: Holdings, his: Holdings
) -> None:
    """So each of the requests above is one that its owner could have sent."""
    for case in CASES:
        if case.status not in (404, 422):
            continue
        sent = _named(hers, case)
        strange = await _answer(his, his.request(case.route, sent))
        if case.route.name == "remove_third_party_key":
            await hers.set_key()  # The case before has removed it.
        if case.route.name == "remove_member":
            hers.set_member()  # So it has here.
        own = await _answer(hers, hers.request(case.route, sent))
        assert (own.status_code, own.text) != (strange.status_code, strange.text), case.name


async def test_what_is_not_available_yet_is_refused_to_everybody(hers: Holdings) -> None:
    for route in ROUTES:
        for place in places(route):
            if str(place) in UNAVAILABLE:
                answer = await _answer(hers, hers.request(route, {place: "any"}))
                assert answer.status_code == 422, (route.name, place)
                refused = [error["field"] for error in answer.json()["errors"]]
                part = ".".join(place.field.removesuffix("[]").split(".")[:2])
                assert any(field.startswith(part) for field in refused), (place, refused)
