"""Finds the resource that a person names by its id or its name."""

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


class UnknownNameError(MistakeError):
    """No resource has this name."""


def find(session: Session, noun: str, reference: str) -> Document:
    """The resource with this id, or the only resource of this name.

    A removed resource is found by name only if no other has the name. Names are searched among
    the newest thousand resources.
    Raises: ApiError, when the id is not known; UnknownNameError, when no resource has the name;
    MistakeError, when several have it.
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
        raise UnknownNameError(f"no {singular} has the id or the name {reference!r}")
    if len(found) > 1:
        ids = "".join(f"\n  {each['id']}  {each.get('status', '')}".rstrip() for each in found[:20])
        raise MistakeError(f"{len(found)} {noun} have the name {reference!r}; say which:{ids}")
    return found[0]


def find_id(session: Session, noun: str, reference: str) -> str:
    """The id of the resource, see `find`."""
    return str(find(session, noun, reference)["id"])
