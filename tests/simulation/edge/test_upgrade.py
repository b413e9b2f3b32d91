"""An upgrade to changed workflows of devices and deployments while both are open."""

from collections.abc import Callable

import pytest

from tests.replay.next_release import (
    NEW_DEPLOYMENT_STEP,
    NEW_DEVICE_STEP,
    PATCHED,
    UNPATCHED_DEVICES,
)
from tests.simulation.edge.life import LIFECYCLES, SPAN_S, EdgeLife

SEEDS = range(100, 104)


def at_once(life: EdgeLife, workflows: tuple[type, ...]) -> None:
    life.engine.later(SPAN_S / 3, lambda: life.engine.processes.upgrade(workflows, 5))


def rolling(life: EdgeLife, workflows: tuple[type, ...]) -> None:
    """Both releases serve for a while, and the process of the new one is killed meanwhile."""
    processes = life.engine.processes
    life.engine.later(SPAN_S / 3, lambda: processes.roll(workflows, 1200))
    life.engine.later(SPAN_S / 3 + 300, lambda: processes.kill("main-2", 60))


def taken_back(life: EdgeLife, workflows: tuple[type, ...]) -> None:
    """It is taken back, and made again later."""
    processes = life.engine.processes
    life.engine.later(SPAN_S / 3, lambda: processes.upgrade(workflows, 5))
    life.engine.later(SPAN_S / 2, lambda: processes.upgrade(LIFECYCLES, 5))
    life.engine.later(SPAN_S, lambda: processes.upgrade(workflows, 5))


def new_steps(life: EdgeLife) -> set[str]:
    """The kinds of steps of the next release that were recorded."""
    kinds = {kind for row in life.rows.all.values() for kind, _ in row.events}
    return kinds & {NEW_DEVICE_STEP, NEW_DEPLOYMENT_STEP}


@pytest.mark.parametrize("upgrade", [at_once, rolling, taken_back])
def test_open_devices_and_deployments_go_on_and_take_the_new_steps(
    upgrade: Callable[[EdgeLife, tuple[type, ...]], None],
) -> None:
    taken = set[str]()
    for seed in SEEDS:
        life = EdgeLife(seed)
        upgrade(life, PATCHED)
        assert life.play() == [], f"seed {seed}"
        taken |= new_steps(life)
    assert taken == {NEW_DEVICE_STEP, NEW_DEPLOYMENT_STEP}


def test_a_change_without_a_patch_mark_leaves_open_devices_stuck() -> None:
    def found(seed: int) -> list[str]:
        life = EdgeLife(seed)
        at_once(life, UNPATCHED_DEVICES)
        return life.play()

    assert any(map(found, SEEDS))
