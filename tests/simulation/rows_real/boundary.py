"""Where a process may die: between a commit and a call to Temporal, in either order."""

from collections.abc import Callable


class Boundary:
    """The places between a commit and a call to Temporal, where a process may die.

    between: what is called there; it may raise, and then the process has died.
    """

    def __init__(self) -> None:
        self.between: Callable[[], None] = _go_on
        self.killed: Callable[[Exception], None] = _ignore
        self._last = ""

    def begins(self) -> None:
        """An activity begins, or work in the background."""
        self._last = ""

    def commits(self) -> None:
        """A transaction begins to be written."""
        self._passes("commit", after="call")

    def calls(self) -> None:
        """Temporal is about to be asked to change something."""
        self._passes("call", after="commit")

    def _passes(self, what: str, after: str) -> None:
        is_between, self._last = self._last == after, what
        if not is_between:
            return
        try:
            self.between()
        except Exception as death:
            self.killed(death)
            raise Died from death


class Died(BaseException):
    """The process has died: no code of it runs any more, `except Exception` neither."""


def _go_on() -> None:
    """The process lives on."""


def _ignore(_: Exception) -> None:
    """Nobody is there to be told."""
