"""The pause before a retry: failures that pass by themselves get the time to do so."""

from datetime import timedelta

FIRST_PAUSE = timedelta(seconds=10)
"""The pause before the first retry; each later one is twice as long as the one before."""
LONGEST_PAUSE = timedelta(minutes=5)


def pause_before(retry: int) -> timedelta:
    """The pause before this retry of a job, the first of which is 1."""
    pause = FIRST_PAUSE
    for _ in range(1, retry):
        if pause >= LONGEST_PAUSE:
            break
        pause *= 2
    return min(pause, LONGEST_PAUSE)
