"""The clock that tests move, and the one that flows."""

from __future__ import annotations

import threading

from tests.doubles.rented.clock import Clock


def test_what_is_due_is_done_in_its_order_at_its_own_instant() -> None:
    clock = Clock()
    begin = clock.now()
    seen: list[tuple[str, float]] = []
    clock.after(20, lambda: seen.append(("late", clock.now() - begin)))
    clock.after(5, lambda: clock.after(5, lambda: seen.append(("after", clock.now() - begin))))
    clock.advance(60)
    assert [(name, round(at, 3)) for name, at in seen] == [("after", 10.0), ("late", 20.0)]
    assert round(clock.now() - begin, 3) == 60


def test_a_clock_that_stands_still_does_nothing_by_itself() -> None:
    clock = Clock()
    seen: list[int] = []
    clock.after(1, lambda: seen.append(1))
    clock.advance(0.5)
    assert seen == []
    clock.advance(0.5)
    assert seen == [1]


def test_a_clock_that_flows_does_what_is_due_unasked() -> None:
    clock = Clock(rate=1000)
    done = threading.Event()
    clock.after(10, done.set)
    assert done.wait(20)
    clock.close()
