"""Providers: their responses and their changes. A response never has the key."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlmodel import Session, col, select

from activities.billing.preferred_credits import left_of, set_amount
from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import advisory_lock, database
from activities.providers.base import Credentials, CredentialsReader, KeyMistakeError
from activities.providers.registry import kind_of
from activities.secrets.credentials import (
    OF_THE_SERVER,
    STORE,
    CredentialsError,
    is_read_only,
    is_reference,
    open_credentials,
    own_place,
    reference_mistake,
    seal_credentials,
    stored_row,
)
from api.authorization import Caller
from api.changes import ChangeContext
from api.problems import Problem, field_error, invalid
from api.schemas import providers as schemas
from api.services.colab import endpoints_of
from api.services.implied_regions import create_implied_region, used_nodes_of_implied_region
from api.services.lifecycles import names_of, remove, wrong_state
from api.services.ownership import lifecycle, own, own_locked
from workflows.contracts.statuses import ProviderStatus, RegionStatus
from workflows.rules.catalogue.providers import traits_of

SECRET_REF = "secret_ref"  # noqa: S105 - the name of a field
SSH_KEY_REF = "ssh_key_ref"


def keys_lock(account_id: str) -> str:
    """The advisory lock of whoever takes, replaces or removes keys of the account's providers."""
    return f"providers/{account_id}"


def provider_responses(session: Session, rows: Sequence[tables.Provider]) -> list[schemas.Provider]:
    now = datetime.now(UTC)
    left = left_of(session, rows, now)
    endpoints = endpoints_of(session, [row.id for row in rows], now)
    return [_response(session, row, left.get(row.id), endpoints.get(row.id)) for row in rows]


def provider_response(session: Session, row: tables.Provider) -> schemas.Provider:
    return provider_responses(session, [row])[0]


def _response(
    session: Session,
    row: tables.Provider,
    left: int | None,
    endpoint: schemas.ProviderEndpoint | None,
) -> schemas.Provider:
    return schemas.Provider(
        **lifecycle(row),
        kind=row.kind,
        payment_mode=row.payment_mode,
        preferred_credits_microcredits=row.preferred_credits_microcredits,
        preferred_credits_left_microcredits=left,
        fee_waived=row.fee_waived,
        credentials=_credential_responses(session, row),
        checks=[schemas.ProviderCheck(**({"detail": "", "fix": ""} | one)) for one in row.checks],
        resources=[schemas.ProviderResource(**resource) for resource in row.resources or ()],
        reconciled_at=row.reconciled_at,
        endpoint=endpoint,
    )


def _credential_responses(
    session: Session, row: tables.Provider
) -> schemas.ProviderCredentials | None:
    if row.credentials is None:
        return None
    return schemas.ProviderCredentials(
        reference=row.credentials,
        read_only=is_read_only(session, row.account_id, row.credentials),
        **row.cloud or {},
    )


@dataclass(frozen=True, slots=True)
class ReadCredentials:
    """Credentials that were read before the transaction; `problem` says why that failed."""

    content: str = field(default="", repr=False)
    reference: str | None = None
    key: Credentials | None = None
    problem: Problem | None = None


def read_credentials(
    caller: Caller, kind: str, given: dict[str, Any] | str | None
) -> ReadCredentials | None:
    """The given credentials of a kind of provider; None, when the kind needs none.

    No transaction is open meanwhile, because the check of a private key takes a while. What is
    wrong is told in the transaction, where a repeated request gets its first answer.
    """
    reader = kind_of(kind).credentials
    if reader is None:
        return None
    try:
        return _read(caller, reader, given)
    except Problem as problem:
        return ReadCredentials(problem=problem)


def read_credentials_of(
    caller: Caller, provider_id: str, given: dict[str, Any] | str | None
) -> ReadCredentials | None:
    """The given credentials of a provider of the account, as `read_credentials` reads them."""
    with database().read() as session:
        kind = own(session, tables.Provider, provider_id, caller).kind
    return read_credentials(caller, kind, given)


def _read(
    caller: Caller, reader: CredentialsReader, given: dict[str, Any] | str | None
) -> ReadCredentials:
    if not given:
        rule = f"is needed: {reader.what}, or a reference to one"
        raise invalid(field_error("credentials", rule))
    if isinstance(given, dict) and SSH_KEY_REF in given:
        rule = "is not taken: the platform makes the keys that log in to a provider's machines"
        raise invalid(field_error(f"credentials.{SSH_KEY_REF}", rule))
    if isinstance(given, dict) and SECRET_REF in given:
        given = _reference_in(given)
    literal = json.dumps(given) if isinstance(given, dict) else given.strip()
    reference = literal if is_reference(literal) else None
    content = literal if reference is None else _resolved(caller, reference)
    try:
        return ReadCredentials(content, reference, reader.read(content))
    except KeyMistakeError as wrong:
        raise invalid(field_error(wrong.field, wrong.rule)) from None


def _reference_in(given: dict[str, Any]) -> str:
    """The reference in `{"secret_ref": "…"}`. Raises: Problem `invalid-request`."""
    reference = given[SECRET_REF]
    if not isinstance(reference, str) or not is_reference(reference):
        rule = "is a reference, such as store://providers/<kind>/<name>"
        raise invalid(field_error(f"credentials.{SECRET_REF}", rule))
    if others := sorted(given.keys() - {SECRET_REF}):
        rule = f"stands alone in the credentials; found also {', '.join(others)}"
        raise invalid(field_error(f"credentials.{SECRET_REF}", rule))
    return reference


def enable_provider(
    context: ChangeContext, asked: schemas.ProviderCreation, given: ReadCredentials | None
) -> schemas.Provider:
    """Enable a provider for the account.

    A provider whose region is implied gets it together with its own row.

    Raises: Problem `invalid-request`, when the credentials are missing, wrong or not needed;
    `forbidden`, when a field is for administrators; `conflict`, when the cloud project is enabled.
    """
    if traits_of(asked.kind).only_for_administrators and not context.caller.is_administrator:
        raise Problem("forbidden", f"kind {asked.kind}: is for administrators")
    _check_preference(context, asked)
    _check_terms(asked)
    row = tables.Provider(
        id=new_id("prv"),
        account_id=context.caller.account_id,
        name=asked.name or asked.kind.value,
        kind=asked.kind.value,
        payment_mode=asked.payment_mode,
        preferred_credits_microcredits=asked.preferred_credits_microcredits,
        fee_waived=asked.waive_usage_fee,
        checks=[],
        created_at=context.now,
        updated_at=context.now,
    )
    if given is not None:
        advisory_lock(context.session, keys_lock(context.caller.account_id))
        key = _take_credentials(context, row, given)
        _must_be_the_only_one(context, row.kind, key)
    elif asked.credentials is not None:
        raise _needs_none(row.kind)
    context.create(row)
    if asked.accept_terms:
        context.acknowledge("accept_terms", row.id)
    if traits_of(row.kind).has_implied_region:
        create_implied_region(context, row)
    return provider_response(context.session, row)


def change_provider(
    context: ChangeContext,
    provider_id: str,
    asked: schemas.ProviderChange,
    given: ReadCredentials | None,
) -> schemas.Provider:
    """Replace a provider's key, or change its preferred credits and whether its fee is waived.

    Raises: Problem `invalid-request`, when nothing is asked, or something is wrong or not needed;
    `forbidden`, when it is an administrator's decision; `conflict`, when the provider is busy,
    is removed, or has a key that comes from the server's environment.
    """
    if not asked.model_fields_set:
        raise invalid(field_error("credentials", "or another field is needed: what is to change"))
    row = own_locked(context.session, tables.Provider, provider_id, context.caller)
    if asked.model_fields_set - {"credentials"}:
        _change_preference(context, row, asked)
    if "credentials" in asked.model_fields_set:
        _replace_key(context, row, given)
    return provider_response(context.session, row)


def _replace_key(
    context: ChangeContext, row: tables.Provider, given: ReadCredentials | None
) -> None:
    """Replace the key by another one of the same project, and run all checks again.

    Raises: Problem, as `change_provider`.
    """
    if given is None:
        raise _needs_none(row.kind)
    _must_be_settled(row, "to be given another key")
    if row.credentials and is_read_only(context.session, row.account_id, row.credentials):
        raise Problem(
            "conflict", f"{row.credentials}: comes from the server's environment: change it there"
        )
    advisory_lock(context.session, keys_lock(context.caller.account_id))
    project_id = (row.cloud or {}).get("project_id")
    key = _take_credentials(context, row, given)
    if project_id and key.project_id != project_id:
        rule = f"is a key of the provider's own project, {project_id}"
        raise invalid(field_error("credentials.project_id", rule, key.project_id))
    context.tell(row.id, "recheck")


def recheck_provider(context: ChangeContext, provider_id: str) -> schemas.Provider:
    row = own(context.session, tables.Provider, provider_id, context.caller)
    _must_be_settled(row, "to be checked again")
    context.tell(row.id, "recheck")
    return provider_response(context.session, row)


def remove_provider(context: ChangeContext, provider_id: str, *, force: bool) -> schemas.Provider:
    row = own_locked(context.session, tables.Provider, provider_id, context.caller)
    is_open = (tables.Region.provider_id == row.id, tables.Region.status != RegionStatus.ARCHIVED)
    holds = ("regions", names_of(context.session, tables.Region, is_open))
    if traits_of(row.kind).has_implied_region:
        holds = ("nodes", used_nodes_of_implied_region(context.session, row))
    remove(context, row, force=force, holds=[holds])
    return provider_response(context.session, row)


def _take_credentials(
    context: ChangeContext, row: tables.Provider, given: ReadCredentials
) -> Credentials:
    """Store the credentials encrypted, unless they are a reference, and set them in the row.

    Raises: Problem, naming the field and the rule that it breaks.
    """
    if given.problem is not None or given.key is None:
        raise given.problem or invalid(field_error("credentials", "are needed"))
    account_id, path = context.caller.account_id, own_place(row.kind, row.id)
    reference = given.reference
    if reference is None:
        reference = seal_credentials(context.session, account_id, path, given.content, context.now)
    elif _was_removed(context, reference):
        raise invalid(field_error("credentials", f"leads to a key: {reference}: was just removed"))
    elif reference != f"{STORE}{path}":
        stale = context.session.get(tables.StoredSecret, path)
        if stale is not None:
            context.session.delete(stale)
    row.credentials, row.cloud = reference, given.key.shown
    return given.key


def _was_removed(context: ChangeContext, reference: str) -> bool:
    """Whether the store no longer has a key that was read before the transaction."""
    if not reference.startswith(STORE) or context.caller.is_administrator:
        return False
    return stored_row(context.session, context.caller.account_id, reference) is None


def _resolved(caller: Caller, reference: str) -> str:
    """The credentials that a reference names, if the caller may use them."""
    if reference.startswith(OF_THE_SERVER) and not caller.is_administrator:
        raise Problem("forbidden", "credentials: env:// and file:// are for administrators")
    rule = reference_mistake(reference)
    if rule is not None:
        raise invalid(field_error("credentials", rule))
    try:
        with database().read() as session:
            is_of_the_server = is_read_only(session, caller.account_id, reference)
            if is_of_the_server and not caller.is_administrator:
                raise Problem("forbidden", f"credentials: {reference} is the server's own")
            return open_credentials(session, caller.account_id, reference)
    except CredentialsError as wrong:
        raise invalid(field_error("credentials", f"leads to a key: {wrong}")) from None


def _must_be_the_only_one(context: ChangeContext, kind: str, key: Credentials) -> None:
    """Refuse a second provider for one cloud project.

    Two providers would count the project's quotas twice, and terminate its machines twice. A key
    that names no project is of a marketplace, whose machines carry the provider's id.
    """
    if not key.project_id:
        return
    others = select(tables.Provider).where(
        tables.Provider.account_id == context.caller.account_id,
        tables.Provider.kind == kind,
        col(tables.Provider.status) != ProviderStatus.ARCHIVED,
    )
    for other in context.session.exec(others):
        if (other.cloud or {}).get("project_id") == key.project_id:
            raise Problem("conflict", f"project {key.project_id}: is enabled as {other.id}")


def _check_terms(asked: schemas.ProviderCreation) -> None:
    """Raises: Problem `invalid-request`, with the terms that are not accepted."""
    terms = traits_of(asked.kind).terms
    if terms and not asked.accept_terms:
        raise invalid(field_error("accept_terms", f"is true to accept the terms: {terms}", False))
    if asked.accept_terms and not terms:
        rule = f"is for kinds with terms; {asked.kind} has none"
        raise invalid(field_error("accept_terms", rule, True))


def _needs_none(kind: str) -> Problem:
    return invalid(field_error("credentials", f"{kind} machines need none"))


def _must_be_settled(row: tables.Provider, what: str) -> None:
    if row.status not in (ProviderStatus.READY, ProviderStatus.FAILED):
        raise wrong_state("provider", row, f"ready or failed {what}")


def _check_preference(context: ChangeContext, asked: schemas.ProviderCreation) -> None:
    """Refuse preferred credits and a waived fee for machines you own, on which nothing is spent."""
    if asked.waive_usage_fee:
        _must_decide_waivers(context)
    if traits_of(asked.kind).is_cloud:
        if asked.waive_usage_fee and not asked.preferred_credits_microcredits:
            raise _lasts_as_long_as_credits()
        return
    _refuse_unavailable(asked.kind, asked)


def _refuse_unavailable(
    kind: str, asked: schemas.ProviderCreation | schemas.ProviderChange
) -> None:
    """Refuse both of a provider that is no cloud. Raises: Problem `invalid-request`."""
    unavailable = [
        field_error(name, f"is not available yet for {kind}", value)
        for name in ("preferred_credits_microcredits", "waive_usage_fee")
        if (value := getattr(asked, name))
    ]
    if unavailable:
        raise invalid(*unavailable)


def _change_preference(
    context: ChangeContext, row: tables.Provider, asked: schemas.ProviderChange
) -> None:
    """Change the preferred credits, the waiver of the usage fee, or both.

    A larger amount makes a waiver longer, which is an administrator's decision too. Without an
    amount there is no waiver. Raises: Problem, as `change_provider`.
    """
    if row.status in (ProviderStatus.REMOVING, ProviderStatus.ARCHIVED):
        raise wrong_state("provider", row, "there to be preferred")
    if not traits_of(row.kind).is_cloud:
        _refuse_unavailable(row.kind, asked)
        return
    before = row.preferred_credits_microcredits or 0
    amount, waives = row.preferred_credits_microcredits, row.fee_waived
    if "preferred_credits_microcredits" in asked.model_fields_set:
        amount = asked.preferred_credits_microcredits
    if asked.waive_usage_fee is not None:
        waives = asked.waive_usage_fee
    elif amount is None:
        waives = False
    if waives and not (row.fee_waived and (amount or 0) <= before):
        _must_decide_waivers(context)
    if waives and amount is None:
        raise _lasts_as_long_as_credits()
    if amount != row.preferred_credits_microcredits:
        set_amount(context.session, row, amount, context.now)
    row.fee_waived = waives
    row.updated_at = context.now


def _must_decide_waivers(context: ChangeContext) -> None:
    """Raises: Problem `forbidden`, for anybody but administrators."""
    if not context.caller.is_administrator:
        raise Problem("forbidden", "waive_usage_fee: is an administrator's decision")


def _lasts_as_long_as_credits() -> Problem:
    rule = "lasts as long as preferred_credits_microcredits do, which are missing"
    return invalid(field_error("waive_usage_fee", rule, True))
