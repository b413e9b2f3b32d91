"""Inputs of the workflows that run by a schedule."""

from workflows.contracts.base import Contract


class SweepRequest(Contract):
    """Input of `starts` and `sweep`."""

    page_size: int = 200
