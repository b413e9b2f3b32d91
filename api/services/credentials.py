"""Credentials of an account: where each key of a provider is, and those that the store keeps."""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence

from sqlmodel import Session, col, select

from activities.db import tables
from activities.db.session import advisory_lock
from activities.providers.base import Credentials, CredentialsReader, KeyMistakeError
from activities.providers.registry import kind_of
from activities.secrets.credentials import (
    ENVIRONMENT,
    FILE,
    CredentialsError,
    field_place,
    field_reference,
    is_read_only,
    open_credentials,
    seal_credentials,
    stored_row,
)
from api.authorization import Caller
from api.changes import ChangeContext
from api.problems import Problem, field_error, invalid, missing
from api.schemas import credentials as schemas
from api.schemas.credentials import Source
from api.services.account_limits import check_limit
from api.services.providers import ReadCredentials, keys_lock
from workflows.contracts.statuses import ProviderStatus
from workflows.rules.catalogue.providers import TRAITS


def credentials_of_account(session: Session, caller: Caller) -> schemas.CredentialList:
    """The credentials of the caller's account; those of the server only where a provider uses them,
    or for an administrator."""
    used = _users(session, caller.account_id)
    places = dict(_places())
    items = []
    for reference in (*places, *sorted(used.keys() - places.keys())):
        found = _response(session, caller, reference, used.get(reference, ()))
        if found is not None:
            items.append(found)
    return schemas.CredentialList(items=items)


def read_value(kind: str, name: str, asked: schemas.CredentialSetting) -> ReadCredentials:
    """The given key of a kind, read before the transaction; `problem` says why that failed."""
    reader = dict(_places()).get(field_reference(kind, name))
    if reader is None:
        return ReadCredentials(problem=missing("credential", f"{kind}/{name}"))
    given = asked.value
    content = json.dumps(given) if isinstance(given, dict) else given.strip()
    try:
        return ReadCredentials(content, key=reader.read(content))
    except KeyMistakeError as wrong:
        field = wrong.field.replace("credentials", "value", 1)
        return ReadCredentials(problem=invalid(field_error(field, wrong.rule)))


def set_credential(
    context: ChangeContext, kind: str, name: str, given: ReadCredentials
) -> schemas.Credential:
    """Store a key, in place of an earlier one; the providers that use it are checked with it.

    Raises: Problem `not-found`, for no such kind or field; `invalid-request`, for what is no key,
    or is of another project than a provider that uses it; `conflict`, when the server's environment
    has the key.
    """
    if given.problem is not None or given.key is None:
        raise given.problem or invalid(field_error("value", "is needed"))
    reference = _changeable(context, kind, name)
    account_id = context.caller.account_id
    users = _users(context.session, account_id).get(reference, [])
    for row in users:
        _take_over(context, row, given.key)
    if stored_row(context.session, account_id, reference) is None:
        check_limit(context, tables.StoredSecret)
    place = field_place(account_id, kind, name)
    seal_credentials(context.session, account_id, place, given.content, context.now)
    context.session.flush()
    return _shown(context.session, context.caller, reference, users)


def remove_credential(context: ChangeContext, kind: str, name: str) -> schemas.Credential:
    """Remove a key from the store.

    Raises: Problem `not-found`, when it is not there; `conflict`, when a provider uses it, or the
    server's environment has it.
    """
    reference = _changeable(context, kind, name)
    account_id = context.caller.account_id
    row = stored_row(context.session, account_id, reference)
    if row is None:
        raise missing("credential", f"{kind}/{name}")
    users = _users(context.session, account_id).get(reference, [])
    if users:
        ids = ", ".join(each.id for each in users)
        raise Problem("conflict", f"{reference}: asked to remove it, found that {ids} use it")
    found = _shown(context.session, context.caller, reference, users)
    context.session.delete(row)
    return found


def _changeable(context: ChangeContext, kind: str, name: str) -> str:
    """The reference of a field, of whose account nobody else changes keys now.

    Raises: Problem `not-found`, `conflict`.
    """
    reference = field_reference(kind, name)
    if reference not in dict(_places()):
        raise missing("credential", f"{kind}/{name}")
    context.resource_id = reference
    advisory_lock(context.session, keys_lock(context.caller.account_id))
    is_administrators = context.caller.is_administrator
    if is_administrators and is_read_only(context.session, context.caller.account_id, reference):
        raise Problem(
            "conflict", f"{reference}: comes from the server's environment: change it there"
        )
    return reference


def _take_over(context: ChangeContext, row: tables.Provider, key: Credentials) -> None:
    """Let a provider use another key, with which all its checks run again."""
    project_id = (row.cloud or {}).get("project_id")
    if project_id and key.project_id != project_id:
        rule = f"is a key of the project of {row.id}, which uses it, {project_id}"
        raise invalid(field_error("value.project_id", rule, key.project_id))
    row.cloud = key.shown
    if row.status in (ProviderStatus.READY, ProviderStatus.FAILED):
        context.tell(row.id, "recheck")


def _places() -> Iterator[tuple[str, CredentialsReader]]:
    """The reference of each field of each kind that needs a key, and what reads it."""
    for kind in TRAITS:
        reader = kind_of(kind).credentials
        if reader is not None:
            yield field_reference(kind, reader.field), reader


def _users(session: Session, account_id: str) -> dict[str, list[tables.Provider]]:
    """The account's providers that are not archived, by the reference of their key."""
    query = select(tables.Provider).where(
        tables.Provider.account_id == account_id,
        col(tables.Provider.status) != ProviderStatus.ARCHIVED,
        col(tables.Provider.credentials).is_not(None),
    )
    found = defaultdict(list)
    for row in session.exec(query.order_by(col(tables.Provider.id))):
        found[str(row.credentials)].append(row)
    return found


def _response(
    session: Session, caller: Caller, reference: str, users: Sequence[tables.Provider]
) -> schemas.Credential | None:
    """The credential at a reference; None: the account has none there."""
    if users:
        return _shown(session, caller, reference, users)
    is_of_the_server = is_read_only(session, caller.account_id, reference)
    if is_of_the_server and not caller.is_administrator:
        return None
    if not is_of_the_server and stored_row(session, caller.account_id, reference) is None:
        return None
    return _shown(session, caller, reference, users)


def _shown(
    session: Session, caller: Caller, reference: str, users: Sequence[tables.Provider]
) -> schemas.Credential:
    kind, name = _named(reference, users)
    source = _source(session, caller.account_id, reference)
    in_store = source is Source.STORE
    row = stored_row(session, caller.account_id, reference) if in_store else None
    return schemas.Credential(
        kind=kind,
        field=name,
        reference=reference,
        source=source,
        masked=_masked(session, caller.account_id, (kind, reference), users),
        read_only=not in_store,
        provider_ids=[each.id for each in users],
        updated_at=row.updated_at if row is not None else None,
    )


def _named(reference: str, users: Sequence[tables.Provider]) -> tuple[str, str]:
    """The kind and the field of a reference; one of the server's stands for its kind's field."""
    if reference.startswith((ENVIRONMENT, FILE)):
        reader = kind_of(users[0].kind).credentials
        return users[0].kind, reader.field if reader is not None else ""
    _, kind, name = reference.split("//")[1].split("/")
    return kind, name


def _source(session: Session, account_id: str, reference: str) -> Source:
    if reference.startswith(FILE):
        return Source.FILE
    if reference.startswith(ENVIRONMENT) or is_read_only(session, account_id, reference):
        return Source.ENVIRONMENT
    return Source.STORE


def _masked(
    session: Session,
    account_id: str,
    place: tuple[str, str],
    users: Sequence[tables.Provider],
) -> str:
    """The end of a key. place: its kind and its reference."""
    kind, reference = place
    if users:
        return str((users[0].cloud or {}).get("key", ""))
    reader = kind_of(kind).credentials
    try:
        content = open_credentials(session, account_id, reference)
        return reader.read(content).shown["key"] if reader is not None else ""
    except (CredentialsError, KeyMistakeError):
        return ""
