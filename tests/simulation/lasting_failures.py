"""Failures that last: an effect fails for one workflow again and again, as its activity fails.

What is retried without a limit goes on once the failure is over; else the workflow takes its
branch of a failed effect.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from random import Random

from temporalio.exceptions import ApplicationError

from tests.failure.pairs import stubs
from tests.simulation.contracts import Attempt
from workflows.contracts import errors, queues
from workflows.effects.effect import Effect

KEEPS_FAILING, REFUSED_FOR_GOOD = "keeps_failing", "refused_for_good"
LASTING = (KEEPS_FAILING, REFUSED_FOR_GOOD)
"""With an error that is retried, and with one that is final."""
SPANS_S = (300.0, 3600.0, 12_000.0)
"""How long an effect fails whose attempts have no limit together."""
MARGIN_S = 45.0
"""So much longer than the limit of all attempts an effect fails: more than one pause."""
REFUSED_S = (1.0, 1.0, 400.0)
"""How long an effect is refused: one call with its local attempts, or also later calls."""

_STORES = ("stage_worker", "collect_log", "store_output", "save_snapshot")
_FINAL: dict[str, tuple[str, ...]] = {
    "stage_worker": (errors.WORK_REFUSED, errors.NODE_REFUSED),
    "seal_run_specs": (errors.WORK_REFUSED,),
    "create_machine": (errors.CAPACITY_EXHAUSTED, errors.REQUEST_REFUSED),
    "find_storage_claim": (errors.REFUSED,),
    "check_site": (),
    **dict.fromkeys(
        ("ensure_provider_resource", "remove_provider_resource", "check_cloud"), (errors.REFUSED,)
    ),
    **dict.fromkeys(("ensure_region_resource", "remove_region_resource"), (errors.REFUSED,)),
}
"""The final errors of single activities that do not follow from their queue."""


@cache
def final_errors_of(effect: str) -> Sequence[str]:
    """The types of final errors that its activity may raise whatever the rows say.

    A protocol violation is told of a whole machine: `machine_lies` of the world.
    """
    if effect in _FINAL:
        return _FINAL[effect]
    queue = _stubs_of(effect)[0].queue
    if queue is None:
        return (errors.NODE_REFUSED, errors.HOST_KEY_MISMATCH)
    return (errors.REQUEST_REFUSED,) if queue in (queues.CLOUD, queues.RELEASES) else ()


@cache
def passing_errors_of(effect: str) -> Sequence[str]:
    """The types of errors that its activity may raise, and that are retried."""
    queue = _stubs_of(effect)[0].queue
    if queue is None:
        stored = ("OSError",) if effect in _STORES else ()
        return (errors.NODE_UNREACHABLE, errors.OUTCOME_UNKNOWN, errors.LOGIN_REFUSED, *stored)
    if queue in (queues.MAIN, queues.PLANNING):
        return ("OperationalError",)
    return (errors.UNAVAILABLE, errors.NO_SLOT)


def lasts_s(effect: str, what: str, random: Random) -> float:
    """Until all attempts have failed; of what has no limit, or was refused, a span."""
    if what == REFUSED_FOR_GOOD:
        return random.choice(REFUSED_S)
    limits = [stub.schedule_to_close_s for stub in _stubs_of(effect)]
    limit = random.choice(limits)
    return random.choice(SPANS_S) if limit is None else limit + MARGIN_S


def _stubs_of(effect: str) -> list[Effect]:  # type: ignore[type-arg]
    """One or more: some stubs share an activity, with other limits."""
    return [stub for stub in stubs().values() if stub.name == effect]


@dataclass
class LastingFailures:
    """Which effects of which workflows fail now."""

    errors: dict[tuple[str, str], tuple[float, ApplicationError]] = field(default_factory=dict)
    """By workflow id and effect: until when, in virtual seconds, and how."""

    def begin(self, attempt: Attempt, what: str, until_s: float, random: Random) -> None:
        """Let this attempt fail, and all that follow; what has no final error is retried."""
        effect, whose = attempt.effect, attempt.workflow_id
        known = passing_errors_of if what == KEEPS_FAILING else final_errors_of
        kind = random.choice(known(effect) or passing_errors_of(effect))
        error = ApplicationError(f"{whose}: {effect} fails", type=kind)
        self.errors[whose, effect] = (until_s, error)

    def error_of(self, attempt: Attempt, now_s: float) -> ApplicationError | None:
        """How this attempt fails; None: it does not."""
        found = self.errors.get((attempt.workflow_id, attempt.effect))
        if found is None:
            return None
        until_s, error = found
        if now_s > until_s:
            del self.errors[attempt.workflow_id, attempt.effect]
            return None
        return error
