"""How many sessions there are at once: of an API key, of a job, and of an account."""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

from api.problems import Problem

MOST_OF_KEY = 40
MOST_OF_JOB = 60
MOST_OF_ACCOUNT = 200


class SessionCounts:
    """The open sessions of this process."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    @contextmanager
    def counted(self, key_id: str, job_id: str, account_id: str) -> Generator[None]:
        """Count a session while the block runs. Raises: Problem `too-many-requests`."""
        limits = ((key_id, MOST_OF_KEY), (job_id, MOST_OF_JOB), (account_id, MOST_OF_ACCOUNT))
        for name, most in limits:
            if self._open[name] >= most:
                detail = f"{name}: has {most} sessions open, which is the limit"
                raise Problem("too-many-requests", detail, (), {"Retry-After": "10"})
        names = tuple(name for name, _ in limits)
        self._open.update(names)
        try:
            yield
        finally:
            self._open.subtract(names)
            self._open += Counter()  # Forget those that have none.
