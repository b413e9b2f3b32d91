"""Inputs of the workflows that a schedule starts, or that run at an interval."""

from datetime import date

from workflows.contracts.base import Contract


class ReconciliationRequest(Contract):
    """Input of the outbox relay, the reconciliations, the price refresh and housekeeping."""

    page_size: int = 200


class DeviceFeesRequest(Contract):
    """Input of the device fees."""

    charged_through: date | None = None
    """The last UTC day that is charged; None: look for every day that is not."""


class PayoutsRequest(Contract):
    """Input of the payouts."""


class BalanceGuardRequest(Contract):
    """Input of the balance guard."""
