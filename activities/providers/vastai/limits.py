"""The pauses between the calls of one key, which Vast.ai wants and does not announce.

Vast.ai answers a call that comes too early with 429, without saying when to come again, and lets
the caller wait longer for it. So all processes of the installation keep the pauses of a key
together. Another installation with the same key may still be met; then the one that is refused
comes again later.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from activities.providers.base import Unavailable
from activities.providers.call_slots import OwnSlots, SharedSlots, Slots, is_urgent

PAUSES_S = {"search": 2.0, "create": 4.5, "list": 2.0, "show": 2.0, "destroy": 3.0, "user": 1.0}
"""By kind of call: from Vast.ai's documentation of 2026-08-07, ours where it states none."""
PENALTIES_S = {"create": 12.0}
"""How long a call that came too early holds up the next one of its kind."""
LONGEST_WAIT_S = 15.0
"""How long a call waits here for its turn; for more, its activity comes again later."""
LONGEST_URGENT_WAIT_S = 30.0
"""The same for a call that ends a machine: polls of many machines, which take all turns up to the
limit of theirs, do not keep it waiting. Its activity has time for three of them."""
DAY_S = 24 * 3600.0


@dataclass
class Limiter:
    """The pauses of one key. Thread-safe."""

    now: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    slots: Slots = field(default_factory=OwnSlots)

    def wait(self, call: str) -> None:
        """Wait for the turn of a call. Raises: Unavailable, when its turn is too far away."""
        with self.slots.slot(call) as slot:
            now = self.now()
            turn = max(now, slot.free_at)
            if turn - now > (LONGEST_URGENT_WAIT_S if is_urgent() else LONGEST_WAIT_S):
                raise Unavailable(
                    f"Vast.ai {call}: {turn - now:.0f} s until the next call may be made",
                    retry_after_s=turn - now,
                )
            slot.free_at = turn + PAUSES_S[call]
        if turn > now:
            self.sleep(turn - now)

    def too_early(self, call: str) -> float:
        """Note that Vast.ai refused a call as one too many, and return the seconds to wait."""
        return self._hold(call, PENALTIES_S.get(call, PAUSES_S[call]))

    def used_up(self, call: str) -> float:
        """Note that Vast.ai takes no more such calls on this day, which ends at midnight UTC, and
        return the seconds until then."""
        return self._hold(call, DAY_S - self.now() % DAY_S)

    def _hold(self, call: str, seconds: float) -> float:
        with self.slots.slot(call) as slot:
            slot.free_at = max(slot.free_at, self.now() + seconds)
        return seconds


def limiter_of(endpoint: str, key: str) -> Limiter:
    """The limiter of a key, with the same slots in all processes."""
    return Limiter(slots=SharedSlots(endpoint, key))
