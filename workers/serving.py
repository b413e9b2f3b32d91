"""Several workers at once, for processes with a database and without."""

import contextlib
from collections.abc import AsyncIterator

from temporalio.worker import Worker


@contextlib.asynccontextmanager
async def serving(*workers: Worker) -> AsyncIterator[None]:
    """Run all these workers while the block runs; the first that fails ends the block."""
    async with contextlib.AsyncExitStack() as stack:
        for worker in workers:
            await stack.enter_async_context(worker)
        yield
