"""Accounts, for administrators, and the caller's own account."""

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends
from sqlmodel import col, select

from activities.db import tables
from activities.db.session import database
from activities.placement.wake import wake_placement
from api.authorization import Caller, Needs
from api.changes import Change, changing
from api.pagination import Paging, each, page
from api.schemas.accounts import (
    Account,
    AccountChange,
    AccountCreation,
    AccountPage,
    CreditGrant,
    OwnAccountChange,
    Purchase,
)
from api.schemas.billing import Transaction
from api.services import account_removals, accounts, billing

router = APIRouter(tags=["accounts"])
Administrator = Annotated[Caller, Depends(Needs("accounts:read"))]
Administration = Annotated[Change, changing("accounts:write")]
Reader = Annotated[Caller, Depends(Needs("account:read"))]
Writer = Annotated[Change, changing("account:write")]


@router.get("/v1/accounts", operation_id="list_accounts")
def list_accounts(_caller: Administrator, paging: Paging) -> AccountPage:
    with database().read() as session:
        view = (col(tables.Account.id), each(partial(accounts.account_response, session)))
        return page(session, AccountPage, select(tables.Account), paging, view)


@router.post("/v1/accounts", status_code=201, operation_id="create_account")
async def create_account(asked: AccountCreation, change: Administration) -> Account:
    """Create an account with its owner and its Personal project."""
    return await change.apply(Account, lambda context: accounts.create_account(context, asked))


@router.get("/v1/accounts/{account_id}", operation_id="get_account")
def get_account(account_id: str, _caller: Administrator) -> Account:
    with database().read() as session:
        return accounts.account_response(session, accounts.find_account(session, account_id))


@router.patch("/v1/accounts/{account_id}", operation_id="change_account")
async def change_account(account_id: str, asked: AccountChange, change: Administration) -> Account:
    return await change.apply(
        Account, lambda context: accounts.change_account(context, account_id, asked)
    )


@router.delete("/v1/accounts/{account_id}", operation_id="remove_account")
async def remove_account(account_id: str, change: Administration) -> Account:
    """Remove an account of which nothing runs or is kept, and whose balance is 0.

    What forbids it is named. Its keys end, and its memberships; its ledger and its audit entries
    stay.
    """
    return await change.apply(
        Account, lambda context: account_removals.remove_account(context, account_id)
    )


@router.post("/v1/accounts/{account_id}/credits", status_code=201, operation_id="grant_credits")
async def grant_credits(account_id: str, asked: CreditGrant, change: Administration) -> Transaction:
    """Give an account credits."""
    granted = await change.apply(
        Transaction, lambda context: billing.grant_credits(context, account_id, asked)
    )
    wake_placement()  # Jobs may have waited for these credits.
    return granted


@router.post("/v1/accounts/{account_id}/purchases", status_code=201, operation_id="record_purchase")
async def record_purchase(account_id: str, asked: Purchase, change: Administration) -> Transaction:
    """Record a payment for credits, of at least 25; the same reference gives them once."""
    bought = await change.apply(
        Transaction, lambda context: billing.record_purchase(context, account_id, asked)
    )
    wake_placement()  # Jobs may have waited for these credits.
    return bought


@router.get("/v1/account", operation_id="get_own_account")
def get_own_account(caller: Reader) -> Account:
    """The account of the key, or the account that an administrator acts for."""
    with database().read() as session:
        row = accounts.find_account(session, caller.account_id)
        return accounts.account_response(session, row)


@router.patch("/v1/account", operation_id="change_own_account")
async def change_own_account(asked: OwnAccountChange, change: Writer) -> Account:
    return await change.apply(Account, lambda context: accounts.change_own_account(context, asked))
