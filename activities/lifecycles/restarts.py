"""Restarts of lost workflows from their rows, with the progress that the rows hold."""

from dataclasses import replace
from typing import Any

from sqlmodel import Session

from activities.db.tables import LifecycleRow
from activities.lifecycles.kinds import KIND_BY_NOUN
from activities.outbox.workflow_starts import WorkflowStart
from workflows.contracts.lifecycles import noun_of


def restart_of(
    session: Session, row: LifecycleRow, *, ended_by_person: bool = False
) -> WorkflowStart[Any]:
    """The start that continues a row's lifecycle after its last recorded step.

    ended_by_person: whether a person has ended the workflow in Temporal, which ends a job; anything
    else is adopted.
    """
    kind = KIND_BY_NOUN[noun_of(row.id).name]
    start = kind.start(session, row)
    if row.sequence == 0 or row.status == "new":
        return start
    argument = kind.resume(session, row, start.argument)
    if ended_by_person and kind.end is not None:
        argument = kind.end(argument)
    return replace(start, argument=argument)
