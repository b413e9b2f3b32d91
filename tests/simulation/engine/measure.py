"""Measures the engine's own CPU: `python -m tests.simulation.engine.measure [jobs] [encoded]`.

Jobs run their whole lifecycles against the fake world of the workflow tests, which costs little.
"""

# ruff: noqa: T201 - a script

import gc
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tests.simulation.contracts import Attempt, Handler
from tests.simulation.engine.engine import Engine
from tests.simulation.engine.values import asked_models
from tests.workflows.fake_world import World
from workflows.contracts.jobs import Exit, JobRequest, RunReport, WorkerExit, parse_run_id
from workflows.contracts.lifecycles import Record, Recorded
from workflows.contracts.statuses import JobStatus, JobType, RunState
from workflows.effects.jobs import StartWorker

RUN_S = 600.0


class Stage:
    """The fake world behind an engine: a job is placed when it waits, and its command succeeds."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.world = World()
        own: dict[str, Handler] = {"record": self._record, "start_worker": self._start_worker}
        engine.serve({**_handlers(self.world), **own})

    def start(self, job_id: str) -> None:
        request = JobRequest(
            job_id=job_id,
            account_id="acc-1",
            project_id="prj-1",
            name="digits",
            type=JobType.TRAINING,
            grace_s=1,
        )
        self.engine.start("JobLifecycle", f"job/{job_id}", request)

    def _record(self, _attempt: Attempt, step: Record) -> Recorded:
        if step.status == JobStatus.WAITING_FOR_RESOURCES:
            self.engine.later(1, partial(self._place, step.resource_id))
        return self.world.record(step)

    def _place(self, job_id: str) -> None:
        self.engine.signal(f"job/{job_id}", "placed", self.world.place(job_id))

    def _start_worker(self, _attempt: Attempt, asked: StartWorker) -> RunReport:
        self.engine.later(RUN_S, partial(self._exit, asked.run_id))
        return self.world.start_worker(asked)

    def _exit(self, run_id: str) -> None:
        run = self.world.machines["nod-1"].runs[run_id]
        run.state, run.elapsed_s = RunState.EXITED, RUN_S
        run.exit = Exit(exit_code=0, elapsed_s=RUN_S)
        job_id, worker, attempt = parse_run_id(run_id)
        ended = WorkerExit(worker=worker, attempt=attempt, exit=run.exit)
        self.engine.signal(f"job/{job_id}", "worker_exited", ended)


def _handlers(world: World) -> Mapping[str, Handler]:
    def handler(method: Callable[[Any], Any]) -> Handler:
        return lambda _attempt, asked: method(asked)

    methods = {name: getattr(world, name, None) for name in asked_models()}
    return {name: handler(method) for name, method in methods.items() if method is not None}


def main(jobs: int, *, encoded: bool) -> None:
    engine = Engine(1, encoded=encoded)
    stage = Stage(engine)
    gc.collect()
    gc.freeze()
    gc.disable()
    begun = time.process_time()
    for number in range(jobs):
        stage.start(f"job-{number}")
    ended = engine.play()
    used_ms = (time.process_time() - begun) * 1e3
    done = sum(status[-1] == JobStatus.FINISHED for status in stage.world.statuses.values())
    print(f"{done} of {jobs} jobs finished; {ended} left")
    print(
        f"{used_ms / engine.activations:.3f} ms an activation, {engine.activations / jobs:g} a job"
    )
    print(f"{used_ms / jobs:.2f} ms a job")


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 100, encoded="encoded" in sys.argv)
