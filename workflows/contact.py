"""The first contact with a machine: it is where somebody says that it is, or soon will be."""

from collections.abc import Callable, Coroutine
from datetime import timedelta
from functools import partial
from typing import Any

from temporalio import workflow
from temporalio.exceptions import is_cancelled_exception

from workflows.contracts.errors import HOST_KEY_MISMATCH, NEVER_RETRIED
from workflows.contracts.node import Announcement
from workflows.effects.node import ReachNode, try_node
from workflows.journal import EFFECT_FAILED, Inbox, cause_of
from workflows.waiting import until
from workflows.whereabouts import Whereabouts

LIMIT = timedelta(hours=1)
INTERVAL = timedelta(seconds=15)

Say = Callable[[str, str], Coroutine[Any, Any, None]]


async def make_contact(at: Whereabouts, inbox: Inbox, say: Say) -> None:
    """Within an hour it answers with its key. Until then `say` is told each cause once.

    Whoever announces it meanwhile is heard between two tries; that may be anybody, so the places
    take turns until it has answered at one. Raises: the failure of the last try.
    """
    deadline = workflow.now() + LIMIT
    told: set[str] = set()
    while True:
        while (news := inbox.pick(Announcement)) is not None:
            at.suppose(news)
        try:
            reached = await try_node(ReachNode(node=at.address()))
        except EFFECT_FAILED as failure:
            if is_cancelled_exception(failure) or workflow.now() >= deadline:
                raise
            kind, message = cause_of(failure)
            if not _turn(at, kind):
                raise
            if message not in told:
                told.add(message)
                await say(kind, message)
            await until(partial(inbox.holds, Announcement), INTERVAL, "before the next try")
        else:
            at.confirm(reached.boot_mark)
            return


def _turn(at: Whereabouts, kind: str) -> bool:
    """To where it is tried next. False: the machine itself says no, or is not there at all."""
    if kind == HOST_KEY_MISMATCH:
        return at.turn(is_another=True)
    at.turn(is_another=False)
    return kind not in NEVER_RETRIED
