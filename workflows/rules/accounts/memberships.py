"""What a member may do in another account's project, and which invitations still count."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from workflows.contracts.lifecycles import ARTIFACT_NOUNS, FEDERATED

SHARED_NOUNS = ("job", "credential", FEDERATED.name, *(noun.name for noun in ARTIFACT_NOUNS))
"""What a membership says something of. `credential` is the use of the project's third-party keys,
a right of its own. `federated` is the creation of federated jobs, and of no other ones: it lets
nobody see jobs, logs, output or data of the project."""
LEVELS = ("read", "all")
"""`read`: list, view, download logs. `all`: create, change and remove too."""
INVITATION_LASTS = timedelta(days=7)


def mistake_in_permissions(given: Mapping[str, str]) -> str | None:
    """Why these permissions are none of a membership, by noun; None: they are."""
    if unknown := sorted(set(given) - set(SHARED_NOUNS)):
        return f"names {', '.join(SHARED_NOUNS)}: found {unknown[0][:40]}"
    if (level := given.get(FEDERATED.name, "all")) != "all":
        return f"has all for federated, or does not name it: found {level}"
    return None


def may_create_federated(permissions: Mapping[str, str]) -> bool:
    """Whether a member with these permissions may create federated jobs; `job` does not say so."""
    return permissions.get(FEDERATED.name) == "all"


class InvitationStatus(StrEnum):
    """How an invitation stands; it is computed, not stored."""

    PENDING = "pending"
    ACCEPTED = "accepted"
    EXPIRED = "expired"
    WITHDRAWN = "withdrawn"


def invitation_status(
    accepted_at: datetime | None,
    withdrawn_at: datetime | None,
    expires_at: datetime,
    now: datetime,
) -> InvitationStatus:
    """The status of an invitation at an instant."""
    if accepted_at is not None:
        return InvitationStatus.ACCEPTED
    if withdrawn_at is not None:
        return InvitationStatus.WITHDRAWN
    return InvitationStatus.EXPIRED if expires_at <= now else InvitationStatus.PENDING


@dataclass(frozen=True, slots=True)
class Invited:
    """What is known when somebody with the right token accepts an invitation.

    is_addressee: whether the invitation is for an address of the user. proved_by_another: whether
    another user has proved the address. is_of_account: whether the user is of the inviting account
    anyway. inviter_may: whether who has sent it may still invite. is_there: whether the project
    and the account are still there.
    """

    status: InvitationStatus
    is_addressee: bool
    proved_by_another: bool
    is_of_account: bool
    inviter_may: bool
    is_there: bool


def refusal_of_acceptance(found: Invited) -> str | None:
    """Why an invitation does not count, in words that follow its name; None: it counts."""
    is_pending = found.status is InvitationStatus.PENDING
    refusals = (
        (not is_pending, f"is {found.status.value}; ask for another one"),
        (
            not found.is_addressee,
            "is for another address than that of your user; ask for one for yours",
        ),
        (
            found.proved_by_another,
            "is for an address that another user has proved; accept it with that user's key",
        ),
        (found.is_of_account, "is to the account that you belong to anyway"),
        (
            not found.inviter_may,
            "was sent by someone who may invite nobody any more; ask for another one",
        ),
        (not found.is_there, "is to what was removed meanwhile"),
    )
    return next((reason for holds, reason in refusals if holds), None)
