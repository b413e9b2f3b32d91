"""Who a key stands for, what its scopes allow, and which rows its holder may use."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI
from sqlmodel import Session, select
from starlette.requests import HTTPConnection, Request

from activities.accounts.accounts import add_account
from activities.db import tables
from activities.db.session import Database
from api.authorization import (
    SCOPES,
    Caller,
    KeyRefused,
    Needs,
    _bearer,
    address_of,
    authenticate,
    caller_by_key,
    hash_of,
)
from api.problems import Problem
from api.rate_limits import Rate
from api.services import ownership
from tests.activities.rows import add_job, add_region

SECRET = "bl_secret"
FAR = timedelta(days=1)


class Person:
    """An account with one user, one key and one job."""

    def __init__(self, session: Session, name: str, *, is_administrator: bool = False) -> None:
        made = datetime.now(UTC)
        account, user = add_account(session, name, f"{name}@example.test", made)
        account.is_administrator = is_administrator
        self.account_id, self.user_id = account.id, user.id
        self.secret, self.key_id = f"{SECRET}_{name}", f"key-{name}"
        session.add(
            tables.ApiKey(
                id=self.key_id, account_id=account.id, user_id=user.id, name=name, created_at=made,
                secret_sha256=hash_of(self.secret), scopes=["jobs:read", "nodes:write"],
            )
        )  # fmt: skip
        self.job_id = add_job(session, account).id
        self.project_id = str(account.personal_project_id)
        self.region_id = add_region(session, account).id

    def caller(self, **changes: Any) -> Caller:
        known: dict[str, Any] = {
            "account_id": self.account_id, "user_id": self.user_id, "key_id": self.key_id,
            "scopes": frozenset({"*"}), "is_administrator": False,
            "home_account_id": self.account_id,
        }  # fmt: skip
        return Caller(**(known | changes))


@pytest.fixture
def ada(migrated: Database) -> Person:
    with migrated.write() as session:
        return Person(session, "ada")


@pytest.fixture
def bob(migrated: Database, ada: Person) -> Person:
    with migrated.write() as session:
        return Person(session, "bob")


@pytest.fixture
def admin(migrated: Database, ada: Person) -> Person:
    with migrated.write() as session:
        return Person(session, "admin", is_administrator=True)


def set_key(database: Database, person: Person, **values: Any) -> None:
    with database.write() as session:
        key = session.get_one(tables.ApiKey, person.key_id)
        for name, value in values.items():
            setattr(key, name, value)


def last_used(database: Database, person: Person) -> datetime | None:
    with database.read() as session:
        return session.get_one(tables.ApiKey, person.key_id).last_used_at


# ── keys ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("scopes", "allowed"),
    [
        ({"*"}, {"jobs:read", "jobs:write", "nodes:read", "nodes:write"}),
        ({"read"}, {"jobs:read", "nodes:read"}),
        ({"jobs:read"}, {"jobs:read"}),
        ({"jobs:write"}, {"jobs:read", "jobs:write"}),
        (set(), set()),
    ],
)
def test_what_a_key_may_follows_from_its_scopes(scopes: set[str], allowed: set[str]) -> None:
    caller = Caller("a", "u", "k", frozenset(scopes), is_administrator=False, home_account_id="a")
    asked = {"jobs:read", "jobs:write", "nodes:read", "nodes:write"}
    assert {scope for scope in asked if caller.may(scope)} == allowed
    assert asked <= SCOPES


def test_a_caller_is_an_owner_by_role_alone() -> None:
    caller = Caller("a", "u", "k", frozenset(), is_administrator=True, home_account_id="a")
    assert not caller.is_owner
    owner = Caller("a", "u", "k", frozenset(), False, "a", role="owner")
    assert owner.is_owner


@pytest.mark.parametrize("asks", ["by its secret", "by its id"])
def test_the_caller_is_who_holds_the_key(migrated: Database, ada: Person, asks: str) -> None:
    expires_at = datetime.now(UTC) + FAR
    set_key(migrated, ada, expires_at=expires_at)
    with migrated.write() as session:
        session.get_one(tables.User, ada.user_id).role = "owner"
    found = (
        authenticate(ada.secret)
        if asks == "by its secret"
        else caller_by_key(ada.key_id, ada.account_id)
    )
    assert found == Caller(
        account_id=ada.account_id,
        user_id=ada.user_id,
        key_id=ada.key_id,
        scopes=frozenset({"jobs:read", "nodes:write"}),
        is_administrator=False,
        home_account_id=ada.account_id,
        role="owner",
        expires_at=expires_at,
    )


def test_a_key_that_is_not_good_is_refused_with_whose_it_is(
    migrated: Database, ada: Person, bob: Person
) -> None:
    now = datetime.now(UTC)
    assert caller_by_key(ada.key_id, ada.account_id)
    set_key(migrated, ada, expires_at=now + FAR)
    assert caller_by_key(ada.key_id, ada.account_id)
    for values, why in (
        ({"revoked_at": now}, "unknown or revoked"),
        ({"revoked_at": None, "expires_at": now - FAR}, "has expired"),
    ):
        set_key(migrated, ada, **values)
        for refused in (_refused_by_secret(ada), _refused_by_id(ada)):
            assert (refused.code, refused.key_id) == ("unauthorized", ada.key_id)
            assert refused.account_id == ada.account_id
            assert why in refused.detail
            assert refused.headers == {"WWW-Authenticate": "Bearer"}
    assert caller_by_key(bob.key_id, bob.account_id)
    assert authenticate(bob.secret).key_id == bob.key_id


def _refused_by_secret(person: Person) -> KeyRefused:
    with pytest.raises(KeyRefused) as refused:
        authenticate(person.secret)
    return refused.value


def _refused_by_id(person: Person) -> KeyRefused:
    with pytest.raises(KeyRefused) as refused:
        caller_by_key(person.key_id, person.account_id)
    return refused.value


def test_a_key_that_nobody_has_is_nobodys(ada: Person) -> None:
    for secret, why in ((None, "is missing"), ("", "is missing"), ("bl_x", "unknown or revoked")):
        with pytest.raises(KeyRefused, match=why) as refused:
            authenticate(secret)
        assert refused.value.code == "unauthorized"
        assert (refused.value.account_id, refused.value.key_id) == (None, None)
    with pytest.raises(KeyRefused, match="unknown or revoked"):
        caller_by_key("key-none", ada.account_id)


async def test_a_request_without_a_key_comes_as_far_as_our_own_refusal() -> None:
    assert await _bearer(Request(request_from().scope)) is None


def test_the_use_of_a_key_is_noted_once_in_ten_minutes(migrated: Database, ada: Person) -> None:
    began = datetime.now(UTC)
    authenticate(ada.secret)
    first = last_used(migrated, ada)
    assert first is not None
    assert began <= first <= datetime.now(UTC)
    lately, long_ago = (began - timedelta(seconds=seconds) for seconds in (590, 600))
    set_key(migrated, ada, last_used_at=lately)
    authenticate(ada.secret)
    assert last_used(migrated, ada) == lately
    set_key(migrated, ada, last_used_at=long_ago)
    authenticate(ada.secret)
    assert (last_used(migrated, ada) or long_ago) >= began


def test_only_an_administrator_acts_for_others_and_for_those_that_are_there(
    ada: Person, bob: Person, admin: Person
) -> None:
    assert authenticate(ada.secret, ada.account_id).account_id == ada.account_id
    with pytest.raises(KeyRefused, match="is for administrators") as refused:
        authenticate(ada.secret, bob.account_id)
    assert (refused.value.code, refused.value.key_id) == ("forbidden", ada.key_id)
    assert refused.value.headers == {}
    caller = authenticate(admin.secret, bob.account_id)
    assert (caller.account_id, caller.home_account_id) == (bob.account_id, admin.account_id)
    assert caller.is_administrator
    with pytest.raises(Problem, match="acc-none") as missing:
        authenticate(admin.secret, "acc-none")
    assert missing.value.code == "not-found"


# ── routes ──────────────────────────────────────────────────────────────────────────────────────


def request_from(client: tuple[str, int] | None = ("192.0.2.7", 5)) -> HTTPConnection:
    app = FastAPI()
    app.state.request_rate, app.state.account_request_rate = Rate(60), Rate(60)
    app.state.own_request_rate = Rate(60)
    return HTTPConnection({"type": "http", "headers": [], "app": app, "client": client})


def test_a_route_knows_its_caller_and_from_where_it_calls(ada: Person) -> None:
    request = request_from()
    caller = Needs("jobs:read").caller_of(request, ada.secret)
    assert (caller.key_id, caller.address) == (ada.key_id, "192.0.2.7")
    assert request.state.caller == caller
    assert address_of(request_from(None)) is None


@pytest.mark.parametrize(
    ("needs", "why"),
    [
        (Needs("jobs:write"), "key key-ada lacks the scope jobs:write"),
        (Needs("accounts:read"), "this is for administrators"),
        (Needs("users:write"), "this is for owners of the account"),
    ],
)
def test_a_route_refuses_who_may_not_and_still_knows_who_it_was(
    migrated: Database, ada: Person, needs: Needs, why: str
) -> None:
    with migrated.write() as session:
        session.get_one(tables.User, ada.user_id).role = "member"
    request = request_from()
    with pytest.raises(Problem, match=why) as refused:
        needs.caller_of(request, ada.secret)
    assert refused.value.code == "forbidden"
    assert request.state.caller.key_id == ada.key_id


def test_a_route_for_owners_or_administrators_answers_them(
    migrated: Database, ada: Person, admin: Person
) -> None:
    with migrated.write() as session:
        session.get_one(tables.User, ada.user_id).role = "owner"
        for key in session.exec(select(tables.ApiKey)):
            key.scopes = ["*"]
    owner = Needs("users:write").caller_of(request_from(), ada.secret)
    administrator = Needs("accounts:read").caller_of(request_from(), admin.secret)
    assert (owner.key_id, administrator.key_id) == (ada.key_id, admin.key_id)


@pytest.mark.parametrize("limit", ["request_rate", "account_request_rate"])
def test_who_calls_too_often_is_told_when_to_come_back(ada: Person, limit: str) -> None:
    request = request_from()
    setattr(request.app.state, limit, Rate(1, clock=lambda: 0.0))
    Needs("jobs:read").caller_of(request, ada.secret)
    with pytest.raises(Problem, match="too many requests") as refused:
        Needs("jobs:read").caller_of(request, ada.secret)
    assert refused.value.code == "too-many-requests"
    assert int((refused.value.headers or {})["Retry-After"]) > 0


@pytest.mark.parametrize("limit", ["request_rate", "account_request_rate"])
def test_a_wait_of_less_than_a_second_is_a_wait(ada: Person, limit: str) -> None:
    request = request_from()
    setattr(request.app.state, limit, SimpleNamespace(wait_s=lambda _: 0.5))
    with pytest.raises(Problem, match="too many requests"):
        Needs("jobs:read").caller_of(request, ada.secret)


# ── rows ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("look", [ownership.own, ownership.own_locked])
def test_only_the_account_itself_finds_its_row(
    migrated: Database, ada: Person, bob: Person, look: Any
) -> None:
    with migrated.write() as session:
        assert look(session, tables.Region, ada.region_id, ada.caller()).id == ada.region_id
        for row_id, caller in (("reg-none", ada.caller()), (ada.region_id, bob.caller())):
            with pytest.raises(Problem, match=row_id) as refused:
                look(session, tables.Region, row_id, caller)
            assert refused.value.code == "not-found"


def test_a_row_that_is_to_change_is_locked(migrated: Database, ada: Person) -> None:
    with migrated.write() as session:
        asked: list[Any] = []
        plain = session.get

        def noting(*args: Any, **options: Any) -> Any:
            asked.append(options)
            return plain(*args, **options)

        session.get = noting  # type: ignore[method-assign]
        ownership.own_locked(session, tables.Region, ada.region_id, ada.caller())
        ownership.own(session, tables.Region, ada.region_id, ada.caller())
    assert asked == [{"with_for_update": True}, {}]


def may(session: Session, project_id: str, user_id: str, level: str, noun: str = "job") -> None:
    """Give a user of another account this permission in a project."""
    for row in session.exec(select(tables.ProjectMember)):
        session.delete(row)
    session.flush()
    session.add(
        tables.ProjectMember(
            project_id=project_id,
            user_id=user_id,
            permissions={noun: level},
            created_at=datetime.now(UTC),
        )
    )
    session.flush()


@pytest.mark.parametrize(
    ("permission", "allowed"),
    [
        ("job:read", {"read"}),
        ("job:all", {"read", "all"}),
        ("node:all", set()),
    ],
)
def test_a_member_of_a_project_does_there_what_it_may(
    migrated: Database, ada: Person, bob: Person, permission: str, allowed: set[str]
) -> None:
    reads, creates = "read" in allowed, "all" in allowed
    noun, level = permission.split(":")
    with migrated.write() as session:
        may(session, ada.project_id, bob.user_id, level, noun)
        caller = bob.caller()
        of_bob = ownership.projects_of
        assert (ada.project_id in of_bob(session, caller, "job", "read")) is reads
        assert (ada.project_id in of_bob(session, caller, "job", "all")) is creates
        assert _outcome(lambda: ownership.project_for(session, caller, ada.project_id)) == (
            "found" if creates else "forbidden" if reads else "not-found"
        )
        assert _outcome(lambda: ownership.visible_job(session, caller, ada.job_id)) == (
            "found" if reads else "not-found"
        )
        assert _outcome(lambda: ownership.visible_job(session, caller, ada.job_id, "all")) == (
            "found" if creates else "forbidden" if reads else "not-found"
        )
        for asked, expected in (("read", reads), ("all", creates)):
            where = ownership.visible_jobs(session, caller, asked)
            seen = set(session.exec(select(tables.Job.id).where(where)))
            assert seen == {bob.job_id, *([ada.job_id] if expected else [])}


def _outcome(look: Any) -> str:
    try:
        look()
    except Problem as refused:
        return refused.code
    return "found"


def test_who_acts_for_another_account_takes_no_memberships_along(
    migrated: Database, ada: Person, bob: Person, admin: Person
) -> None:
    with migrated.write() as session:
        may(session, ada.project_id, admin.user_id, "all")
        elsewhere = admin.caller(account_id=bob.account_id)
        assert ownership.projects_of(session, admin.caller(), "job", "all") == [ada.project_id]
        assert ownership.projects_of(session, elsewhere, "job", "all") == []


def test_the_accounts_own_projects_and_jobs_need_no_membership(
    migrated: Database, ada: Person, bob: Person
) -> None:
    with migrated.write() as session:
        caller = ada.caller()
        assert ownership.project_for(session, caller, ada.project_id).id == ada.project_id
        assert ownership.visible_job(session, caller, ada.job_id, "all").id == ada.job_id
        for missing in (bob.project_id, "prj-none"):
            assert _outcome(lambda at=missing: ownership.project_for(session, caller, at)) == (
                "not-found"
            )
        for missing in (bob.job_id, "job-none"):
            assert _outcome(lambda at=missing: ownership.visible_job(session, caller, at)) == (
                "not-found"
            )


def test_every_resource_with_a_lifecycle_shows_these_fields(
    migrated: Database, ada: Person
) -> None:
    with migrated.read() as session:
        row = session.get_one(tables.Job, ada.job_id)
        row.status_reason = "why"
        assert ownership.lifecycle(row) == {
            "id": row.id,
            "account_id": ada.account_id,
            "name": "digits",
            "status": row.status,
            "status_reason": "why",
            "created_at": row.created_at,
            "updated_at": row.updated_at,
            "workflow_id": f"job/{row.id}",
        }
