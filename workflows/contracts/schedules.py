"""Inputs of the workflows that a schedule starts, or that run at an interval."""

from workflows.contracts.base import Contract


class ReconciliationRequest(Contract):
    """Input of the outbox relay, the reconciliations, the price refresh and housekeeping."""

    page_size: int = 200
