"""Cancellation of a workflow that a result in the same workflow task must not hide."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def cancellable() -> Iterator[None]:
    """Re-raise a cancellation that arrived in the same workflow task as a result.

    asyncio would swallow the cancellation when an activity completes in that task, or completes
    in spite of the cancellation, or when a condition comes true in that task. The work would then
    go on, and a caller that waits for its end would wait for ever.

    Raises: CancelledError, when the task was cancelled inside the block.
    """
    before = _cancellations()
    try:
        yield
    except Exception as failure:  # The eviction of a workflow is a BaseException and is not caught.
        if _cancellations() > before:
            raise asyncio.CancelledError from failure
        raise
    if _cancellations() > before:
        raise asyncio.CancelledError


def _cancellations() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task else 0
