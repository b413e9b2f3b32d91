"""The check of an account at Vast.ai, and the pauses between the calls of its key."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlmodel import select

from activities.db.session import Database
from activities.db.tables import ProviderCallSlot
from activities.providers.base import KeyMistakeError, Unavailable
from activities.providers.call_slots import SharedSlots
from activities.providers.vastai import kind
from activities.providers.vastai.catalogue import FILTERS
from activities.providers.vastai.key import read_key
from activities.providers.vastai.limits import LONGEST_WAIT_S, Limiter
from tests.activities.providers.vastai.conftest import Sessions
from tests.doubles.vastai.double import API_KEY, VastDouble

ENDPOINT = "https://console.vast.ai"
NOW = float(int(time.time()))
OTHERS = {**FILTERS, "limit": 5}


@pytest.mark.parametrize(("key", "status"), [(API_KEY, "passed"), ("of_nobody", "failed")])
def test_the_check_says_whether_the_key_works_and_costs_nothing(
    vastai: VastDouble,
    session_with: Sessions,
    monkeypatch: pytest.MonkeyPatch,
    key: str,
    status: str,
) -> None:
    monkeypatch.setattr(kind, "vastai_session", lambda provider_id: session_with(vastai, key))
    (check,) = kind.check_vastai("prv-1")
    assert (check.name, check.status) == ("key", status)
    assert vastai.calls == ["users.current"]


def test_a_marketplace_that_is_away_is_no_failed_check(
    vastai: VastDouble, session_with: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "vastai_session", lambda provider_id: session_with(vastai))
    vastai.away(60)
    with pytest.raises(Unavailable):
        kind.check_vastai("prv-1")


def test_a_call_whose_turn_is_far_away_comes_again_later_instead_of_waiting() -> None:
    slept: list[float] = []
    limiter = Limiter(lambda: 0.0, slept.append)
    for _ in range(4):
        limiter.wait("create")
    assert slept == [4.5, 9.0, 13.5]
    with pytest.raises(Unavailable) as caught:
        limiter.wait("create")
    assert caught.value.retry_after_s == 18.0 > LONGEST_WAIT_S
    limiter.wait("destroy")
    assert slept == [4.5, 9.0, 13.5], "each kind of call has a turn of its own"


def test_two_processes_with_one_key_take_turns(migrated: Database) -> None:
    slept: list[float] = []
    one, other, apart = (
        Limiter(lambda: NOW, slept.append, SharedSlots(ENDPOINT, key)) for key in ("k", "k", "l")
    )
    for limiter in (one, other, one):
        limiter.wait("create")
    apart.wait("create")
    assert slept == [4.5, 9.0]
    assert one.too_early("destroy") == 3.0
    other.wait("destroy")
    assert slept[2:] == [3.0]
    with migrated.read() as session:
        rows = session.exec(select(ProviderCallSlot)).all()
    assert all(row.key_sha256 != "k" for row in rows)
    assert len({row.key_sha256 for row in rows}) == 2


def test_calls_at_once_get_slots_one_after_another(migrated: Database) -> None:
    slept: list[float] = []
    with ThreadPoolExecutor(6) as threads:
        for _ in range(6):
            shared = Limiter(lambda: NOW, slept.append, SharedSlots(ENDPOINT, "key"))
            threads.submit(shared.wait, "list")
    assert sorted(slept) == [2.0, 4.0, 6.0, 8.0, 10.0]


def test_searches_beyond_those_of_a_day_wait_until_midnight(
    vastai: VastDouble, session_with: Sessions
) -> None:
    vastai.limits.searches = 1
    session = session_with(vastai)
    assert session.search(FILTERS)
    with pytest.raises(Unavailable) as refused:
        session.search(OTHERS)
    with pytest.raises(Unavailable, match="until the next call may be made") as caught:
        session.search(OTHERS)
    left = caught.value.retry_after_s
    assert left == pytest.approx(86400 - vastai.clock.now() % 86400, abs=1)
    assert refused.value.retry_after_s == pytest.approx(left, abs=3)
    assert vastai.calls.count("asks.search") == 2


def test_a_search_is_not_repeated_within_a_minute(
    vastai: VastDouble, session_with: Sessions
) -> None:
    session = session_with(vastai)
    assert session.search(FILTERS) == session.search(FILTERS)
    assert vastai.calls == ["asks.search"]
    vastai.clock.advance(61)
    session.search(FILTERS)
    assert vastai.calls == ["asks.search"] * 2


@pytest.mark.parametrize("text", ["", "short", f"{API_KEY} and more", '{"api_key": 1}', "{"])
def test_a_malformed_key_is_refused_without_being_quoted(text: str) -> None:
    with pytest.raises(KeyMistakeError) as caught:
        read_key(text)
    assert API_KEY not in str(caught.value)
