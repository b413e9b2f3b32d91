"""Which invitations count, and what is said of those that do not."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from workflows.rules.accounts.memberships import (
    INVITATION_LASTS,
    SHARED_NOUNS,
    InvitationStatus,
    Invited,
    invitation_status,
    may_create_federated,
    mistake_in_permissions,
    refusal_of_acceptance,
)

NOW = datetime(2026, 1, 8, tzinfo=UTC)
GOOD = Invited(
    InvitationStatus.PENDING, is_addressee=True, proved_by_another=False, is_of_account=False,
    inviter_may=True, is_there=True,
)  # fmt: skip


@pytest.mark.parametrize(
    ("accepted_at", "withdrawn_at", "expires_at", "expected"),
    [
        (None, None, NOW + timedelta(seconds=1), "pending"),
        (None, None, NOW, "expired"),
        (None, NOW, NOW - timedelta(days=1), "withdrawn"),
        (NOW, None, NOW - timedelta(days=1), "accepted"),
    ],
)
def test_the_status_follows_from_the_instants(
    accepted_at: datetime | None, withdrawn_at: datetime | None, expires_at: datetime, expected: str
) -> None:
    assert invitation_status(accepted_at, withdrawn_at, expires_at, NOW) == expected
    assert timedelta(days=7) == INVITATION_LASTS


def test_a_good_invitation_is_refused_for_nothing() -> None:
    assert refusal_of_acceptance(GOOD) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"status": InvitationStatus.EXPIRED}, "is expired"),
        ({"status": InvitationStatus.ACCEPTED}, "is accepted"),
        ({"status": InvitationStatus.WITHDRAWN}, "is withdrawn"),
        ({"is_addressee": False}, "another address"),
        ({"proved_by_another": True}, "another user has proved"),
        ({"is_of_account": True}, "you belong to anyway"),
        ({"inviter_may": False}, "may invite nobody any more"),
        ({"is_there": False}, "was removed meanwhile"),
    ],
)
def test_each_reason_is_said_in_words(change: dict[str, Any], words: str) -> None:
    assert words in (refusal_of_acceptance(replace(GOOD, **change)) or "")


def test_a_membership_is_about_jobs_federated_jobs_keys_and_artifacts() -> None:
    artifacts = {"dataset", "model", "checkpoint", "volume"}
    assert set(SHARED_NOUNS) == {"job", "federated", "credential", *artifacts}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"federated": "all"}, None),
        ({"job": "read", "credential": "read"}, None),
        ({"federated": "read"}, "has all for federated, or does not name it: found read"),
        ({"federated-jobs": "all"}, "found federated-jobs"),
        ({"node": "all"}, "found node"),
    ],
)
def test_permissions_that_say_nothing_are_refused(given: dict[str, str], words: str | None) -> None:
    mistake = mistake_in_permissions(given)
    assert mistake is None if words is None else words in (mistake or "")


def test_no_other_permission_creates_federated_jobs() -> None:
    others = {noun: "all" for noun in SHARED_NOUNS if noun != "federated"}
    assert not may_create_federated(others)
    assert not may_create_federated(others | {"federated": "read"})
    assert may_create_federated({"federated": "all"})
