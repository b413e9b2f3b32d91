"""Finds the resource that a person names by its id or its name."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from urllib.parse import quote

from baseload.commands.session import Document, MistakeError, Session

PREFIXES = {
    "providers": "prv",
    "regions": "reg",
    "nodes": "nod",
    "jobs": "job",
    "datasets": "dat",
    "models": "mod",
    "checkpoints": "chk",
    "volumes": "vol",
    "api-keys": "key",
    "accounts": "acc",
    "projects": "prj",
    "datastores": "dst",
    "reservations": "rsv",
    "devices": "dev",
    "device-configurations": "dcf",
    "device-deployments": "dpl",
    "federated-jobs": "fed",
}
_SINGULARS = {
    "device-configurations": "device configuration",
    "device-deployments": "deployment",
    "federated-jobs": "federated job",
}
"""What people read, where it is not the noun of the URL without its `s`."""
NEWEST = 1000
"""Among how many resources a name or a pattern is searched."""
GONE = frozenset({"archived", "removing"})
ENDED = frozenset({"finished", "failed", "canceled"})
"""The statuses of a job that nothing changes any more but its removal."""


class UnknownNameError(MistakeError):
    """No resource has this name."""


def find(session: Session, noun: str, reference: str) -> Document:
    """The resource with this id, or the only resource of this name.

    A removed resource is found by name only if no other has the name. Names are searched among
    the newest thousand resources.
    Raises: ApiError, when the id is not known; UnknownNameError, when no resource has the name;
    MistakeError, when several have it.
    """
    found = _all(session, noun, reference)
    if len(found) > 1:
        raise _ambiguous(noun, reference, found)
    return found[0]


def find_newest_job(session: Session, reference: str) -> Document:
    """The job with this id, or the newest one of this name: for commands that only read.

    That there are several is said on stderr. Raises: as `find`, but MistakeError.
    """
    found = _all(session, "jobs", reference)
    if len(found) > 1:
        newest = found[0]
        session.screen.say(
            f"{len(found)} jobs have the name {reference!r}; this is the newest: "
            f"{newest['id']}, {newest['status']}"
        )
    return found[0]


def find_open_job(session: Session, reference: str) -> Document:
    """The job with this id, or the only one of this name that has not ended: for changes.

    Raises: as `find`.
    """
    found = _all(session, "jobs", reference)
    going = [each for each in found if each["status"] not in ENDED] or found
    if len(going) > 1:
        raise _ambiguous("jobs", reference, going)
    return going[0]


def find_jobs(
    session: Session,
    references: Sequence[str],
    one: Callable[[Session, str], Document] = find_newest_job,
    suits: Callable[[Document], bool] = lambda _: True,
) -> list[Document]:
    """The jobs that ids, names and shell patterns such as `sweep-*` mean, each once, in order.

    one: what an id or a name means. suits: which of the jobs of such names a pattern means, which
    may be none of them.
    Raises: as `one`; UnknownNameError, when no job has a name like a pattern.
    """
    found: dict[str, Document] = {}
    named: list[Document] | None = None
    for reference in references:
        if not is_pattern(reference):
            job = one(session, reference)
            found[job["id"]] = job
            continue
        named = list(session.transport.pages("/v1/jobs", limit=NEWEST)) if named is None else named
        matching = [each for each in named if is_like(each, reference)]
        if not matching:
            raise UnknownNameError(f"no job has a name like {reference!r}")
        found.update((each["id"], each) for each in matching if suits(each))
    return list(found.values())


def is_like(job: Document, reference: str) -> bool:
    """Whether an id, a name or a pattern means a job, among others."""
    return reference in (job["id"], job["name"]) or fnmatchcase(job["name"], reference)


def is_pattern(reference: str) -> bool:
    """Whether a reference is a shell pattern, and no single name."""
    return any(each in reference for each in "*?[")


def _all(session: Session, noun: str, reference: str) -> list[Document]:
    """The resource with this id, or all of this name, newest first; there is at least one."""
    if re.fullmatch(rf"{PREFIXES[noun]}-[0-9a-z]{{26}}", reference):
        return [session.get(f"/v1/{noun}/{quote(reference, safe='')}")]
    named = [
        each
        for each in session.transport.pages(f"/v1/{noun}", limit=NEWEST)
        if each["name"] == reference
    ]
    found = [each for each in named if each.get("status") not in GONE] or named
    if not found:
        singular = _SINGULARS.get(noun) or noun.removesuffix("s")
        raise UnknownNameError(f"no {singular} has the id or the name {reference!r}")
    return found


def _ambiguous(noun: str, reference: str, found: list[Document]) -> MistakeError:
    ids = "".join(f"\n  {each['id']}  {each.get('status', '')}".rstrip() for each in found[:20])
    plural = noun.replace("-", " ")
    return MistakeError(f"{len(found)} {plural} have the name {reference!r}; say the id:{ids}")


def find_id(session: Session, noun: str, reference: str) -> str:
    """The id of the resource, see `find`."""
    return str(find(session, noun, reference)["id"])
