"""What a node says of its idle workload: bounded, and signalled when it changes."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.site import idle_workloads
from activities.site.answers.frames import Frame, IdleWorkloadFrame, frames
from activities.site.answers.reading import Speaker
from activities.site.idle_workloads import CHANGE_PAUSE_S, FIGURES_PAUSE_S, IdleWorkloadSignals
from workflows.contracts.base import Contract
from workflows.contracts.nodes import IdleWorkloadReported, IdleWorkloadState

RUNNING = IdleWorkloadFrame(state=IdleWorkloadState.RUNNING, run_s=1.0, revision="1")


class Heard:
    """A node's lifecycle, a clock, and whether Temporal takes signals."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reports: list[tuple[str, str, IdleWorkloadReported]] = []
        self.now_s = 1000.0
        self.fails = False
        monkeypatch.setattr(idle_workloads, "tell", self._take)
        clock = SimpleNamespace(monotonic=lambda: self.now_s)
        monkeypatch.setattr(idle_workloads, "time", clock)

    async def _take(self, workflow_id: str, signal: str, argument: Contract) -> bool:
        if self.fails:
            raise ApplicationError("Temporal is away")
        assert isinstance(argument, IdleWorkloadReported)
        self.reports.append((workflow_id, signal, argument))
        return True

    def told(self, *notes: tuple[float, IdleWorkloadFrame]) -> list[float]:
        """The seconds of run that the lifecycle hears of, of frames after so many seconds each."""

        async def play() -> None:
            async with IdleWorkloadSignals("nod-1") as signals:
                for after_s, frame in notes:
                    self.now_s += after_s
                    signals.note(frame)
                    await asyncio.sleep(0)
                    await asyncio.sleep(0)

        asyncio.run(ActivityEnvironment().run(play))
        return [report.facts.run_s for _, _, report in self.reports]


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Heard:
    return Heard(monkeypatch)


def ran(run_s: float, state: str = "running", revision: str = "1") -> IdleWorkloadFrame:
    return IdleWorkloadFrame(state=IdleWorkloadState(state), run_s=run_s, revision=revision)


def test_its_seconds_are_signalled_now_and_then_however_often_it_says_them(heard: Heard) -> None:
    flood = [(1.0, ran(float(number))) for number in range(int(FIGURES_PAUSE_S) + 2)]
    assert heard.told(*flood) == [0.0, FIGURES_PAUSE_S]
    assert heard.reports[0][:2] == ("node/nod-1", "idle_workload_reported")


def test_a_change_of_its_state_is_signalled_sooner(heard: Heard) -> None:
    said = [(30.0, ran(1.0)), (30.0, ran(2.0, "waiting")), (30.0, ran(3.0, "waiting"))]
    assert heard.told(*said) == [1.0, 3.0]
    assert CHANGE_PAUSE_S == 60.0


def test_what_has_not_changed_is_not_signalled_again(heard: Heard) -> None:
    assert heard.told(*[(FIGURES_PAUSE_S, ran(7.0, "waiting"))] * 5) == [7.0]


def test_a_signal_that_fails_is_sent_with_a_later_frame(heard: Heard) -> None:
    heard.fails = True
    assert heard.told((1.0, ran(1.0)), (30.0, ran(2.0))) == []
    heard.fails = False
    assert heard.told((CHANGE_PAUSE_S, ran(3.0))) == [3.0]


def cut(line: bytes) -> list[Frame]:
    async def read() -> list[Frame]:
        async def chunks() -> AsyncIterator[bytes]:
            yield line + b"\n"

        return [frame async for frame in frames(chunks(), Speaker("nod-1", "watch"))]

    return asyncio.run(read())


def test_the_frame_of_the_watcher_is_read() -> None:
    line = (
        b'{"kind": "idle_workload", "state": "running", "revision": "1", "run_s": 1.0, '
        b'"energy_joules": null, "energy_s": 0.0, "reason": ""}'
    )
    assert cut(line) == [RUNNING]
    assert cut(line.replace(b'"revision": "1"', b'"revision": ""'))[0].kind == "idle_workload"


@pytest.mark.parametrize(
    "said",
    [
        b'"state": "mining", "run_s": 1.0, "revision": "1"',
        b'"state": "running", "run_s": -1.0, "revision": "1"',
        b'"state": "running", "run_s": 1e300, "revision": "1"',
        b'"state": "running", "run_s": 1.0, "energy_joules": 1e300, "revision": "1"',
        b'"state": "running", "run_s": 1.0, "revision": "../1"',
    ],
)
def test_what_no_watcher_of_ours_says_is_a_violation(said: bytes) -> None:
    with pytest.raises(ApplicationError):
        cut(b'{"kind": "idle_workload", ' + said + b"}")
