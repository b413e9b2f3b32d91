"""Both parties' rules: each refusal alone, in words that name what is missing."""

from dataclasses import replace
from typing import Any

import pytest

from workflows.contracts.federation import LogPolicy
from workflows.rules.federation.parties import (
    Confinement,
    Parties,
    Party,
    RefusalCode,
    first_of,
    refusals_of,
    words_of,
)

READY = Parties(
    creator_account_id="acc-maker",
    consumer_account_id="acc-clinic",
    project_name="reads",
    model_id="mod-1",
    plan_refusal=None,
    is_user_there=True,
    may_create=True,
    model_account_id="acc-maker",
    model_status="ready",
    is_project_there=True,
    only_owned=True,
    has_machines=True,
    allowed=Confinement(),
)


def test_two_parties_that_are_ready_refuse_nothing() -> None:
    assert refusals_of(READY) == ()


def test_one_account_may_be_both_parties() -> None:
    assert refusals_of(replace(READY, consumer_account_id="acc-maker")) == ()


@pytest.mark.parametrize(
    ("change", "party", "code", "words"),
    [
        ({"plan_refusal": "asked enterprise"}, "creator", "plan-required", "asked enterprise"),
        ({"is_user_there": False}, "creator", "forbidden", "may not work for it any more"),
        ({"model_account_id": None}, "creator", "conflict", "mod-1: not found"),
        ({"model_account_id": "acc-clinic"}, "creator", "forbidden", "is of another account"),
        ({"model_status": "transferring"}, "creator", "conflict", "is transferring; must be ready"),
        ({"is_project_there": False}, "consumer", "conflict", "reads: is removed"),
        ({"may_create": False}, "consumer", "forbidden", "no permission to create federated jobs"),
        ({"only_owned": False}, "consumer", "conflict", "use_only_owned_resources"),
        ({"has_machines": False}, "consumer", "conflict", "owns no node and no cloud region"),
    ],
)
def test_each_rule_refuses_alone_and_says_why(
    change: dict[str, Any], party: str, code: str, words: str
) -> None:
    (refusal,) = refusals_of(replace(READY, **change))
    assert (refusal.party, refusal.code) == (party, code)
    assert words in refusal.words


def test_the_creators_refusal_is_found_among_those_of_both() -> None:
    found = refusals_of(replace(READY, only_owned=False, plan_refusal="asked enterprise"))
    refusal = first_of(Party.CREATOR, found)
    assert refusal is not None
    assert refusal.code is RefusalCode.PLAN
    assert first_of(Party.CREATOR, found[1:]) is None


def test_each_party_reads_the_causes_of_its_own_side() -> None:
    found = refusals_of(
        replace(READY, plan_refusal="account maker: asked enterprise", has_machines=False)
    )
    words = words_of(found)
    assert words is not None
    texts = (words.both, words.creator or "", words.consumer or "")
    for cause, expected in (
        ("asked enterprise", [False, True, False]),
        ("owns no node", [False, False, True]),
        ("lacks what federated jobs need", [True, False, True]),
        ("has no machine", [True, True, False]),
    ):
        assert [cause in text for text in texts] == expected, cause


def test_one_owner_of_both_reads_all_of_it() -> None:
    found = refusals_of(replace(READY, model_status="failed", has_machines=False))
    words = words_of(found, is_one_owner=True)
    assert words is not None
    assert words.both == "; ".join(each.words for each in found)
    assert (words.creator, words.consumer) == (None, None)


def test_no_refusal_has_no_words() -> None:
    assert words_of(()) is None


GIVEN = Confinement(("api.example.com:443", "10.1.0.0/16:22"), LogPolicy.EXIT_ONLY)


@pytest.mark.parametrize(
    ("allowed", "words"),
    [
        (GIVEN, None),
        (replace(GIVEN, egress=(*GIVEN.egress, "more.example.com:1")), None),
        (replace(GIVEN, logs=LogPolicy.ALL), None),
        (replace(GIVEN, egress=GIVEN.egress[:1]), "does not allow 10.1.0.0/16:22 any more"),
        (replace(GIVEN, logs=LogPolicy.NONE), "shows less of the logs now, none"),
    ],
)
def test_a_project_that_allows_less_than_a_job_has_withdraws_its_consent(
    allowed: Confinement, words: str | None
) -> None:
    found = refusals_of(replace(READY, given=GIVEN, allowed=allowed))
    assert [each.party for each in found] == ([] if words is None else [Party.CONSUMER])
    assert words is None or words in found[0].words


def test_a_job_that_is_created_needs_no_model_that_is_ready_and_no_free_machine() -> None:
    running = replace(READY, given=Confinement(), model_status="archived", has_machines=False)
    assert refusals_of(running) == ()
