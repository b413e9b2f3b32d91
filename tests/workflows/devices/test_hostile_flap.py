"""A device that always says something else, in virtual time."""

import itertools

from temporalio.exceptions import ApplicationError

from tests.simulation.contracts import Attempt, Sleep, Steps
from tests.workflows.devices.edge import Edge
from workflows.contracts import errors
from workflows.contracts.devices import DeviceRun, InferenceStatus
from workflows.effects import devices, nodes
from workflows.effects.devices import DeviceObserved

CONNECTS_S = 0.1
LONG_S = 60.0
MOST_IN_A_MINUTE = 30
MOST_IN_AN_HOUR = 100


def test_a_device_that_says_something_else_each_time_makes_few_events() -> None:
    edge, count = Edge(), iter(range(1, 10_000))

    def watch(_: Attempt, __: devices.WatchDevice) -> Steps:
        yield Sleep(CONNECTS_S)
        failed = InferenceStatus.FAILED
        return DeviceObserved(run=DeviceRun(number=next(count), status=failed, reason="x" * 2000))

    edge.engine.serve({"watch_device": watch})
    before = len(edge.active().steps)
    edge.passes(60)
    assert len(edge.steps) - before <= MOST_IN_A_MINUTE


def test_a_device_that_ends_each_watch_at_once_is_watched_less_often() -> None:
    edge, watches = Edge(), []

    def watch(attempt: Attempt, _: devices.WatchDevice) -> Steps:
        watches.append(attempt)
        yield Sleep(CONNECTS_S)
        raise ApplicationError("its watcher ended", type=errors.NODE_UNREACHABLE)

    edge.engine.serve({"watch_device": watch})
    edge.active()
    watches.clear()
    edge.passes(60)
    assert len(watches) <= MOST_IN_A_MINUTE


def test_a_device_that_names_another_boot_each_time_is_inspected_less_often() -> None:
    edge = Edge().active()

    def watch(_: Attempt, __: devices.WatchDevice) -> Steps:
        edge.boot += 1
        yield Sleep(CONNECTS_S)
        raise ApplicationError("it has restarted", type=errors.OUTCOME_UNKNOWN)

    edge.engine.serve({"watch_device": watch})
    before = len(edge.steps)
    edge.restarts()
    edge.passes(60)
    assert len(edge.steps) - before <= MOST_IN_A_MINUTE


def test_a_device_that_is_lost_whenever_it_is_to_be_deployed_makes_few_events() -> None:
    edge = Edge().active()
    probes: list[int] = []
    before = len(edge.steps)

    def stage(_: Attempt, __: devices.StageOnDevice) -> Steps:
        probes[:] = [1, 2]
        yield Sleep(CONNECTS_S)
        raise ApplicationError("lost", type=errors.NODE_UNREACHABLE)

    def reach(_: Attempt, __: nodes.ReachNode) -> Steps:
        yield Sleep(CONNECTS_S)
        if probes:
            probes.pop()
            raise ApplicationError("lost", type=errors.NODE_UNREACHABLE)
        return nodes.NodeReached(boot_id=str(edge.boot))

    edge.engine.serve({"stage_on_device": stage, "reach_node": reach})
    edge.deploy(1)
    edge.passes(3600)
    assert len(edge.steps) - before <= MOST_IN_AN_HOUR
    assert edge.events.count("device.back") > 1


def test_a_device_is_watched_again_at_once_after_one_watch_that_failed() -> None:
    edge, began_at = Edge(), []

    def watch(_: Attempt, __: devices.WatchDevice) -> Steps:
        began_at.append(edge.engine.clock.now / 1e6)
        yield Sleep(CONNECTS_S if len(began_at) % 2 else LONG_S)
        raise ApplicationError("its watcher ended", type=errors.NODE_UNREACHABLE)

    edge.engine.serve({"watch_device": watch})
    edge.active().until(lambda: len(began_at) == 6)
    gaps = [later - earlier for earlier, later in itertools.pairwise(began_at)]
    assert max(gaps) < LONG_S + 1
    assert min(gaps) < 1


def test_a_deployment_does_not_wait_for_the_next_watch_of_a_device_that_changes_often() -> None:
    edge, count = Edge(), iter(range(1, 10_000))

    def watch(_: Attempt, __: devices.WatchDevice) -> Steps:
        yield Sleep(CONNECTS_S)
        failed = InferenceStatus.FAILED
        return DeviceObserved(run=DeviceRun(status=failed, reason=f"exit {next(count)}"))

    edge.engine.serve({"watch_device": watch})
    edge.active().passes(3600)
    edge.deploy(1)
    edge.passes(10)
    assert edge.ran == [1]
