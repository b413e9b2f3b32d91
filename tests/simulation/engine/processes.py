"""Worker processes: which queues they serve, what they have in hand, and their ends."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from temporalio import workflow

from tests.simulation.engine.clock import SECOND, micros
from workflows.contracts import queues

if TYPE_CHECKING:
    from tests.simulation.engine.attempts import Call
    from tests.simulation.engine.engine import Engine
    from tests.simulation.engine.instances import Instance
    from tests.simulation.engine.workflow_tasks import Work

WORKFLOWS = "workflows"
"""Stands for the workflow tasks of the queue `main`."""
MAIN_QUEUES = (
    WORKFLOWS, queues.MAIN, queues.NOTIFICATIONS, queues.TRANSFERS, "cloud/*", queues.SITE,
    queues.watches_of(queues.SITE),
)  # fmt: skip
"""As workers/main.py:serve_main, with `BASELOAD_SITES=*`."""
SECOND_MAIN, PLANNING, SECOND_PLANNING = "main-2", "planning", "planning-2"
OWN_SITE, SECOND_SITE = "site", "site-2"
"""Worker processes in the network of a region, which serve its site alone."""
SECONDS = {"main": SECOND_MAIN, PLANNING: SECOND_PLANNING, OWN_SITE: SECOND_SITE}
BOOT_S = 1.0
"""How long a process that follows another needs until it serves."""
STOP_S = 3.0
"""As workers/process.py:GRACE_S: how long a process that is stopped lets its work end."""

Take = Callable[["Process"], None]


@dataclass(eq=False)
class Process:
    """A worker process.

    life: how often it was started; killed_at: when each of its lives was ended by a kill; cache:
    its workflow runs by run id; works: its workflow tasks by run id; calls: its attempts.
    """

    name: str
    serves: tuple[str, ...]
    workflows: Mapping[str, type]
    """The code of its present life."""
    installed: Mapping[str, type]
    """The code of its next life: that of another release, after an upgrade."""
    is_alive: bool = True
    is_stopping: bool = False
    life: int = 1
    was_killed: bool = False
    killed_at: dict[int, int] = field(default_factory=dict)
    cache: "dict[str, Instance]" = field(default_factory=dict)
    works: "dict[str, Work]" = field(default_factory=dict)
    calls: "dict[Call, None]" = field(default_factory=dict)

    def is_serving(self, queue: str) -> bool:
        return any(
            queue == one or (one.endswith("*") and queue.startswith(one[:-1]))
            for one in self.serves
        )


class Processes:
    """All worker processes; by default `main` and `planning`, as an installation has them."""

    def __init__(self, engine: "Engine") -> None:
        self._engine = engine
        self._all: dict[str, Process] = {}
        self._serving: dict[str, list[Process]] = {}
        self._waiting: dict[str, deque[Take]] = {}
        self.add("main", *MAIN_QUEUES)
        self.add(PLANNING, queues.PLANNING)

    def __getitem__(self, name: str) -> Process:
        return self._all[name]

    def names(self) -> list[str]:
        return list(self._all)

    def add(self, name: str, *serves: str, workflows: Mapping[str, type] | None = None) -> None:
        """Start one more process; serves: queues, where `x/*` is every queue below `x/`.

        workflows: the code of its release; None: that of the engine.
        """
        code = self._engine.workflows if workflows is None else workflows
        self._all[name] = Process(name, serves, code, code)
        self._changed()

    def second(self, name: str) -> None:
        """One more process like this one, with its release, unless there is one already."""
        second = SECONDS.get(name)
        if name not in self._all or second is None or second in self._all:
            return
        self.add(second, *self._all[name].serves, workflows=self._all[name].installed)

    def choose(self, queue: str) -> Process | None:
        """One of the processes that serve this queue now; None: nobody does."""
        found = self._serving.get(queue)
        if found is None:
            found = self._serving[queue] = [
                one
                for one in self._all.values()
                if one.is_alive and not one.is_stopping and one.is_serving(queue)
            ]
        if not found:
            return None
        return found[0] if len(found) == 1 else self._engine.random.choice(found)

    def take(self, queue: str, take: Take) -> bool:
        """Let a process that serves this queue take something, now or once there is one.

        Returns whether there is one now.
        """
        process = self.choose(queue)
        if process is None or self._engine.is_away:
            self.wait(queue, take)
            return False
        take(process)
        return True

    def wait(self, queue: str, take: Take) -> None:
        """Let one take something when next a process begins to serve, or the server is back."""
        self._waiting.setdefault(queue, deque()).append(take)

    def kill(self, name: str, again_after_s: float | None = None) -> None:
        """End a process as SIGKILL does; again_after_s: when it is started anew, None: not."""
        process = self._all[name]
        if process.is_alive:
            self._engine.log.add(self._engine.clock.now, name, "is killed")
            process.was_killed = True
            process.killed_at[process.life] = self._engine.clock.now
            self._end(process)
        if again_after_s is not None:
            self._engine.clock.after(micros(again_after_s), partial(self.start, name))

    def stop(self, name: str) -> None:
        """End a process as SIGTERM does: it takes nothing more, and has a while to end its work."""
        process = self._all[name]
        if not process.is_alive or process.is_stopping:
            return
        process.is_stopping = True
        self._changed()
        self._engine.log.add(self._engine.clock.now, name, "is stopped")
        self._let_end(process, self._engine.clock.now + micros(STOP_S))

    def start(self, name: str) -> None:
        """Start a process that has ended; nothing happens to one that runs."""
        process = self._all[name]
        if process.is_alive:
            return
        process.is_alive, process.is_stopping, process.was_killed = True, False, False
        process.life += 1
        process.workflows = process.installed
        self._engine.log.add(self._engine.clock.now, name, "starts")
        self._changed()

    def restart(self, away_s: float = 2.0) -> None:
        """Stop all processes and start them again, with empty caches and the same code."""
        for name in self._all:
            self._start_again(name, away_s)

    def upgrade(self, workflows: Iterable[type], away_s: float = 2.0) -> None:
        """Stop all processes, and start them with the code of another release.

        No process of either release serves while one of the other does, as an upgrade is meant to
        be, and as one is taken back.
        """
        code = named(workflows)
        for process in self._all.values():
            process.installed = code
        self.restart(away_s)

    def roll(self, workflows: Iterable[type], beside_s: float) -> None:
        """Start a second main worker with the code of another release, and the first only later.

        beside_s: how long both releases serve side by side.
        """
        code = named(workflows)
        if SECOND_MAIN in self._all:
            self._all[SECOND_MAIN].installed = code
            self._start_again(SECOND_MAIN, BOOT_S)
        else:
            self.add(SECOND_MAIN, *MAIN_QUEUES, workflows=code)
        self._engine.clock.after(micros(beside_s), partial(self._follow, code))

    def _follow(self, code: Mapping[str, type]) -> None:
        """Let the first main worker have the code of the second, unless that was taken back."""
        if self._all[SECOND_MAIN].installed is code:
            self._all["main"].installed = code
            self._start_again("main", BOOT_S)

    def _start_again(self, name: str, away_s: float) -> None:
        self.stop(name)
        self._engine.clock.after(micros(STOP_S + away_s), partial(self.start, name))

    def server_is_back(self) -> None:
        self._changed()

    def _let_end(self, process: Process, until: int) -> None:
        """End a process that stops: when its workflow tasks are done, or its time is over."""
        if not process.is_alive or not process.is_stopping:
            return
        if process.works and self._engine.clock.now < until:
            again = partial(self._let_end, process, until)
            self._engine.clock.after(SECOND // 10, again)
            return
        self._end(process)

    def _end(self, process: Process) -> None:
        process.is_alive = False
        works, process.works = list(process.works.values()), {}
        calls, process.calls = list(process.calls), {}
        cache, process.cache = list(process.cache.values()), {}
        self._changed()
        for work in works:
            self._engine.tasks.worker_died(work)
        for call in calls:
            call.worker_died(is_graceful=not process.was_killed)
        for instance in cache:
            instance.evict()

    def _changed(self) -> None:
        """Hand out what waits for a queue that is served now."""
        self._serving.clear()
        for queue, waiting in list(self._waiting.items()):
            while waiting and not self._engine.is_away:
                process = self.choose(queue)
                if process is None:
                    break
                waiting.popleft()(process)


def named(workflows: Iterable[type]) -> dict[str, type]:
    """The classes of a release by the names of their workflows."""
    found: dict[str, type] = {}
    for kind in workflows:
        name = workflow._Definition.must_from_class(kind).name
        assert name is not None
        found[name] = kind
    return found
