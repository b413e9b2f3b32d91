"""The removal of a resource, as a signal and as the progress of a lifecycle carries it."""

from datetime import datetime

from workflows.contracts.base import Contract


class Removal(Contract):
    """Signal `remove`: remove the resource; with `force`, its dependents are removed first."""

    force: bool = False
    requested_by: str = ""
    reschedules: bool = False
    """Whether jobs on a removed node begin again on other nodes, because nobody has asked for their
    end; else they fail."""


class RemovalProgress(Contract):
    """A removal that is under way, across continue-as-new and restarts."""

    removal: Removal
    deadline: datetime | None = None
    """When the lifecycle stops waiting for its dependents; None: it has not begun to wait."""
