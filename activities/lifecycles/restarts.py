"""From a row whose workflow was ended from outside to a workflow that goes on from there."""

from dataclasses import dataclass, replace
from typing import Any

from sqlmodel import Session

from activities.db.tables import LifecycleRow
from activities.lifecycles.kinds import KIND_BY_NOUN
from activities.outbox.workflow_starts import WorkflowStart
from workflows.contracts.lifecycles import Removal, noun_of
from workflows.contracts.statuses import ProviderStatus, RegionStatus

_BEGINNINGS = frozenset({"new", ProviderStatus.ENABLING, RegionStatus.PROVISIONING})


@dataclass(frozen=True)
class Restart:
    """A start, and the removal that goes along with it where one was under way."""

    start: WorkflowStart[Any]
    removal: Removal | None = None


def restart_of(session: Session, row: LifecycleRow) -> Restart:
    """The start that takes up a row's lifecycle where its steps end."""
    kind = KIND_BY_NOUN[noun_of(row.id).name]
    start = kind.start(session, row)
    removal = None
    if row.status == "removing" and not kind.starts_for_removal:
        removal = Removal(force=True, requested_by="the sweep: its removal was broken off")
    if row.sequence > 0 and row.status not in _BEGINNINGS:
        start = replace(start, argument=kind.resume(session, row, start.argument))
    return Restart(start, removal)
