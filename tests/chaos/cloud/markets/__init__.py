"""What differs from one provider kind to another in the campaign: one market for each kind."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tests.chaos.cloud.markets.colab import Colab
from tests.chaos.cloud.markets.google import Google
from tests.chaos.cloud.markets.market import Market
from tests.chaos.cloud.markets.rented import RUNPOD, VASTAI, Rented
from tests.chaos.cloud.markets.this_host import ThisHost

MARKETS: dict[str, Callable[[], Market]] = {
    "gcp": Google,
    "runpod": partial(Rented, RUNPOD),
    "vastai": partial(Rented, VASTAI),
    "local": ThisHost,
    "colab": Colab,
}
"""By provider kind; the first is the usual one."""
