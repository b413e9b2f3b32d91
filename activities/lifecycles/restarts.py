"""Restarts of lost workflows from their rows, with the progress that the rows hold."""

from dataclasses import dataclass, replace
from typing import Any

from sqlmodel import Session

from activities.db.tables import LifecycleRow
from activities.lifecycles.kinds import KIND_BY_NOUN
from activities.outbox.workflow_starts import WorkflowStart
from workflows.contracts.lifecycles import Removal, noun_of
from workflows.contracts.statuses import ProviderStatus, RegionStatus

_FIRST_STATUSES = frozenset({"new", ProviderStatus.ENABLING, RegionStatus.PROVISIONING})


@dataclass(frozen=True)
class Restart:
    """A start of a lost workflow, with the removal that was under way, if any."""

    start: WorkflowStart[Any]
    removal: Removal | None = None


def restart_of(session: Session, row: LifecycleRow) -> Restart:
    """The restart that continues a row's lifecycle after its last recorded step."""
    kind = KIND_BY_NOUN[noun_of(row.id).name]
    start = kind.start(session, row)
    removal = None
    if row.status == "removing" and not kind.starts_for_removal:
        removal = Removal(force=True, requested_by="the restart of its interrupted removal")
    if row.sequence > 0 and row.status not in _FIRST_STATUSES:
        start = replace(start, argument=kind.resume(session, row, start.argument))
    return Restart(start, removal)
