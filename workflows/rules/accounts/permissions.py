"""Who may do what: a table of noun × verb × role, which every route of the API asks.

A scope, such as `jobs:write`, is a noun and a verb; the scopes of a key only narrow what the role
of its user permits. What one person may do in another account's project is in `memberships.py`.
"""

from collections.abc import Mapping
from enum import StrEnum

from workflows.contracts.lifecycles import LIFECYCLE_NOUNS


class Role(StrEnum):
    """What a user is in an account; an administrator is a user of the bootstrap's account."""

    OWNER = "owner"
    MEMBER = "member"
    BILLING = "billing"
    ADMINISTRATOR = "administrator"


class Verb(StrEnum):
    """What is done with a noun; `read` and `write` are scopes of keys too."""

    READ = "read"
    WRITE = "write"
    DECIDE = "decide"
    """Approve, refuse and ship what accounts have requested."""
    VERIFY = "verify"
    """Compute the hashes of all accounts' audit entries, or all charges of the ledger, anew."""
    REVERSE = "reverse"
    """Take a transaction of any account back."""
    RECONCILE = "reconcile"
    """Compare the machines that providers list with the leases now, and end the orphaned ones."""


ROLES = (Role.OWNER, Role.MEMBER, Role.BILLING)
"""The roles that a user may be given."""
SCOPED = (Verb.READ, Verb.WRITE)
_OWNERS = frozenset({Role.OWNER})
_WORKERS = frozenset({Role.OWNER, Role.MEMBER})
_PAYERS = frozenset({Role.OWNER, Role.BILLING})
_ALL = frozenset(ROLES)
_ADMINISTRATORS = frozenset({Role.ADMINISTRATOR})
Rules = Mapping[Verb, frozenset[Role]]
_WORK: Rules = {Verb.READ: _WORKERS, Verb.WRITE: _WORKERS}
_OF_OWNERS: Rules = {Verb.READ: _WORKERS, Verb.WRITE: _OWNERS}

PERMISSIONS: Mapping[str, Rules] = {
    "accounts": {Verb.READ: _ADMINISTRATORS, Verb.WRITE: _ADMINISTRATORS},
    "account": {Verb.READ: _ALL, Verb.WRITE: _OWNERS},
    "billing": {
        Verb.READ: _ALL,
        Verb.WRITE: _PAYERS,
        Verb.VERIFY: _ADMINISTRATORS,
        Verb.REVERSE: _ADMINISTRATORS,
    },
    "users": _OF_OWNERS,
    "invitations": _OF_OWNERS,
    "members": _OF_OWNERS,
    "memberships": {Verb.READ: _ALL, Verb.WRITE: _ALL},
    "credentials": _OF_OWNERS,
    "api-keys": _WORK,
    "projects": _WORK,
    "uploads": _WORK,
    "events": _WORK,
    "audit": {Verb.READ: _WORKERS, Verb.WRITE: _OWNERS, Verb.VERIFY: _ADMINISTRATORS},
    "reservations": _WORK,
    "boot-drive-requests": {**_WORK, Verb.DECIDE: _ADMINISTRATORS},
    "device-configurations": _WORK,
    **{noun.plural: _WORK for noun in LIFECYCLE_NOUNS},
    "leases": {**_WORK, Verb.RECONCILE: _ADMINISTRATORS},
}
"""Who may do what. A noun or verb that is not here is nobody's: a route of it cannot be made.

A member's keys are the member's own, `accounts.py` of the services sees to that. `memberships` are
what the user belongs to, which is the user's own affair and not the account's.
"""
_PLURALS = {
    Role.OWNER: "owners",
    Role.MEMBER: "members",
    Role.BILLING: "billing users",
}


def roles_for(noun: str, verb: Verb) -> frozenset[Role]:
    """The roles whose users may do this.

    Raises: LookupError, when nobody has said who may.
    """
    try:
        return PERMISSIONS[noun][verb]
    except KeyError:
        raise LookupError(f"no rule says whose roles may {verb} {noun}") from None


def permits(noun: str, verb: Verb, role: str, *, is_administrator: bool = False) -> bool:
    """Whether a user of this role may do this; an unknown role may do nothing.

    A user of billing is no administrator, also in the account of administrators.
    """
    roles = roles_for(noun, verb)
    if Role.ADMINISTRATOR in roles:
        return is_administrator and role in (Role.OWNER, Role.MEMBER)
    return role in roles


def refusal(noun: str, verb: Verb) -> str:
    """For whom this is, as a refusal says it to others."""
    roles = roles_for(noun, verb)
    if Role.ADMINISTRATOR in roles:
        return "this is for administrators"
    names = " and ".join(_PLURALS[each] for each in ROLES if each in roles)
    return f"this is for {names} of the account"
