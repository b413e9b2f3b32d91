"""How many resources one account or project may have, as every change checks it that makes more."""

from activities.accounts.limits import Limited, refusal_of_more
from api.changes import ChangeContext
from api.problems import Problem


def check_limit(
    context: ChangeContext, table: type[Limited], holder_id: str | None = None, count: int = 1
) -> None:
    """Check that an account, by default the caller's, may have `count` more rows of this table.

    holder_id: of the account, or of the project, where the limit is one of projects.

    Raises: Problem `limit-reached`.
    """
    holder_id = holder_id or context.caller.account_id
    refusal = refusal_of_more(context.session, table, holder_id, context.now, count)
    if refusal is not None:
        raise Problem("limit-reached", refusal)
