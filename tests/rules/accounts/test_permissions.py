"""Every cell of the table of noun × verb × role, against the sentences of who may do what."""

import itertools

import pytest

from workflows.rules.accounts.permissions import (
    PERMISSIONS,
    ROLES,
    Role,
    Verb,
    permits,
    refusal,
    roles_for,
)

FOR_OWNERS_ALONE = {
    *(("account", Verb.WRITE), ("users", Verb.WRITE), ("invitations", Verb.WRITE)),
    *(("members", Verb.WRITE), ("credentials", Verb.WRITE), ("audit", Verb.WRITE)),
}
FOR_ADMINISTRATORS = {
    *(("accounts", Verb.READ), ("accounts", Verb.WRITE)),
    *(("boot-drive-requests", Verb.DECIDE), ("audit", Verb.VERIFY)),
    *(("billing", Verb.VERIFY), ("billing", Verb.REVERSE), ("leases", Verb.RECONCILE)),
}
OF_BILLING = {
    *(("billing", Verb.READ), ("billing", Verb.WRITE), ("account", Verb.READ)),
    *(("memberships", Verb.READ), ("memberships", Verb.WRITE)),
}
CELLS = [(noun, verb) for noun, rules in PERMISSIONS.items() for verb in rules]


def _expected(noun: str, verb: Verb, role: Role) -> bool:
    """What the sentences say: an owner may do all but what is for administrators, a member all
    but that, what is for owners and what is of the money, and billing what is of the money."""
    if (noun, verb) in FOR_ADMINISTRATORS:
        return False
    if role is Role.OWNER:
        return True
    if role is Role.BILLING:
        return (noun, verb) in OF_BILLING
    return (noun, verb) not in FOR_OWNERS_ALONE | {("billing", Verb.WRITE)}


@pytest.mark.parametrize(("noun", "verb"), CELLS)
@pytest.mark.parametrize("role", ROLES)
def test_a_role_may_what_the_sentences_say(noun: str, verb: Verb, role: Role) -> None:
    assert permits(noun, verb, role) is _expected(noun, verb, role)
    as_administrator = permits(noun, verb, role, is_administrator=True)
    for_administrators = (noun, verb) in FOR_ADMINISTRATORS and role is not Role.BILLING
    assert as_administrator is (_expected(noun, verb, role) or for_administrators)


@pytest.mark.parametrize(("noun", "verb"), CELLS)
@pytest.mark.parametrize("role", ["", "root", "Owner", "administrator"])
def test_an_unknown_role_may_do_nothing(noun: str, verb: Verb, role: str) -> None:
    assert not permits(noun, verb, role)


def test_every_noun_is_read_and_written_by_somebody() -> None:
    for noun, verb in itertools.product(PERMISSIONS, (Verb.READ, Verb.WRITE)):
        assert roles_for(noun, verb)


@pytest.mark.parametrize(("noun", "verb"), [("cats", Verb.READ), ("jobs", Verb.DECIDE)])
def test_what_has_no_rule_is_nobodys(noun: str, verb: Verb) -> None:
    with pytest.raises(LookupError, match=f"no rule says whose roles may {verb} {noun}"):
        roles_for(noun, verb)


def test_a_refusal_says_for_whom_it_is() -> None:
    assert refusal("users", Verb.WRITE) == "this is for owners of the account"
    assert refusal("jobs", Verb.READ) == "this is for owners and members of the account"
    assert refusal("billing", Verb.WRITE) == "this is for owners and billing users of the account"
    assert refusal("accounts", Verb.READ) == "this is for administrators"
