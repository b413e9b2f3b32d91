"""What an account's plan allows."""

from activities.db import tables
from api.changes import ChangeContext
from api.problems import Problem

PLANS = ("individual", "team", "enterprise")
"""From the lowest to the highest."""


def check_plan(context: ChangeContext, plan: str, what: str) -> None:
    """Check that the caller's account has this plan or a higher one.

    Raises: Problem `plan-required`, which names the plan.
    """
    account = context.session.get_one(tables.Account, context.caller.account_id)
    if PLANS.index(account.plan) < PLANS.index(plan):
        detail = f"{what}: asked the plan {plan} or a higher one, account {account.name} has "
        raise Problem("plan-required", detail + account.plan)
