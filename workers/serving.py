"""Several workers at once, for processes with a database and without."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from temporalio.worker import Worker


@contextlib.asynccontextmanager
async def serving(*workers: Worker) -> AsyncIterator[None]:
    """Run all these workers while the block runs; the first that fails ends the block.

    They end together: each lets its activities end by themselves for a while.
    """
    async with contextlib.AsyncExitStack() as stack:
        for worker in workers:
            await stack.enter_async_context(worker)
        try:
            yield
        finally:
            await asyncio.gather(*(worker.shutdown() for worker in workers))
