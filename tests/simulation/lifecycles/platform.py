"""The platform: the loops, the worker processes, the engine itself."""

from collections.abc import Iterable

from tests.simulation.engine.processes import SECOND_MAIN
from tests.simulation.life import Life
from tests.simulation.lifecycles.part import CALL_MODES, Part, asks, calls_fail, effects_of
from tests.simulation.plan import At, Draft, In
from tests.simulation.states import (
    DATASTORE,
    FAULTS,
    JOB,
    NODE,
    PROVIDER,
    REGION,
    STATUSES,
    VERBS,
    open_states,
)
from workflows.primitives.journal import STALE

LOOPS = ("Placement", "OutboxRelay", "LifecycleReconciliation", "Housekeeping")
BUSY = ("JobLifecycle", "LeaseLifecycle", "NodeLifecycle", "JobBilling", *LOOPS)
"""Whose calls are the moments at which a process or the engine fails."""
PROCESSES = ("main", "main", SECOND_MAIN, "planning", "api")
LOST_S = (1.0, 15.0, 120.0, 2400.0)
"""How much of its past an engine has lost that is restored."""
AFTER_A_RESTORE = "the cache does not fit the history"
"""Why a workflow task fails and is replayed when a process knows more than the engine."""
ADDED = {NODE: "node", REGION: "region", PROVIDER: "provider", DATASTORE: "datastore"}
"""What people add while others work; an installation has the first ones when it is ready."""
LONGEST_HISTORY = 40_000
"""Events of a run that is alive; the server ends one at 51,200."""


def _processes_end(draft: Draft) -> None:
    what = draft.random.choice(("kill", "kill", "kill", "restart", "second"))
    which = draft.random.choice(PROCESSES)
    lasts = draft.random.choice((0.5, 5.0, 120.0))
    draft.add(draft.moment(effects_of(*BUSY)), "process", what, which, lasts)


def _upgrades(draft: Draft) -> None:
    """To the next release at once or by one main worker after the other; some are taken back."""
    what = draft.random.choice(("upgrade", "roll"))
    lasts = draft.random.choice((0.5, 5.0, 120.0))
    draft.add(draft.moment(effects_of(*BUSY)), "process", what, "main", lasts)
    if draft.random.random() < 0.3:
        draft.add(draft.moment(effects_of(*BUSY)), "process", "rollback", "main", lasts)


def _meets_a_state(draft: Draft) -> None:
    """Something goes wrong with a resource, or is asked of it, soon after it shows a state.

    Every state of every lifecycle is as likely, also those that last for a moment.
    """
    random = draft.random
    lifecycle = random.choice(
        sorted(STATUSES) if draft.has_cloud else (JOB, NODE, REGION, DATASTORE)
    )
    if (noun := ADDED.get(lifecycle)) is not None:
        draft.add(At(draft.some_time()), "ask", "add", noun)
    after_s = random.choice((0.0, 0.003, 0.02, 0.5, 5.0))
    nth = min(int(random.paretovariate(1.0)), 8)
    when = In(lifecycle, random.choice(open_states(lifecycle)), nth, after_s)
    lasts = random.choice((0.5, 20.0, 120.0))
    kind = random.choice(("call", "call", "world", "world", "process", "engine", "ask", "ask"))
    if kind == "call":
        draft.add(when, "call", random.choice(CALL_MODES), "", lasts)
    elif kind == "world":
        draft.add(when, "world", random.choice(FAULTS[lifecycle]))
    elif kind == "process":
        what = random.choice(("kill", "kill", "restart", "upgrade", "roll", "rollback"))
        which = random.choice(("main", "main", "planning", "api")) if what == "kill" else "main"
        draft.add(when, "process", what, which, lasts)
    elif kind == "engine":
        draft.add(when, "engine", random.choice(("forget", "restore", "away")), "", lasts)
    else:
        draft.add(when, "ask", random.choice(VERBS[lifecycle]))


def _engine_fails(draft: Draft) -> None:
    what = draft.random.choice(("forget", "restore", "restore", "away", "away"))
    lasts = draft.random.choice((20.0, 300.0) if what == "away" else LOST_S)
    draft.add(draft.moment(effects_of(*BUSY)), "engine", what, "", lasts)


def _always(life: Life) -> Iterable[str]:
    """Every wait has a limit: a timer, or an activity, which has limits of its own.

    A workflow that is behind its row waits for the reconciliation, which terminates it.
    """
    for one in life.engine.waits_without_limit():
        if one.search_attributes.get("ResourceStatus") != STALE:
            yield f"{one.workflow_id} waits for a signal alone, without any limit"


def _host_fails(draft: Draft) -> None:
    """The worker processes end with the engine, which has lost its last seconds."""
    when = draft.moment(effects_of(*(("Placement",) if draft.random.random() < 0.5 else BUSY)))
    draft.add(when, "engine", "restore", "", draft.random.choice(LOST_S[:2]))
    for process in ("main", "planning"):
        draft.add(when, "process", "kill", process, draft.random.choice((0.5, 20.0)))


def _at_rest(life: Life) -> Iterable[str]:
    if waiting := life.rows.waiting_requests():
        yield f"the outbox: {waiting} requests have not been delivered"
    running = {one.workflow_id for one in life.engine.running()}
    for loop in ("placement", "outbox"):
        if loop not in running:
            yield f"the loop {loop} does not run"
    if not _has_met_older_code(life):
        for _, who, what, why in life.engine.log.lines:
            if what == "workflow task failed" and why != AFTER_A_RESTORE:
                yield f"{who}: its workflow code has failed: {why}"
    for one in life.engine.running():
        if (length := len(life.engine.history(one.workflow_id))) > LONGEST_HISTORY:
            yield f"{one.workflow_id} has a history of {length} events"
        if one.task_attempt >= 4:
            yield f"{one.workflow_id} is stuck: its workflow task fails again and again"


def _has_met_older_code(life: Life) -> bool:
    """Whether workers of the older release may have met runs that the next one has marked: their
    tasks fail, and are tried again until a worker of the next release has them."""
    return any(act.kind == "process" and act.what in ("roll", "rollback") for act in life.plan.acts)


PLATFORM = Part(
    name="platform",
    workflows=(*LOOPS, "TrunkOpening"),
    drawers=(
        (4, calls_fail(*LOOPS)),
        (7, _processes_end),
        (2, _upgrades),
        (8, _meets_a_state),
        (2, _engine_fails),
        (2, _host_fails),
        (1, asks("account", lambda _: 2, "JobBilling", "top_up")),
    ),
    always=_always,
    at_rest=_at_rest,
)  # fmt: skip
