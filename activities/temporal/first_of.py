"""Works that go on beside each other until the first of them ends."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def first_of(*works: Coroutine[Any, Any, T]) -> T:
    """Run these until one ends, and cancel the others; the result of that one.

    Of several that end at once, the result of the one that is named first. None is left when this
    returns, also when it is cancelled itself. Raises: whatever a work that has ended raises.
    """
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        ended = [task.result() for task in tasks if task.done()]
        return ended[0]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
