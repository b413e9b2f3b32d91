"""Signals that several lifecycles share."""

from workflows.contracts.base import Contract


class Look(Contract):
    """Signal `look`: see now whether a region's site is served, or a provider's key still works."""


class Removal(Contract):
    """Signal `remove`: end the resource; `force` ends what still uses it first."""

    force: bool = False
    requested_by: str = ""
