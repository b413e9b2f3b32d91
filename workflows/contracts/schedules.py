"""Inputs of the workflows that run by a schedule."""

from workflows.contracts.base import Contract


class ReconciliationRequest(Contract):
    """Input of `starts` and `sweep`."""

    page_size: int = 200
