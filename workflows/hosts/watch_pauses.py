"""The pauses between the watches of a host, which grow while its watches end at once."""

from datetime import datetime, timedelta

from temporalio import workflow

FIRST_PAUSE = timedelta(seconds=1)
LONGEST_PAUSE = timedelta(minutes=5)
LASTED = timedelta(seconds=30)
"""How long a watch must last for the next one to begin at once."""


class WatchPauses:
    """The pauses of one host.

    What a host says may end a watch, an inspection or an outage at once, again and again, and each
    of them is steps in a history and in the database. So a watch that follows several short ones
    waits, at first for a second, at last for five minutes. The first short one costs nothing.
    """

    def __init__(self) -> None:
        self._short = 0
        """How many watches in a row have been short."""
        self._began_at: datetime | None = None

    @property
    def next(self) -> timedelta:
        """How long the next watch must wait."""
        if self._short < 2:
            return timedelta(0)
        pause: timedelta = FIRST_PAUSE * (1 << (self._short - 2))
        return min(pause, LONGEST_PAUSE)

    def begin(self) -> None:
        """Count from now how long the host is watched."""
        self._began_at = workflow.now()

    def end(self) -> None:
        """Count a watch that has ended by what the host says, or because it was lost."""
        if self._began_at is None:
            return
        lasted = workflow.now() - self._began_at >= LASTED
        self._short = 0 if lasted else min(self._short + 1, 32)
        self._began_at = None
