"""A worker that waits less between two calls to Vast.ai, by as much as the double asks for less.

`python -m tests.chaos.cloud.markets.hasty_worker` takes the arguments of `python -m workers`.
"""

from __future__ import annotations

from activities.providers.vastai import limits
from workers.__main__ import main

HASTE = 50.0
"""How many times shorter the pauses are."""

if __name__ == "__main__":
    for pauses in (limits.PAUSES_S, limits.PENALTIES_S):
        pauses.update({call: seconds / HASTE for call, seconds in pauses.items()})
    main()
