"""The keeper of a device: the one process that starts, checks and ends what the device runs.

asked.json → stopping → starting → checking → the new revision is the current one
                                         └──→ returning → the one before runs again

It writes each phase before it acts, so that it finishes after a power cut what it had begun: a
revision that has not proved itself is checked again, and given up after a few starts. A command
that exits by itself is not started again before the next boot. Where nothing is to run, the keeper
ends; the next request starts it anew, as every boot does.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from ..folders import Folders, take_lock
from ..host import file_tree, processes
from ..loading import load
from . import spool, starting, unit
from .health import Health, await_verdict
from .media import Media
from .starting import Start
from .state import DEPLOYING, FAILED, RUNNING, STOP, STOPPED, Revision, Store, number_of, revisions

NAME = "baseload-device"
LOCK = "keeper.lock"
LOCK_S = 5.0
LOCK_POLL_S = 0.02
OOM_SCORE = "-900"
POLL_S = 0.2
IDLE_POLL_S = 1.0
MOST_STARTS = 3
"""How often a revision is started that does not prove itself before the machine restarts."""
MOST_SAID = 100
TIDY_INTERVAL_S = 30.0
"""Between two looks for revisions that are kept for nothing but their output."""
TOMBSTONES_S = 30 * 86_400.0
"""How long it is known that a revision was removed, for requests that come late."""


def run(root: str) -> None:
    """Keep the device until nothing is to run; silent when another keeper does."""
    store = Store(Folders(root))
    store.make()
    lock = _take_lock(store)
    if lock is None:
        return
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as file:
        file.write(NAME)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write(OOM_SCORE)
    Keeper(store, lock).main()


def _take_lock(store: Store) -> int | None:
    """The lock of the keeper; None: another keeper lives, and not only somebody who looks."""
    deadline = processes.monotonic_s() + LOCK_S
    while True:
        lock = take_lock(store.at(LOCK), wait=False)
        if lock is not None or processes.monotonic_s() > deadline:
            return lock
        time.sleep(LOCK_POLL_S)


def end_left(root: str) -> None:
    """End what a keeper that was killed has left; silent when that is nothing."""
    store = Store(Folders(root))
    if not is_there(store):
        for revision in revisions(store.folders):
            starting.end_left(revision)


def is_there(store: Store) -> bool:
    """Whether a keeper lives."""
    try:
        lock = os.open(store.at(LOCK), os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # Shared: so many may look at once.
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


class Keeper:
    """The keeper of one device."""

    def __init__(self, store: Store, lock: int = -1) -> None:
        self.store = store
        self.state = store.state()
        self.start: Start | None = None
        self.is_ending = False
        self.is_kept = True
        """Whether the state is written as it is."""
        self.wake_fd = -1
        self.media: Media | None = None
        self.copier = spool.Copier(store, lock)
        self.tidy_due = 0.0
        self.said: set[str] = set()
        """The errors of what may fail that were written already."""

    def main(self) -> None:
        """Run what is to run, until it is ended or nothing is to run."""
        self._listen()
        self._guard(lambda: unit.forget_other_copies(self.store))
        for revision in revisions(self.store.folders):
            starting.end_left(revision)
        self._begin()
        if self.is_kept:
            finish_removals(self.store, self.state)
        while not self.is_ending:
            if self._is_asked():
                self._follow(self.store.asked())
            elif self.start is None and self.is_kept and not self.copier.has_work():
                self._tidy()
                break
            elif self.start is not None and self.start.reap():
                self._record_exit()
            else:
                self._tidy_when_due()
                self._pause(IDLE_POLL_S)
        self._end_start()
        self.copier.end()

    def _tidy_when_due(self) -> None:
        """Remove the revisions that were kept for output which is stored by now."""
        now = processes.monotonic_s()
        if now >= self.tidy_due and self.is_kept:  # Else the disk names what is not needed here.
            self.tidy_due = now + TIDY_INTERVAL_S
            self._tidy()

    def _tidy(self) -> None:
        self._guard(lambda: tidy(self.store, self.state))

    def _listen(self) -> None:
        self.wake_fd, wake = os.pipe()
        for descriptor in (self.wake_fd, wake):
            os.set_blocking(descriptor, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGUSR1, lambda *_: None)
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "is_ending", True))
        for number in (signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)

    def _pause(self, limit_s: float) -> bool:
        """Wait for an event; whether the keeper ends, or something newer was asked."""
        if self.media is not None:
            self._guard(self.media.keep)
        if not self.is_kept:
            self._write()
        self._guard(self.copier.keep)
        ready, _, _ = select.select([self.wake_fd], [], [], limit_s)
        if ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self.wake_fd, 4096)
        return self.is_ending or self._is_asked()

    def _guard(self, act: Callable[[], object]) -> None:
        """Do what may fail without an end of what runs; each error is written once."""
        try:
            act()
        except Exception as error:  # noqa: BLE001 - what runs matters more
            words = "%s: %s" % (type(error).__name__, error)
            if words not in self.said and len(self.said) < MOST_SAID:
                self.said.add(words)
                traceback.print_exc()

    def _is_asked(self) -> bool:
        """Whether something newer was asked than what is done, or being tried."""
        trial = self.state["trial"] or {}
        number = int(self.store.asked().get("number", 0))
        return number > max(int(self.state["done"]), int(trial.get("number", 0)))

    def _keep(self, **changes: Any) -> None:
        """Write the changed state for good before an act; waits until a full disk has room."""
        self._note(**changes)
        while not self.is_kept and not self.is_ending:
            self._guard(self.copier.keep)  # What it stores makes room.
            select.select([], [], [], IDLE_POLL_S)
            self._write()

    def _note(self, **changes: Any) -> None:
        """Change the state, which is written now, or when the disk has room."""
        self.state.update(changes, boot_id=processes.boot_id())
        self._write()

    def _write(self) -> None:
        try:
            self.store.keep(self.state)
        except OSError as error:
            if self.is_kept:
                sys.stderr.write("the state is not written: %s\n" % error)
            self.is_kept = False
        else:
            self.is_kept = True

    def _begin(self) -> None:
        """Finish what a keeper before has begun, or start what shall run."""
        was_this_boot = self.state["boot_id"] == processes.boot_id()
        trial = self.state["trial"]
        if trial is not None:
            if trial["phase"] == "returning":
                self._return(trial.get("why") or "", trial.get("exit_code"))
            elif not self._is_asked():
                self._try()
            return
        is_to_stop = self._is_asked() and self.store.asked()["kind"] == STOP
        if is_to_stop or self.state["status"] == STOPPED or self.state["current"] is None:
            return
        if self.state["status"] == FAILED and was_this_boot:
            return
        self._start_current()

    def _start_current(self) -> None:
        self._note(status=RUNNING, exit_code=None, reason="")
        self._start(self.state["current"])

    def _start(self, named: dict[str, Any]) -> Start:
        revision = self.store.revision(named["run_id"])
        self.start, self.media = starting.start(revision), Media(revision)
        return self.start

    def _follow(self, asked: dict[str, Any]) -> None:
        trial = self.state["trial"]
        if trial is not None:
            self._give_up(trial, int(asked["number"]))
        if asked["kind"] == STOP:
            # Before the end, so that a power cut in between does not start it again.
            self._keep(status=STOPPED, exit_code=None, reason="")
            self._end_start()
            self._keep(done=int(asked["number"]), failed=None)
            return
        trial = {
            "number": int(asked["number"]),
            "run_id": asked["run_id"],
            "health": asked.get("health") or {},
            "phase": "stopping",
            "starts": 0,
            "was": self._was(trial),
        }
        self._keep(trial=trial, status=DEPLOYING)
        self._try()

    def _was(self, trial: dict[str, Any] | None) -> dict[str, Any]:
        """What the device did before the trial, and does again when that fails."""
        if trial is not None:
            was: dict[str, Any] = trial["was"]
            return was
        return {name: self.state[name] for name in ("status", "exit_code", "reason")}

    def _give_up(self, trial: dict[str, Any], newer: int) -> None:
        """End a trial because something newer is asked."""
        self._end_start()
        words = "request %d has taken the place of %d" % (newer, trial["number"])
        self._keep(done=trial["number"], failed=words, trial=None, **trial["was"])

    def _try(self) -> None:
        """Start the revision that is to prove itself in the place of what runs, and check it."""
        trial = self.state["trial"]
        self._end_start()
        if trial["starts"] >= MOST_STARTS:
            words = "the device has restarted %d times before it was healthy" % trial["starts"]
            self._return(words, None)
            return
        trial.update(phase="starting", starts=trial["starts"] + 1)
        self._keep(status=DEPLOYING)
        started = self._start(trial)
        trial["phase"] = "checking"
        self._keep()
        health = Health(started, trial["health"])
        is_decided, why = await_verdict(health, lambda: self._pause(POLL_S))
        if not is_decided:
            return
        if why is None:
            self._prove(trial)
            return
        if started.has_ended:
            self._return(why, started.how_it_ended()[0])
        else:
            self._return(starting.with_lines(why, started.revision), None)

    def _prove(self, trial: dict[str, Any]) -> None:
        proved = {"number": trial["number"], "run_id": trial["run_id"]}
        before = self.state["current"]
        if before is not None and before["run_id"] == proved["run_id"]:
            before = self.state["before"]
        self._keep(
            current=proved, before=before, trial=None, status=RUNNING, exit_code=None, reason="",
            done=trial["number"], failed=None,
        )  # fmt: skip
        self._tidy()

    def _return(self, why: str, exit_code: int | None) -> None:
        """Do again what was done before the trial."""
        trial = self.state["trial"]
        trial.update(phase="returning", why=why, exit_code=exit_code)
        self._keep()
        self._end_start()
        was = trial["was"]
        if self.state["current"] is None:
            was = {"status": FAILED, "exit_code": exit_code, "reason": why}
        elif was["status"] == RUNNING:
            self._start(self.state["current"])
        self._keep(trial=None, done=trial["number"], failed=why, **was)
        self._tidy()

    def _record_exit(self) -> None:
        """Write down that the command has exited by itself; it is not started again."""
        if self.start is None:
            return
        exit_code, reason = self.start.how_it_ended()
        self.start = self.media = None
        if not self.is_ending:
            self._note(status=FAILED, exit_code=exit_code, reason=reason)

    def _end_start(self) -> None:
        if self.start is not None:
            self.start.end()
            self.start = self.media = None


def tidy(store: Store, state: dict[str, Any], *more: str) -> None:
    """Remove the revisions that are neither current nor the one before, nor asked for, nor newer.

    One with output that is not stored yet stays, unless there are several newer ones.

    more: the names of further revisions that stay.
    """
    asked = store.asked()
    named = [state["current"], state["before"], state["trial"], asked]
    kept = {one["run_id"] for one in named if one and one.get("run_id")} | set(more)
    newest = max(int(state["done"]), int(asked.get("number", 0)))
    unneeded = []
    for revision in revisions(store.folders):
        is_newer = number_of(revision) > newest
        if revision.run_id not in kept and not is_newer:
            unneeded.append(revision)
    failed = state["failed"] is not None and asked.get("number") == state["done"]
    if failed and asked.get("run_id") and asked["run_id"] not in _proved(state):
        unneeded.append(store.revision(asked["run_id"]))
    full = [one for one in unneeded if spool.waiting(one)]
    full.sort(key=number_of)
    for revision in unneeded:
        if revision not in full[-spool.MOST_KEPT :]:
            spool.note_gone(store, revision)
            remove(revision)
    if unneeded:
        load("contents.store:drop_arrivals")(store.folders)


def finish_removals(store: Store, state: dict[str, Any]) -> None:
    """Remove what a power cut has kept from being removed, and files that it has broken off."""
    try:
        tidy(store, state)
        load("files.removal:forget")(store.folders, TOMBSTONES_S)
        load("contents.store:prune")(store.folders, 0.0)  # No content is as old as that.
        load("contents.store:drop_arrivals")(store.folders)
        lock = store.lock()  # Those who ask write such files too.
        try:
            unit.forget_parts(store)
            newest = max(int(state["done"]), int(store.asked().get("number", 0)))
            for revision in revisions(store.folders):
                if number_of(revision) <= newest:  # The others may be coming just now.
                    _forget_parts(revision)
        finally:
            os.close(lock)
    except OSError as error:  # What runs matters more.
        sys.stderr.write("not all is removed: %s\n" % error)


def _forget_parts(revision: Revision) -> None:
    """Remove what was broken off while the revision ran and its files were replaced."""
    for name in os.listdir(revision.path):
        if name.startswith(".part-"):
            file_tree.remove(revision.at(name))


def _proved(state: dict[str, Any]) -> set[str]:
    return {one["run_id"] for one in (state["current"], state["before"]) if one}


def remove(revision: Revision) -> bool:
    """Remove a revision with all that its account has left; whether it is gone."""
    starting.end_left(revision)
    gone: bool = load("runs.clean:remove_run")(revision)
    return gone
