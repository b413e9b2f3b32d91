"""Providers: how they are shown, and how they are changed. A key comes in and never goes out."""

import json
from typing import Any

from sqlmodel import col, select

from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import take_turn
from activities.providers.gcp.key import KeyMistakeError, ServiceAccountKey, read_key
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
)
from api.changes import Step
from api.problems import Problem, invalid, mistake
from api.schemas import providers as shapes
from api.services.lifecycles import add_lifecycle, names_of, remove, wrong_state
from api.services.ownership import lifecycle, own, own_locked
from workflows.contracts.statuses import ProviderKind, ProviderStatus, RegionStatus


def shown_provider(row: tables.Provider) -> shapes.Provider:
    return shapes.Provider(
        **lifecycle(row, "provider"),
        kind=row.kind,
        payment_mode=row.payment_mode,
        preferred_credits_microcredits=row.preferred_credits_microcredits,
        fee_waived=row.fee_waived,
        credentials=_shown_credentials(row),
        checks=[shapes.ProviderCheck(**({"detail": "", "fix": ""} | one)) for one in row.checks],
        parts=[shapes.ProviderPart(**part) for part in row.parts or ()],
    )


def _shown_credentials(row: tables.Provider) -> shapes.ProviderCredentials | None:
    if row.credentials is None:
        return None
    return shapes.ProviderCredentials(
        reference=row.credentials, read_only=is_read_only(row.credentials), **row.cloud or {}
    )


def enable_provider(step: Step, asked: shapes.ProviderCreation) -> shapes.Provider:
    _check_preference(step, asked)
    row = tables.Provider(
        id=new_id("prv"),
        account_id=step.caller.account_id,
        name=asked.name or asked.kind.value,
        kind=asked.kind.value,
        payment_mode=asked.payment_mode,
        preferred_credits_microcredits=asked.preferred_credits_microcredits,
        fee_waived=asked.waive_usage_fee,
        checks=[],
        created_at=step.now,
        updated_at=step.now,
    )
    if asked.kind is ProviderKind.PHYSICAL:
        if asked.credentials is not None:
            raise invalid(mistake("credentials", "physical machines need none"))
    else:
        take_turn(step.session, f"providers/{step.caller.account_id}")
        key = _take_credentials(step, row, asked.credentials)
        _must_be_the_only_one(step, key)
    add_lifecycle(step, row, "provider")
    return shown_provider(row)


def change_provider(step: Step, provider_id: str, asked: shapes.ProviderChange) -> shapes.Provider:
    """Take another key of the same project, and have everything checked with it."""
    row = own_locked(step.session, tables.Provider, provider_id, step.caller)
    if row.kind == ProviderKind.PHYSICAL:
        raise invalid(mistake("credentials", "physical machines need none"))
    _must_be_settled(row, "to be given another key")
    if row.credentials is not None and is_read_only(row.credentials):
        raise Problem(
            "conflict", f"{row.credentials}: comes from the server's environment: change it there"
        )
    project_id = (row.cloud or {}).get("project_id")
    key = _take_credentials(step, row, asked.credentials)
    if project_id is not None and key.project_id != project_id:
        rule = f"is a key of the provider's own project, {project_id}"
        raise invalid(mistake("credentials.project_id", rule, key.project_id))
    step.tell(row.id, "recheck")
    return shown_provider(row)


def recheck_provider(step: Step, provider_id: str) -> shapes.Provider:
    row = own(step.session, tables.Provider, provider_id, step.caller)
    _must_be_settled(row, "to be checked again")
    step.tell(row.id, "recheck")
    return shown_provider(row)


def remove_provider(step: Step, provider_id: str, *, force: bool) -> shapes.Provider:
    row = own_locked(step.session, tables.Provider, provider_id, step.caller)
    of_it = (tables.Region.provider_id == row.id, tables.Region.status != RegionStatus.ARCHIVED)
    remove(step, row, force=force, holds=("regions", names_of(step.session, tables.Region, of_it)))
    return shown_provider(row)


def _take_credentials(
    step: Step, row: tables.Provider, given: dict[str, Any] | str | None
) -> ServiceAccountKey:
    """Look at what was given, keep it where it belongs, and note where that is.

    Raises: Problem, naming field and rule of what is wrong.
    """
    if not given:
        rule = "is needed: the JSON of a service-account key, or a reference to one"
        raise invalid(mistake("credentials", rule))
    literal = json.dumps(given) if isinstance(given, dict) else given.strip()
    reference = literal if is_reference(literal) else None
    content = literal if reference is None else _resolved(step, reference)
    try:
        key = read_key(content)
    except KeyMistakeError as wrong:
        raise invalid(mistake(wrong.field, wrong.rule)) from None
    account_id, place = step.caller.account_id, own_place(row.kind, row.id)
    if reference is None:
        reference = seal_credentials(step.session, account_id, place, content, step.now)
    elif reference != f"{STORE}{place}":
        stale = step.session.get(tables.StoredSecret, place)
        if stale is not None:
            step.session.delete(stale)
    row.credentials, row.cloud = reference, key.shown
    return key


def _resolved(step: Step, reference: str) -> str:
    """What is behind a reference that the caller may use."""
    if reference.startswith(OF_THE_SERVER) and not step.caller.is_administrator:
        raise Problem("forbidden", "credentials: env:// and file:// are for administrators")
    rule = reference_mistake(reference)
    if rule is not None:
        raise invalid(mistake("credentials", rule))
    if is_read_only(reference) and not step.caller.is_administrator:
        raise Problem("forbidden", f"credentials: {reference} is the server's own")
    try:
        return open_credentials(step.session, step.caller.account_id, reference)
    except CredentialsError as wrong:
        raise invalid(mistake("credentials", f"leads to a key: {wrong}")) from None


def _must_be_the_only_one(step: Step, key: ServiceAccountKey) -> None:
    """A project twice would count its quotas twice, and end its machines once too often."""
    others = select(tables.Provider).where(
        tables.Provider.account_id == step.caller.account_id,
        tables.Provider.kind == ProviderKind.GCP,
        col(tables.Provider.status) != ProviderStatus.ARCHIVED,
    )
    for other in step.session.exec(others):
        if (other.cloud or {}).get("project_id") == key.project_id:
            raise Problem("conflict", f"project {key.project_id}: is enabled as {other.id}")


def _must_be_settled(row: tables.Provider, what: str) -> None:
    if row.status not in (ProviderStatus.READY, ProviderStatus.FAILED):
        raise wrong_state("provider", row, f"ready or failed {what}")


def _check_preference(step: Step, asked: shapes.ProviderCreation) -> None:
    """Being used first until an amount is spent, and costing nothing until then, are for machines
    that are rented: nothing is spent on one's own."""
    if asked.waive_usage_fee and not step.caller.is_administrator:
        raise Problem("forbidden", "waive_usage_fee: is an administrator's decision")
    if asked.kind is not ProviderKind.PHYSICAL:
        if asked.waive_usage_fee and not asked.preferred_credits_microcredits:
            rule = "lasts as long as preferred_credits_microcredits do, which are missing"
            raise invalid(mistake("waive_usage_fee", rule, True))
        return
    unavailable = [
        mistake(name, f"is not available yet for {asked.kind}", value)
        for name in ("preferred_credits_microcredits", "waive_usage_fee")
        if (value := getattr(asked, name))
    ]
    if unavailable:
        raise invalid(*unavailable)
