"""Probes of signals, timers, ends, and tasks that fail."""

import asyncio

from temporalio import workflow
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    FailureError,
    is_cancelled_exception,
)

from tests.simulation.engine.probes.base import (
    STATUS,
    Act,
    Asked,
    Listener,
    Said,
    acts_locally,
    probe,
    seconds,
    seen,
)


@probe(Act(0.5, "signal", "b"), Act(1.0, "signal", "c"), first="a")
class SignalsFollowTheStart(Listener):
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        first = ",".join(self.heard)
        await self.listen(3)
        return f"{first};{self.told()}"


@probe()
class TimersFireInTheirOrder:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        fired: list[str] = []

        async def wait(limit: float) -> None:
            await workflow.sleep(limit)
            fired.append(str(limit))

        tasks = [asyncio.create_task(wait(one)) for one in (6, 2, 4)]
        for task in tasks:
            await task
        return ",".join(fired)


@probe(Act(0.5, "signal", "a"))
class ASignalEndsAWait(Listener):
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        await workflow.wait_condition(lambda: bool(self.heard), timeout=seconds(60))
        return self.told()


@probe()
class AWaitRunsOut(Listener):
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        try:
            await workflow.wait_condition(lambda: bool(self.heard), timeout=seconds(0.5))
        except TimeoutError:
            return "timeout"
        return self.told()


@probe(Act(0.5, "signal", "a"), Act(3.5, "signal", "b"))
class ANewRunHearsLaterSignals(Listener):
    @workflow.run
    async def run(self, asked: Asked) -> str:
        await self.listen(1)
        if not asked.kind.startswith("again"):
            workflow.continue_as_new(Asked(kind=f"again after {self.told()}"))
        return f"{asked.kind}:{self.told()}"


@probe()
class APatchIsMarked:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        before = workflow.patched("one")
        await workflow.sleep(0.3)
        return f"{before} {workflow.patched('one')} {workflow.patched('two')}"


@probe()
class SearchAttributesAreSet:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        workflow.upsert_search_attributes([STATUS.value_set("running")])
        workflow.set_current_details("nothing in the history")
        await workflow.sleep(0.3)
        workflow.upsert_search_attributes([STATUS.value_unset()])
        return "done"


@probe()
class ASignalFindsNoWorkflow:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        try:
            await workflow.get_external_workflow_handle("nobody").signal("tell", Said())
        except FailureError as error:
            return seen(error)
        return "delivered"


@probe()
class AWorkflowSignalsItself(Listener):
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        own = workflow.get_external_workflow_handle(workflow.info().workflow_id)
        try:
            await own.signal("tell", Said(text="a"))
        except FailureError as error:
            return seen(error)
        return self.told()


@probe(Act(0.5, "cancel"), Act(0.7, "cancel"))
class AWorkflowIsCancelled:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        await workflow.sleep(60)
        return "not cancelled"


@probe(Act(0.5, "cancel"))
class ACancelledWorkflowCompensates:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        try:
            await workflow.execute_activity(
                "act",
                Asked(seconds=10),
                start_to_close_timeout=seconds(20),
                heartbeat_timeout=seconds(2),
                cancellation_type=workflow.ActivityCancellationType.TRY_CANCEL,
            )
        except ActivityError as error:
            cancelled = is_cancelled_exception(error)
            await asyncio.sleep(2)
            return f"{cancelled} {seen(error)}"
        return "not cancelled"


@probe(Act(0.5, "terminate"))
class AWorkflowIsTerminated:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        await workflow.sleep(60)
        return "not terminated"


@probe()
class AWorkflowFails:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        raise ApplicationError("no", type="Hopeless")


@probe()
class TheHistoryIsCounted:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        lengths = [workflow.info().get_current_history_length()]
        for _ in range(2):
            await acts_locally(Asked())
            lengths.append(workflow.info().get_current_history_length())
            await workflow.sleep(0.2)
            lengths.append(workflow.info().get_current_history_length())
        return str(lengths)


_failures: dict[str, int] = {}
"""How often the first task of each run has failed already: outside of the workflow's history."""


def forget_failures(workflow_id: str) -> None:
    """Let a probe fail anew: engines of one seed give its runs the same ids."""
    for which in [one for one in _failures if one.split()[0] == workflow_id]:
        del _failures[which]


class FailsATask(Listener):
    """Its first task fails so often, as when a worker process has a bug."""

    async def fail(self, times: int) -> None:
        which = f"{workflow.info().workflow_id} {workflow.info().run_id}"
        _failures[which] = failed = _failures.get(which, 0) + 1
        if failed <= times:
            raise RuntimeError("a bug of the workflow")


@probe()
class ATaskFailsOnce(FailsATask):
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        await self.fail(1)
        return f"{workflow.info().get_current_history_length()}"


@probe()
class ATaskFailsTwice(FailsATask):
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        await self.fail(2)
        return f"{workflow.info().get_current_history_length()}"


@probe(Act(3, "signal", "a"))
class ASignalArrivesWhileATaskFails(FailsATask):
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        await self.fail(2)
        return f"{workflow.info().get_current_history_length()} {self.told()}"


@workflow.defn
class Counts(Listener):
    """Ends when it hears `end`; for what clients may ask of a workflow."""

    @workflow.run
    async def run(self, _asked: Asked) -> str:
        await workflow.wait_condition(lambda: "end" in self.heard)
        return self.told()


@workflow.defn
class SignalsAnother:
    """Signals the workflow `other`."""

    @workflow.run
    async def run(self, _asked: Asked) -> str:
        await workflow.get_external_workflow_handle("other").signal("tell", Said(text="a"))
        return "delivered"
