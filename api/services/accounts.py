"""Accounts: their responses and their changes."""

from datetime import UTC

from sqlmodel import Session, col, select

from activities.accounts import accounts
from activities.billing import payers
from activities.billing.device_days import device_days
from activities.billing.runway import lock_balance, recompute_runway
from activities.db import tables
from activities.db.session import advisory_lock
from activities.federation.consent import wake_federated_of_account
from api.changes import ChangeContext
from api.problems import Problem, field_error, invalid, missing
from api.schemas import accounts as schemas

MOST_WOKEN = 100


def account_response(session: Session, row: tables.Account) -> schemas.Account:
    return schemas.Account(
        **row.model_dump(exclude={"job_bytes", "wallets", "idle_workload", "idle_revision"}),
        wallets=row.wallets or {},
        idle_workload=schemas.IdleWorkloadShown(**row.idle_workload) if row.idle_workload else None,
        balance_microcredits=payers.balance_microcredits(session, row),
    )


def find_account(session: Session, account_id: str) -> tables.Account:
    """The account of this id, whoever owns it.

    Raises: Problem `not-found`, when there is no such account.
    """
    row = session.get(tables.Account, account_id)
    if row is None:
        raise missing("account", account_id)
    return row


def create_account(context: ChangeContext, asked: schemas.AccountCreation) -> schemas.Account:
    _check_name(context.session, asked.name)
    _check_billing(context.session, asked.billing_account_id, None)
    account, _ = accounts.add_account(context.session, asked.name, asked.owner_email, context.now)
    context.concerned_account_id = account.id
    account.plan = asked.plan
    account.billing_account_id = asked.billing_account_id
    return account_response(context.session, account)


def change_account(
    context: ChangeContext, account_id: str, asked: schemas.AccountChange
) -> schemas.Account:
    """Change an account, whichever it is.

    Raises: Problem `not-found`, `invalid-request`; `conflict`, for an account that was removed, a
    name that another has, or a payer for whom somebody pays.
    """
    row = find_account(context.session, account_id)
    context.concerned_account_id = row.id
    if row.removed_at is not None:
        raise Problem("conflict", f"account {row.name}: is removed")
    return _changed(context, row, asked)


def change_own_account(context: ChangeContext, asked: schemas.OwnAccountChange) -> schemas.Account:
    row = find_account(context.session, context.caller.account_id)
    return _changed(context, row, asked)


def _changed(
    context: ChangeContext,
    row: tables.Account,
    asked: schemas.AccountChange | schemas.OwnAccountChange,
) -> schemas.Account:
    given = {name: getattr(asked, name) for name in asked.model_fields_set}
    for name in ("name", "plan"):
        if name in given and given[name] is None:
            raise invalid(field_error(name, "is not null"))
    if "name" in given and given["name"] != row.name:
        _check_name(context.session, given["name"])
    if "billing_account_id" in given:
        _check_billing(context.session, given["billing_account_id"], row.id)
    if given.get("idle_workload") is not None:
        given["idle_workload"] = given["idle_workload"].model_dump()
    paid_by = payers.payer_of(row)
    for name, value in given.items():
        setattr(row, name, value)
    if (payer_id := payers.payer_of(row)) != paid_by:
        _change_payer(context, row, paid_by, payer_id)
    if {"wallets", "idle_workload"} & set(given):
        row.idle_revision += 1
        _wake_idle_nodes(context, row)
    if "plan" in given:
        context.requests += wake_federated_of_account(context.session, row.id, context.now)
    row.updated_at = context.now
    return account_response(context.session, row)


def _change_payer(context: ChangeContext, row: tables.Account, old: str, new: str) -> None:
    """Recompute the runways of two payers, as the fees of the devices go from one to the other.

    What runs of jobs is paid by whom it began with.
    """
    session = context.session
    session.flush()
    for each in sorted((old, new)):
        lock_balance(session, each)
    added = sum(
        each.microcredits // 24
        for each in device_days(session, context.now.astimezone(UTC).date(), (row.id,))
    )
    context.requests += recompute_runway(session, old, added=-added)
    context.requests += recompute_runway(session, new, added=added)


def _wake_idle_nodes(context: ChangeContext, row: tables.Account) -> None:
    """Wake the nodes that run the idle workload; those beyond the limit find it by themselves."""
    nodes = select(tables.Node.id).where(
        tables.Node.account_id == row.id,
        col(tables.Node.mining),
        col(tables.Node.status) != "archived",
    )
    for node_id in context.session.exec(nodes.limit(MOST_WOKEN)).all():
        context.wake(node_id)


def _check_name(session: Session, name: str) -> None:
    if session.exec(select(tables.Account).where(tables.Account.name == name)).first():
        raise Problem("conflict", f"account {name}: there is one of this name")


def _check_billing(session: Session, payer_id: str | None, account_id: str | None) -> None:
    if payer_id is None:
        return
    advisory_lock(session, "billing-accounts")  # Two changes at once could make a chain of payers.
    payer = session.get(tables.Account, payer_id)
    if payer is None or payer.removed_at is not None or payer_id == account_id:
        raise invalid(field_error("billing_account_id", "is the id of another account", payer_id))
    if payer.billing_account_id is not None:
        rule = f"pays for itself; {payer_id} is paid for by {payer.billing_account_id}"
        raise invalid(field_error("billing_account_id", rule, payer_id))
    paid = select(tables.Account.name).where(tables.Account.billing_account_id == account_id)
    names = session.exec(paid.order_by(tables.Account.name)).all() if account_id else []
    if names:
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        raise Problem(
            "conflict",
            f"account {account_id}: pays for {', '.join(names[:5])}{more}; an account that pays "
            "for others pays for itself",
        )
