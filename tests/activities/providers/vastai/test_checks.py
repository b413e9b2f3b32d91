"""The check of an account at Vast.ai, and the pauses between the calls of its key."""

import pytest

from activities.providers.base import KeyMistakeError, Unavailable
from activities.providers.vastai import kind
from activities.providers.vastai.key import read_key
from activities.providers.vastai.limits import LONGEST_WAIT_S, Limiter
from tests.activities.providers.vastai.conftest import Sessions
from tests.doubles.vastai.double import API_KEY, VastDouble


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


@pytest.mark.parametrize("text", ["", "short", f"{API_KEY} and more", '{"api_key": 1}', "{"])
def test_a_malformed_key_is_refused_without_being_quoted(text: str) -> None:
    with pytest.raises(KeyMistakeError) as caught:
        read_key(text)
    assert API_KEY not in str(caught.value)
