"""An event loop in virtual time: coroutines of activities come to their end without waiting."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from contextvars import Context
from datetime import datetime
from typing import Any, TypeVar, TypeVarTuple

from tests.simulation.contracts import Temporal
from tests.simulation.rows_real.boundary import Boundary, Died

SOON_S = 0.005
"""From the call of `call_soon_threadsafe`, by which activities pass work to the loop of their
process after a commit, to that work."""

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class VirtualLoop(asyncio.AbstractEventLoop):
    """The event loop of the worker processes of rows, played by the clock of `Temporal`.

    What runs in another thread elsewhere (`asyncio.to_thread`) is done at once. A timer is a call
    of `Temporal.later`, made only if it still counts when nothing else is left to do, so that the
    timeouts of calls that are answered cost nothing.

    present: entered around work that the clock begins, so that it finds the life's own database.
    """

    def __init__(
        self,
        temporal: Temporal,
        present: Callable[[], AbstractContextManager[None]],
        boundary: Boundary,
    ) -> None:
        self._temporal = temporal
        self._boundary = boundary
        self._present = present
        self._began_at = temporal.now()
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[asyncio.TimerHandle] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_closed = False
        self.failures: list[str] = []
        """What has failed in the background, where nobody waits for it: defects."""
        self._death: Exception | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine, which must not wait for time to pass.

        Raises: what it raises; the death of its process.
        """
        task = self.create_task(work)
        self._drain()
        if not task.done():
            raise RuntimeError(f"{work}: waits for something that only time can bring")
        result: T = task.result()
        return result

    def kill(self, death: Exception) -> None:
        """The process dies at this moment; `die_if_killed` is called next."""
        self._death = death

    def die_if_killed(self) -> None:
        """Forget all that goes on in the process, if it has died. Raises: its death."""
        death, self._death = self._death, None
        if death is None:
            return
        self._ready.clear()
        self._timers.clear()
        tasks, self._tasks = self._tasks, set()
        for task in sorted(tasks, key=lambda each: each.get_name()):
            coroutine = task.get_coro()
            if coroutine is not None:
                try:
                    coroutine.close()
                except (RuntimeError, ValueError):
                    continue  # It would go on after its end, and in its own context.
        raise death

    def _drain(self) -> None:
        """Run all that is ready, on and on, until nothing is or the process has died."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            while self._ready and self._death is None:
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
        finally:
            asyncio._set_running_loop(before)
        self.die_if_killed()
        timers, self._timers = self._timers, []
        for timer in timers:
            if not timer.cancelled():
                self._later(timer.when() - self.time(), timer)

    def _later(self, delay_s: float, handle: asyncio.Handle) -> None:
        def act() -> None:
            if self._is_closed or handle.cancelled():
                return
            with self._present():
                self._ready.append(handle)
                try:
                    self._drain()
                except Exception as death:  # noqa: BLE001 - whatever the hook raises
                    self._temporal.note("rows", f"a process died in the background: {death!r}")

        self._temporal.later(max(0.0, delay_s), act)

    # ── what asyncio asks of a loop ─────────────────────────────────────────────────────────

    def time(self) -> float:
        now: datetime = self._temporal.now()
        return (now - self._began_at).total_seconds()

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """What an activity asks to be done after its commit, by its process and not by itself."""
        self._boundary.calls()
        handle = asyncio.Handle(callback, args, self, context or Context())
        self._later(SOON_S, handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._timers.append(timer)
        return timer

    def create_task(
        self,
        coro: Any,
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def run_in_executor(
        self,
        executor: Executor | None,
        func: Callable[[*Ts], T],
        *args: *Ts,
    ) -> asyncio.Future[T]:
        """Call the function at once: nothing else happens at this virtual instant."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as failure:  # noqa: BLE001 - its caller gets it
            future.set_exception(failure)
        return future

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return asyncio._get_running_loop() is self

    def is_closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        self._is_closed = True
        self._ready.clear()
        self._timers.clear()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """A task that failed and that nobody waits for; a forgotten one is not worth a line."""
        failure = context.get("exception")
        if failure is not None and not isinstance(failure, Died):
            self.failures.append(f"{context.get('message')}: {failure!r}")

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """asyncio tells the loop; `_drain` looks at each timer itself."""
