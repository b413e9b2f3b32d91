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
)
from temporalio.exceptions import (
    TimeoutError as OutOfTime,
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
    """One workflow with what clients do to it.

    first: a signal that comes with its start; fault: of all calls, where a real effect is silent.
    """

    workflow: type
    acts: tuple[Act, ...] = ()
    first: str = ""
    fault: str = ""

    @property
    def name(self) -> str:
        return self.workflow.__name__


PROBES: list[Probe] = []


def probe(*acts: Act, first: str = "", fault: str = "") -> Callable[[type], type]:
    def add(kind: type) -> type:
        defined = workflow.defn(kind)
        PROBES.append(Probe(defined, acts, first, fault))
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
    return str(said.text)


async def acts_locally(asked: Asked, **options: Any) -> str:
    settings: dict[str, Any] = {"start_to_close_timeout": seconds(2), "retry_policy": retried(3)}
    try:
        said = await workflow.execute_local_activity(
            "act", asked, result_type=Said, **{**settings, **options}
        )
    except FailureError as error:
        return seen(error)
    return str(said.text)


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
