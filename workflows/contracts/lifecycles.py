"""Signals that several lifecycles share."""

from workflows.contracts.base import Contract


class Refresh(Contract):
    """Signal `refresh`: look now at what is otherwise polled: a site, a provider, a machine."""


class Removal(Contract):
    """Signal `remove`: end the resource; `force` ends what still uses it first."""

    force: bool = False
    requested_by: str = ""
