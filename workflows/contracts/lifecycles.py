"""Signals that several lifecycles share."""

from workflows.contracts.base import Contract


class Refresh(Contract):
    """Signal `refresh`: poll the site, provider or machine of the lifecycle now."""


class Removal(Contract):
    """Signal `remove`: remove the resource; with `force`, its dependents are removed first."""

    force: bool = False
    requested_by: str = ""
