"""Helpers to wait in a workflow: timeout, interruption, several coroutines, shield."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow

from workflows.effects.cancellation import cancellable

Answer = TypeVar("Answer")
Item = TypeVar("Item")


class Interrupted(Exception):  # noqa: N818 - a condition, not an error
    """The condition of `interruptible` came true, and the work was cancelled."""


async def wait_until(condition: Callable[[], bool], limit: timedelta, summary: str = "") -> bool:
    """Wait for the condition, and return whether it came true within the limit.

    summary: of the timer, as the Temporal UI shows it.

    Raises: CancelledError, when the workflow is cancelled meanwhile.
    """
    with cancellable():
        try:
            await workflow.wait_condition(condition, timeout=limit, timeout_summary=summary or None)
        except TimeoutError:
            return False
    return True


async def interruptible(work: Coroutine[Any, Any, Answer], when: Callable[[], bool]) -> Answer:
    """Await `work`, and cancel it when the condition `when` comes true.

    Raises: Interrupted, once the cancelled work has stopped.
    """
    task = asyncio.create_task(work)
    try:
        await workflow.wait_condition(lambda: task.done() or when())
    except asyncio.CancelledError:
        await cancel_and_wait([task])
        raise
    if task.done():
        return task.result()
    await cancel_and_wait([task])
    raise Interrupted


async def gather_or_cancel(works: Iterable[Coroutine[Any, Any, Any]]) -> None:
    """Await all works concurrently; at the first failure cancel the others.

    Raises: the first failure.
    """
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    except (Exception, asyncio.CancelledError):  # No task may go on alone; not at GeneratorExit.
        await cancel_and_wait(tasks)
        raise


async def gather_all(works: Iterable[Coroutine[Any, Any, Any]]) -> None:
    """Await all works concurrently, each to its own end.

    Raises: the first failure, when all works have ended.
    """
    tasks = [asyncio.create_task(work) for work in works]
    for ended in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(ended, BaseException):
            raise ended


async def gather_bounded(
    act: Callable[[Item], Coroutine[Any, Any, Answer]], items: Iterable[Item], at_once: int
) -> list[Answer]:
    """Await `act` for all items, for so many concurrently; the answers keep the items' order.

    Raises: the first failure, after which the others are cancelled.
    """
    slots = asyncio.Semaphore(at_once)

    async def one(item: Item) -> Answer:
        async with slots:
            return await act(item)

    tasks = [asyncio.create_task(one(item)) for item in items]
    try:
        return list(await asyncio.gather(*tasks))
    except (Exception, asyncio.CancelledError):  # No task may go on alone.
        await cancel_and_wait(tasks)
        raise


async def while_handling(
    work: Coroutine[Any, Any, Answer],
    has_messages: Callable[[], bool],
    handle: Callable[[], Coroutine[Any, Any, None]],
) -> Answer:
    """Await `work`, and await `handle` whenever messages arrive meanwhile.

    Raises: the failure of `work` or of `handle`; a failure of `handle` cancels the work.
    """
    task = asyncio.create_task(work)
    try:
        while not task.done():
            await workflow.wait_condition(lambda: task.done() or has_messages())
            if has_messages():
                await handle()
    except (Exception, asyncio.CancelledError):  # No task may go on alone; not at GeneratorExit.
        await cancel_and_wait([task])
        raise
    return task.result()


async def with_watch(work: Coroutine[Any, Any, Answer], watch: Coroutine[Any, Any, None]) -> Answer:
    """Await `work` while `watch` runs beside it; whichever ends first, the other is cancelled.

    Raises: the failure of `work` or of `watch`; Interrupted, when `watch` has ended before, or when
    `work` raises it.
    """
    other = asyncio.create_task(watch)
    try:
        answer = await interruptible(work, when=other.done)
    except Interrupted:
        if other.done():
            other.result()
        await cancel_and_wait([other])  # The work itself was interrupted.
        raise
    except (Exception, asyncio.CancelledError):  # No task may go on alone; not at GeneratorExit.
        await cancel_and_wait([other])
        raise
    await cancel_and_wait([other])
    return answer


async def shielded(work: Coroutine[Any, Any, Answer], on_cancel: Callable[[], None]) -> Answer:
    """Await `work` to its end, even when the workflow is cancelled meanwhile.

    on_cancel: called at each cancellation; the work itself is not cancelled.
    """
    task = asyncio.create_task(work)
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            on_cancel()
    return task.result()


async def cancel_and_wait(tasks: Iterable["asyncio.Task[Any]"]) -> None:
    """Cancel all tasks and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
