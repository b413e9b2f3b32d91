"""How much one node may say of runs: what is above is delayed, or is a protocol violation."""

import time
from collections import Counter
from collections.abc import Callable

from temporalio.exceptions import ApplicationError

from workflows.contracts import errors

SIGNALS_PER_S = 100.0
"""The lasting rate of one node's signals: 6,000 a minute. A node whose 64 CPUs each end a job every
second sends 64; the others wait for their turn, and none is dropped."""
SIGNALS_AT_ONCE = 1000
"""How many signals may go out at once after a quiet time: a new watch repeats every exit."""
MOST_WAITING = 10_000
"""The most undelivered signals of one node. There is one exit for each run that was placed there,
so no node of ours has as many while Temporal is away."""
MOST_OF_RUN_PER_MINUTE = 120
"""The most that a node may report of one run. Our watcher reports one exit, again after each log
that could not be stored (at most every 2 s), and idleness at most once in its limit."""
MOST_UNKNOWN_PER_MINUTE = 6000
"""The most frames about runs that were not placed on the node. Our watcher stops at once when it is
told to forget such a run; those of another control plane it does not report."""
FRAMES_PER_S = 3000.0
"""The lasting rate of the frames of one watch: our watcher sends one for each run, at most 20 times
a second. What is above waits on the node."""
FRAMES_AT_ONCE = 6000
"""How many frames may come at once after a quiet time; to read them takes a fifth of a second."""
HEADER_BYTES_PER_S = 1 << 20
"""The lasting rate of the headers of one node's frames, in bytes: what is JSON takes the longest to
read, up to 4 ms for one of the greatest size. Our watcher sends a hundredth of it."""
HEADER_BYTES_AT_ONCE = 8 << 20
"""How many bytes of headers may come at once after a quiet time: a new watch repeats every exit."""
LOG_BYTES_PER_S = 8 << 20
"""The lasting rate of the log bytes of one node. What is above waits on the node, so that one node
takes a small share of what the process can read and store for all of them."""
LOG_BYTES_AT_ONCE = 1 << 30
"""How many log bytes may come at once after a quiet time: as many as are stored of one run."""
_WINDOW_S = 60.0


class TokenBucket:
    """A rate with room for a burst: `delay_s` says how long each one in turn has to wait.

    per_s: the lasting rate; burst: how many need not wait after a quiet time; clock: in seconds.
    """

    def __init__(
        self, per_s: float, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._interval_s = 1 / per_s
        self._room_s = (burst - 1) * self._interval_s
        self._clock = clock
        self._next_s = clock() - self._room_s

    def delay_s(self, count: int = 1) -> float:
        """Take so many turns, and return how long from now the first is, in s; 0: it is now."""
        now_s = self._clock()
        turn_s = max(self._next_s, now_s - self._room_s)
        self._next_s = turn_s + count * self._interval_s
        return max(0.0, turn_s - now_s)


class ReportRates:
    """What one node has reported in the present minute, of each run and of unknown runs."""

    def __init__(self, node_id: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._node_id = node_id
        self._clock = clock
        self._began_s = clock()
        self._of_run: Counter[str] = Counter()
        self._unknown_count = 0

    def count(self, run_id: str) -> None:
        """Count a report of a run on the node. Raises: ApplicationError PROTOCOL_VIOLATION."""
        self._begin_minute()
        self._of_run[run_id] += 1
        if self._of_run[run_id] > MOST_OF_RUN_PER_MINUTE:
            raise self.violation(f"{MOST_OF_RUN_PER_MINUTE} reports of {run_id} in a minute")

    def count_unknown(self) -> None:
        """Count a frame about an unknown run. Raises: ApplicationError PROTOCOL_VIOLATION."""
        self._begin_minute()
        self._unknown_count += 1
        if self._unknown_count > MOST_UNKNOWN_PER_MINUTE:
            raise self.violation(f"{MOST_UNKNOWN_PER_MINUTE} frames of unknown runs in a minute")

    def check_waiting(self, count: int) -> None:
        """Check the number of undelivered signals. Raises: ApplicationError PROTOCOL_VIOLATION."""
        if count > MOST_WAITING:
            raise self.violation(f"{MOST_WAITING} signals that are not delivered yet")

    def violation(self, most: str) -> ApplicationError:
        """The failure of a node that has said more than this."""
        return ApplicationError(
            f"{self._node_id}: its watcher has sent more than {most}",
            type=errors.PROTOCOL_VIOLATION,
        )

    def _begin_minute(self) -> None:
        if self._clock() - self._began_s >= _WINDOW_S:
            self._began_s = self._clock()
            self._of_run.clear()
            self._unknown_count = 0
