"""What an account's plan allows."""

from activities.db import tables
from api.changes import ChangeContext
from api.problems import Problem
from workflows.rules.accounts.plans import Feature, refusal_of


def check_plan(context: ChangeContext, feature: Feature) -> None:
    """Check that the plan of the caller's account unlocks a feature.

    Raises: Problem `plan-required`, which names the plan.
    """
    account = context.session.get_one(tables.Account, context.caller.account_id)
    refusal = refusal_of(feature, account.plan, account.name)
    if refusal is not None:
        raise Problem("plan-required", refusal)
