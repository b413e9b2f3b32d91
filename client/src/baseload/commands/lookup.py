"""From what a person types, an id or a name, to the thing that is meant."""

from __future__ import annotations

import re
from urllib.parse import quote

from baseload.commands.session import Document, MistakeError, Session

PREFIXES = {
    "providers": "prv",
    "regions": "reg",
    "nodes": "nod",
    "jobs": "job",
    "api-keys": "key",
    "accounts": "acc",
    "projects": "prj",
}
GONE = frozenset({"archived", "removing"})


class NobodyError(MistakeError):
    """Nothing has that name."""


def find(session: Session, noun: str, reference: str) -> Document:
    """The resource with this id, or the only one of this name.

    What has been removed is found by name only where nothing else has the name. Names are
    looked for among the newest thousand.
    Raises: ApiError, when the id is not known; NobodyError, when the name is nobody's;
    MistakeError, when it is of many.
    """
    if re.fullmatch(rf"{PREFIXES[noun]}-[0-9a-z]{{26}}", reference):
        return session.get(f"/v1/{noun}/{quote(reference, safe='')}")
    named = [
        each
        for each in session.transport.pages(f"/v1/{noun}", limit=1000)
        if each["name"] == reference
    ]
    found = [each for each in named if each.get("status") not in GONE] or named
    singular = noun.removesuffix("s")
    if not found:
        raise NobodyError(f"no {singular} has the id or the name {reference!r}")
    if len(found) > 1:
        ids = "".join(f"\n  {each['id']}  {each.get('status', '')}".rstrip() for each in found[:20])
        raise MistakeError(f"{len(found)} {noun} have the name {reference!r}; say which:{ids}")
    return found[0]


def find_id(session: Session, noun: str, reference: str) -> str:
    """The id of what is meant."""
    return str(find(session, noun, reference)["id"])
