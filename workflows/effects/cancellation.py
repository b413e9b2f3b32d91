"""Cancellation of a workflow while it waits: it is never swallowed by a result."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def cancellable() -> Iterator[None]:
    """Re-raises a cancellation that arrived in the same workflow task as a result.

    asyncio would swallow it: an activity that completes in that task, or in spite of the
    cancellation, or a condition that comes true in it, answers as if nobody had cancelled. The work
    would go on, and whoever waits for its end would wait for ever.
    """
    before = _cancellations()
    try:
        yield
    except Exception as failure:  # An eviction is a BaseException, and passes.
        if _cancellations() > before:
            raise asyncio.CancelledError from failure
        raise
    if _cancellations() > before:
        raise asyncio.CancelledError


def _cancellations() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task else 0
