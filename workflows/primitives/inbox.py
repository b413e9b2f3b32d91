"""The inbox of a lifecycle."""

from collections import deque
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from workflows.contracts.base import Contract
from workflows.primitives.waiting import wait_until

Picked = TypeVar("Picked", bound=Contract)


class Inbox:
    """The queue of messages of one workflow: signal handlers put messages in, one loop takes them.

    Messages keep the order in which they arrived.
    """

    def __init__(self) -> None:
        self._messages: deque[Contract] = deque()

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, message: Contract) -> None:
        self._messages.append(message)

    def take(self) -> Contract | None:
        """Remove and return the oldest message, None when the inbox is empty."""
        return self._messages.popleft() if self._messages else None

    def holds(self, *kinds: type[Contract]) -> bool:
        return any(isinstance(message, kinds) for message in self._messages)

    def holds_others_than(self, *kinds: type[Contract]) -> bool:
        return any(not isinstance(message, kinds) for message in self._messages)

    def pick(self, *kinds: type[Picked]) -> Picked | None:
        """Remove and return the oldest message of these kinds, None when there is none."""
        for message in self._messages:
            if isinstance(message, kinds):
                self._messages.remove(message)
                return message
        return None

    def drop(self, is_dropped: Callable[[Contract], bool]) -> None:
        """Remove the messages for which `is_dropped` is true, because they are answered."""
        self._messages = deque(one for one in self._messages if not is_dropped(one))

    async def wait(self, limit: timedelta) -> Contract | None:
        """Wait for the next message and take it; None when none arrives within the limit."""
        await wait_until(lambda: bool(self._messages), limit, "messages")
        return self.take()
