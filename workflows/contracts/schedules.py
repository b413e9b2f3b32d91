"""Inputs of the workflows that run by a schedule."""

from workflows.contracts.base import Contract


class ReconciliationRequest(Contract):
    """Input of the outbox relay and of the workflows that run by a schedule."""

    page_size: int = 200
