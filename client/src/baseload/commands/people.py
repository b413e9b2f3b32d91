"""The ids of users in reasons and events as people: `you`, or the e-mail address of a user."""

from __future__ import annotations

import re

from baseload.commands.session import Session
from baseload.errors import ApiError

_USER = re.compile(r"\busr-[0-9a-z]{26}\b")


def named_people(session: Session, text: str | None) -> str | None:
    """The text with people instead of the ids of users, as far as the key may know them."""
    if not text or not _USER.search(text):
        return text
    people = session.people
    return _USER.sub(lambda match: people.get(match[0], match[0]), text)


def people_of(session: Session) -> dict[str, str]:
    """The names of the account's users by their ids; the caller is `you`."""
    try:
        users = {each["id"]: str(each["email"]) for each in session.items("/v1/users")}
    except ApiError:
        users = {}
    try:
        users[session.get("/v1/account")["user_id"]] = "you"
    except (ApiError, KeyError):
        return users
    return users
