"""What differs from one provider kind to another in the campaign: one market for each kind."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.chaos.cloud.markets.google import Google
from tests.chaos.cloud.markets.market import Market
from tests.chaos.cloud.markets.rented import RUNPOD, Rented

MARKETS: dict[str, Callable[[], Market]] = {
    "gcp": Google,
    "runpod": partial(Rented, RUNPOD),
}
"""By provider kind; the first is the usual one."""
