"""Cancellation of a workflow while it waits: it is never swallowed by a result."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def cancellable() -> Iterator[None]:
    """Whoever is cancelled within is cancelled, whatever comes in the same moment.

    An effect that ends in the same workflow task, or in spite of being given up, and a condition
    that comes true with it, would answer as if nobody had cancelled: the work would go on, and who
    waits for its end would wait for ever.
    """
    before = _cancellations()
    try:
        yield
    except Exception as failure:  # What takes a workflow out of memory is none, and passes.
        if _cancellations() > before:
            raise asyncio.CancelledError from failure
        raise
    if _cancellations() > before:
        raise asyncio.CancelledError


def _cancellations() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task else 0
