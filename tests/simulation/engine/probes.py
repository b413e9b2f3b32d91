"""Small workflows that show one rule of Temporal each, on the engine and on a real server."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RetryPolicy, SearchAttributeKey
from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    FailureError,
    TimeoutError as OutOfTime,
    is_cancelled_exception,
)

from workflows.contracts.base import Contract

STATUS = SearchAttributeKey.for_keyword("ResourceStatus")
UNSERVED = "nobody"
"""A task queue that no process serves."""


class Asked(Contract):
    """What an effect of the probes does: it fails so often, or takes so long, or says nothing."""

    fails: int = 0
    kind: str = "Broken"
    seconds: float = 0.0
    is_silent: bool = False
    ignores_cancellation: bool = False


class Said(Contract):
    text: str = ""


@dataclass(frozen=True)
class Act:
    """What a client does at a moment, in seconds after the start."""

    at: float
    do: str
    """`signal`, `cancel` or `terminate`."""
    text: str = ""


@dataclass(frozen=True)
class Probe:
    """One workflow with what clients do to it. first: a signal that comes with its start."""

    workflow: type
    acts: tuple[Act, ...] = ()
    first: str = ""

    @property
    def name(self) -> str:
        return self.workflow.__name__


PROBES: list[Probe] = []


def probe(*acts: Act, first: str = "") -> Callable[[type], type]:
    def add(kind: type) -> type:
        defined = workflow.defn(sandboxed=False)(kind)
        PROBES.append(Probe(defined, acts, first))
        return defined

    return add


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def seen(error: BaseException | None) -> str:
    """How a workflow sees a failure: the types of the chain, with what decides."""
    words = []
    while error is not None:
        what = type(error).__name__
        if isinstance(error, ActivityError):
            what += f"[{error.retry_state.name if error.retry_state else None}]"
        elif isinstance(error, ApplicationError):
            what += f"[{error.type}: {error.message}]"
        elif isinstance(error, OutOfTime):
            what += f"[{error.type.name if error.type else None}]"
        words.append(what)
        error = error.cause if isinstance(error, FailureError) else None
    return " < ".join(words)


def retried(attempts: int = 0, first: float = 0.1) -> RetryPolicy:
    return RetryPolicy(
        initial_interval=seconds(first),
        maximum_attempts=attempts,
        non_retryable_error_types=["Hopeless"],
    )


async def acts(asked: Asked, **options: Any) -> str:
    """How an activity ends, as its workflow sees it."""
    settings: dict[str, Any] = {"start_to_close_timeout": seconds(5), "retry_policy": retried()}
    try:
        said = await workflow.execute_activity(
            "act", asked, result_type=Said, **{**settings, **options}
        )
    except ActivityError as error:
        return seen(error)
    return said.text


async def acts_locally(asked: Asked, **options: Any) -> str:
    settings: dict[str, Any] = {"start_to_close_timeout": seconds(2), "retry_policy": retried(3)}
    try:
        said = await workflow.execute_local_activity(
            "act", asked, result_type=Said, **{**settings, **options}
        )
    except FailureError as error:
        return seen(error)
    return said.text


class Listener:
    """Hears `tell`."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    @workflow.signal
    def tell(self, said: Said) -> None:
        self.heard.append(said.text)

    @workflow.query
    def told(self) -> str:
        return ",".join(self.heard)

    async def listen(self, count: int) -> None:
        await workflow.wait_condition(lambda: len(self.heard) >= count)


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

        tasks = [workflow.asyncio.create_task(wait(one)) for one in (1.2, 0.4, 0.8)]
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


class Cancels(Listener):
    """Starts an activity, cancels it when it hears something, and lives on for a while."""

    how = workflow.ActivityCancellationType.TRY_CANCEL

    async def cancels(self, asked: Asked, **options: Any) -> str:
        settings: dict[str, Any] = {
            "start_to_close_timeout": seconds(20),
            "heartbeat_timeout": seconds(2),
            "retry_policy": retried(),
        }
        handle = workflow.start_activity(
            "act",
            asked,
            result_type=Said,
            cancellation_type=self.how,
            **{**settings, **options},
        )
        await self.listen(1)
        handle.cancel()
        begun = workflow.now()
        try:
            outcome = (await handle).text
        except ActivityError as error:
            outcome = seen(error)
        was_quick = (workflow.now() - begun).total_seconds() < 0.05  # noqa: PLR2004 - at once
        await workflow.sleep(1.5)
        return f"{outcome}, {'at once' if was_quick else 'later'}"


@probe(Act(0.7, "signal", "stop"))
class TryCancelDoesNotWait(Cancels):
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await self.cancels(Asked(seconds=10))


@probe(Act(0.7, "signal", "stop"))
class WaitForACancellation(Cancels):
    how = workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED

    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await self.cancels(Asked(seconds=10))


@probe(Act(0.7, "signal", "stop"))
class AnActivityEndsInSpiteOfItsCancellation(Cancels):
    how = workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED

    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await self.cancels(Asked(seconds=2, ignores_cancellation=True))


@probe(Act(0.7, "signal", "stop"))
class AnActivityWithoutHeartbeatsHearsNoCancellation(Cancels):
    how = workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED

    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await self.cancels(Asked(seconds=2, is_silent=True), heartbeat_timeout=None)


@probe(Act(0.7, "signal", "stop"))
class TryCancelOfAWaitingActivity(Cancels):
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await self.cancels(Asked(), task_queue=UNSERVED)


@probe(Act(0.7, "signal", "stop"))
class WaitForTheCancellationOfAWaitingActivity(Cancels):
    how = workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED

    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await self.cancels(Asked(), task_queue=UNSERVED)


@probe(Act(0.7, "signal", "stop"))
class CancelBetweenTwoAttempts(Cancels):
    how = workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED

    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await self.cancels(Asked(fails=9), retry_policy=retried(first=30))


@probe()
class CancelBeforeItIsSent:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        outcomes = []
        for how in (
            workflow.ActivityCancellationType.TRY_CANCEL,
            workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        ):
            handle = workflow.start_activity(
                "act", Asked(), start_to_close_timeout=seconds(5), cancellation_type=how
            )
            await workflow.asyncio.sleep(0)
            handle.cancel()
            try:
                await handle
            except (ActivityError, workflow.asyncio.CancelledError) as error:
                outcomes.append(seen(error))
        return "; ".join(outcomes)


@probe()
class ALocalActivityIsRetriedWithinTheTask:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await acts_locally(Asked(fails=2))


@probe()
class ALocalActivityFailsForGood:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await acts_locally(Asked(fails=9)) + await acts(Asked())


@probe()
class AHopelessLocalActivity:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await acts_locally(Asked(fails=9, kind="Hopeless"))


@probe()
class ALocalActivityRunsOutOfTime:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await acts_locally(
            Asked(seconds=5), start_to_close_timeout=seconds(0.3), retry_policy=retried(2)
        )


@probe(Act(0.5, "signal", "a"))
class SignalsWaitForALocalActivity(Listener):
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        said = await acts_locally(Asked(seconds=1.0))
        before = self.told()
        await self.listen(1)
        return f"{said}:{before}:{self.told()}"


@probe(Act(0.5, "signal", "a"))
class AnEndIsRefusedWhileASignalWaits(Listener):
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        said = await acts_locally(Asked(seconds=1.0))
        return f"{said}:{self.told()}"


@probe()
class ALongLocalActivityAsksForAnotherTask:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await acts_locally(Asked(seconds=9.0), start_to_close_timeout=seconds(20))


@probe()
class ATimerBesideALocalActivityIsSentLater:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        timer = workflow.asyncio.create_task(workflow.asyncio.sleep(0.2))
        said = await acts_locally(Asked(seconds=0.6))
        was_done = timer.done()
        await timer
        return f"{said} {was_done}"


@probe()
class AnActivityIsRetried:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await acts(Asked(fails=2))


@probe()
class AnActivityHasTooFewAttempts:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await acts(Asked(fails=9), retry_policy=retried(2))


@probe()
class AHopelessActivity:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await acts(Asked(fails=9, kind="Hopeless"))


@probe()
class AnAttemptRunsOutOfTime:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await acts(
            Asked(seconds=4), start_to_close_timeout=seconds(0.5), retry_policy=retried(2)
        )


@probe()
class AnAttemptSendsNoHeartbeat:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await acts(
            Asked(seconds=4, is_silent=True),
            heartbeat_timeout=seconds(0.5),
            retry_policy=retried(2),
        )


@probe()
class NobodyTakesAnActivity:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await acts(Asked(), task_queue=UNSERVED, schedule_to_start_timeout=seconds(0.5))


@probe()
class NobodyTakesAnActivityUntilItsEnd:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await acts(Asked(), task_queue=UNSERVED, schedule_to_close_timeout=seconds(0.5))


@probe()
class TheNextAttemptWouldBeTooLate:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await acts(
            Asked(fails=9), retry_policy=retried(first=0.6), schedule_to_close_timeout=seconds(1)
        )


@probe()
class AllAttemptsTogetherRunOutOfTime:
    @workflow.run
    async def run(self, _asked: Asked) -> str:
        return await acts(Asked(fails=1, seconds=4), schedule_to_close_timeout=seconds(1))


@probe(Act(0.5, "signal", "a"), Act(1.8, "signal", "b"))
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
        await own.signal("tell", Said(text="a"))
        await self.listen(1)
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
            return f"{cancelled} {seen(error)} {await acts(Asked())}"
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
