"""The inbox of a lifecycle: signals put messages in, one loop takes them out."""

from collections import deque
from datetime import timedelta
from typing import TypeVar

from workflows.contracts.base import Contract
from workflows.primitives.waiting import wait_until

Picked = TypeVar("Picked", bound=Contract)


class Inbox:
    """Messages in order of arrival: handlers put them in, one loop takes them out."""

    def __init__(self) -> None:
        self._messages: deque[Contract] = deque()

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, message: Contract) -> None:
        self._messages.append(message)

    def take(self) -> Contract | None:
        """The oldest message, None when there is none."""
        return self._messages.popleft() if self._messages else None

    def holds(self, *kinds: type[Contract]) -> bool:
        return any(isinstance(message, kinds) for message in self._messages)

    def pick(self, *kinds: type[Picked]) -> Picked | None:
        """The oldest message of these kinds, out of order; None when there is none."""
        for message in self._messages:
            if isinstance(message, kinds):
                self._messages.remove(message)
                return message
        return None

    async def wait(self, limit: timedelta) -> Contract | None:
        """The next message, None when there is none within the limit."""
        await wait_until(lambda: bool(self._messages), limit, "news")
        return self.take()
