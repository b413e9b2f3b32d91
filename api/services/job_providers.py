"""The providers that a job's document names, by kind, id or name, in the order of preference.

A kind means all providers of the kind. An id or a name means one of the project's account; a name
is stored as the id, so that a job keeps its provider. A word that is a kind is never a name.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from sqlmodel import Session, col, select

from activities.db import tables
from api.problems import field_error
from api.schemas.base import FieldError
from api.services.lifecycles import GONE
from workflows.contracts.job_submission import JobSubmission
from workflows.contracts.statuses import ProviderKind
from workflows.rules.catalogue.gpu_names import canonical_name, parse_gpus, unknown_name_rule
from workflows.rules.catalogue.providers import rented_kinds

KINDS = tuple(kind.value for kind in ProviderKind)
FIELD = "placement.providers"
_RULE = "is a kind, or the id or the name of a provider of the project's account: not found"


def wrong_providers(
    session: Session, document: Any, owner_id: str, caller_account_id: str
) -> list[FieldError]:
    """The field errors for names in the document that are no provider of the project's account.

    Names that are nearly the same are shown to the owner's own account alone.
    """
    asked = _asked(document)
    rows = _rows(session, owner_id) if any(name not in KINDS for name in asked.values()) else []
    found, by_name = {row.id for row in rows}, _by_name(rows)
    shown = [*KINDS, *(by_name if owner_id == caller_account_id else ())]
    wrong = []
    for index, name in asked.items():
        if name in KINDS or name in found:
            continue
        ids = by_name.get(name, [])
        if len(ids) != 1:
            rule = _ambiguous(name, ids) if ids else _not_found(name, shown)
            wrong.append(field_error(f"{FIELD}.{index}", rule, name))
    return wrong


def with_provider_ids(session: Session, submission: JobSubmission, owner_id: str) -> JobSubmission:
    """The submission with the ids of providers in place of their names; it has no mistakes."""
    asked = submission.placement.providers or ()
    if all(name in KINDS for name in asked):
        return submission
    by_name = _by_name(_rows(session, owner_id))
    whole = tuple(
        dict.fromkeys(name if name in KINDS else by_name.get(name, [name])[0] for name in asked)
    )
    placement = submission.placement.model_copy(update={"providers": whole})
    return submission.model_copy(update={"placement": placement})


def wrong_gpu_types(
    session: Session, document: Any, owner_id: str, known: Sequence[str]
) -> list[FieldError]:
    """The field errors for unknown GPU types that pass unchanged for no provider of the document.

    They pass where it names a marketplace. The rules know of kinds; this is for ids and names.
    known: the GPU types of the platform's nodes.
    """
    named = list(_asked(document).values())
    if not named or all(name in KINDS for name in named):
        return []
    rows = _rows(session, owner_id)
    kinds = set(named) | {row.kind for row in rows if {row.id, row.name} & set(named)}
    if kinds & set(rented_kinds()):
        return []
    return [
        field_error(field, unknown_name_rule(name, known), name)
        for field, name in _gpu_types(document).items()
        if canonical_name(name, known) is None
    ]


def provider_names(session: Session, provider_ids: Iterable[str]) -> dict[str, str]:
    """The names of these providers by their ids."""
    query = select(tables.Provider.id, tables.Provider.name)
    rows = session.exec(query.where(col(tables.Provider.id).in_(sorted(set(provider_ids)))))
    return dict(rows.all())


def _asked(document: Any) -> dict[int, str]:
    placement = document.get("placement") if isinstance(document, dict) else None
    asked = placement.get("providers") if isinstance(placement, dict) else None
    if not isinstance(asked, list):
        return {}
    return {index: name for index, name in enumerate(asked) if isinstance(name, str) and name}


def _gpu_types(document: Mapping[str, Any]) -> dict[str, str]:
    """The GPU types that a document asks for, by field."""
    resources = document.get("resources")
    if not isinstance(resources, dict):
        return {}
    types, short = resources.get("gpu_types"), resources.get("gpus")
    found = {
        f"resources.gpu_types.{index}": name
        for index, name in enumerate(types if isinstance(types, list) else ())
        if isinstance(name, str)
    }
    try:
        name = parse_gpus(short).name if isinstance(short, str) else None
    except ValueError:
        name = None
    return found | ({"resources.gpus": name} if name else {})


def _rows(session: Session, owner_id: str) -> list[Any]:
    table = tables.Provider
    query = (
        select(table.id, table.name, table.kind)
        .where(table.account_id == owner_id, col(table.status).not_in(GONE))
        .order_by(col(table.id))
    )
    return list(session.exec(query))


def _by_name(rows: Iterable[Any]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        found[row.name].append(row.id)
    return dict(found)


def _ambiguous(name: str, ids: Sequence[str]) -> str:
    return f"is one provider: {len(ids)} are called {name}, give one of {', '.join(ids)}"


def _not_found(name: str, shown: Sequence[str]) -> str:
    near = get_close_matches(name, shown, n=3, cutoff=0.5)
    return f"{_RULE}; did you mean {' or '.join(near)}?" if near else _RULE
