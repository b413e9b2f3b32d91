"""Several workers of one process: they begin one after another, and end together."""

import asyncio
from typing import Any, Self

import pytest

from workers.serving import serving


class Ending:
    """A worker that has ended once every other one is about to end as well."""

    def __init__(self, all_end: asyncio.Barrier) -> None:
        self._all_end = all_end
        self.has_ended = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shutdown()

    async def shutdown(self) -> None:
        if not self.has_ended:
            await self._all_end.wait()
            self.has_ended = True


async def test_no_worker_waits_for_the_end_of_another() -> None:
    all_end = asyncio.Barrier(3)
    workers: list[Any] = [Ending(all_end) for _ in range(3)]
    async with asyncio.timeout(10):
        async with serving(*workers):
            assert not any(worker.has_ended for worker in workers)
    assert all(worker.has_ended for worker in workers)


async def test_all_workers_end_when_the_block_fails() -> None:
    workers: list[Any] = [Ending(asyncio.Barrier(1)) for _ in range(2)]
    with pytest.raises(ValueError, match="stop"):
        async with serving(*workers):
            raise ValueError("stop")
    assert all(worker.has_ended for worker in workers)
