"""The words for people in reasons and events, which name a user by its id."""

import re
from collections.abc import Iterable

from sqlmodel import Session, col, select

from activities.db import tables
from api.authorization import Caller

_USER = re.compile(r"\busr-[0-9a-z]{26}\b")
OTHERS = "a member"
"""A user of whom the reader may know no more."""


class People:
    """The users whom some texts name, as one reader may see them.

    A user of the reader's own account is shown by e-mail address, for readers who may list users;
    any other as `a member`.
    """

    def __init__(self, session: Session, caller: Caller, texts: Iterable[str | None]) -> None:
        ids = {found for text in texts if text for found in _USER.findall(text)}
        self._names: dict[str, str] = {}
        if not ids or not (caller.may("users:read") or caller.user_id in ids):
            return
        rows = session.exec(select(tables.User).where(col(tables.User.id).in_(ids)))
        for row in rows:
            listed = row.account_id == caller.account_id and caller.may("users:read")
            if listed or row.id == caller.user_id:
                self._names[row.id] = row.claimed_email or row.email

    def named(self, text: str | None) -> str | None:
        """The text with a name in place of each id of a user."""
        if not text:
            return text
        return _USER.sub(lambda found: self._names.get(found[0], OTHERS), text)
