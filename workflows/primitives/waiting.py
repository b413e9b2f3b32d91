"""Ways to wait in a workflow: with a limit, until interrupted, for all, through a cancellation."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow

from workflows.effects.cancellation import cancellable

Answer = TypeVar("Answer")


class Interrupted(Exception):  # noqa: N818 - it is news, not an error
    """Work was given up, because what may interrupt it came true."""


async def until(condition: Callable[[], bool], limit: timedelta, summary: str = "") -> bool:
    """Whether the condition came true within the limit."""
    with cancellable():
        try:
            await workflow.wait_condition(condition, timeout=limit, timeout_summary=summary or None)
        except TimeoutError:
            return False
    return True


async def unless(interrupted: Callable[[], bool], work: Coroutine[Any, Any, Answer]) -> Answer:
    """Do `work` to its end. Raises: Interrupted, when it was given up and has stopped."""
    task = asyncio.create_task(work)
    try:
        await workflow.wait_condition(lambda: task.done() or interrupted())
    except asyncio.CancelledError:
        await stopped([task])
        raise
    if task.done():
        return task.result()
    await stopped([task])
    raise Interrupted


async def all_of(works: Iterable[Coroutine[Any, Any, Any]]) -> None:
    """Do all at once; at the first failure the others are stopped, and it is raised."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    except BaseException:  # Cancelled too: none of them goes on unwatched.
        await stopped(tasks)
        raise


async def each_of(works: Iterable[Coroutine[Any, Any, Any]]) -> None:
    """Do all at once, each to its own end; then the first failure is raised."""
    tasks = [asyncio.create_task(work) for work in works]
    for ended in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(ended, BaseException):
            raise ended


async def attended(
    work: Coroutine[Any, Any, Answer],
    news: Callable[[], bool],
    attend: Callable[[], Coroutine[Any, Any, None]],
) -> Answer:
    """Do `work` to its end; news that comes meanwhile is attended to beside it."""
    task = asyncio.create_task(work)
    try:
        while not task.done():
            await workflow.wait_condition(lambda: task.done() or news())
            if news():
                await attend()
    except BaseException:  # Cancelled too: none of them goes on unwatched.
        await stopped([task])
        raise
    return task.result()


async def undisturbed(work: Coroutine[Any, Any, Answer], on_cancel: Callable[[], None]) -> Answer:
    """Do `work` to its end although the workflow is cancelled meanwhile; `on_cancel` is told."""
    task = asyncio.create_task(work)
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            on_cancel()
    return task.result()


async def stopped(tasks: Iterable["asyncio.Task[Any]"]) -> None:
    """Cancel all of them, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
