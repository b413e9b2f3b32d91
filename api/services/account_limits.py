"""How many resources one account may have, as every change checks it that makes one more."""

from activities.accounts.limits import Limited, refusal_of_one_more
from api.changes import ChangeContext
from api.problems import Problem


def check_limit(
    context: ChangeContext, table: type[Limited], account_id: str | None = None
) -> None:
    """Check that an account, by default the caller's, may have one more row of this table.

    Raises: Problem `limit-reached`.
    """
    account_id = account_id or context.caller.account_id
    refusal = refusal_of_one_more(context.session, table, account_id, context.now)
    if refusal is not None:
        raise Problem("limit-reached", refusal)
