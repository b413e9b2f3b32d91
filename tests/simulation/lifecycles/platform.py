"""The platform: the loops, the worker processes, the engine itself."""

from collections.abc import Iterable
from dataclasses import replace

from tests.simulation.engine.processes import (
    OWN_SITE,
    PLANNING,
    SECOND_MAIN,
    SECOND_PLANNING,
    SECOND_SITE,
    SECONDS,
)
from tests.simulation.lasting_failures import LASTING, REFUSED_FOR_GOOD
from tests.simulation.life import Life
from tests.simulation.lifecycles.part import (
    CALL_MODES,
    Part,
    asks,
    calls_fail,
    calls_keep_failing,
    effects_of,
)
from tests.simulation.plan import Act, At, Draft, In
from tests.simulation.states import (
    ARTIFACT,
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
TELLS = {
    "notify_placed_jobs": False,
    "notify_jobs": True,
    "notify_holder": True,
    "relay_outbox": True,
}
"""Effects that send messages to other workflows, each with whether a main worker does it, which
acts upon them too."""
PROCESSES = (
    *("main", "main", "main", SECOND_MAIN, PLANNING, PLANNING, SECOND_PLANNING, "api", "api"),
    *(OWN_SITE, SECOND_SITE),
)
LOST_S = (1.0, 15.0, 120.0, 2400.0)
"""How much of its past an engine has lost that is restored."""
AFTER_A_RESTORE = "the cache does not fit the history"
"""Why a workflow task fails and is replayed when a process knows more than the engine."""
ADDED = {
    NODE: "node",
    REGION: "region",
    PROVIDER: "provider",
    ARTIFACT: "dataset",
    DATASTORE: "datastore",
}
"""What people add while others work; an installation has the first ones when it is ready."""
SOME_TIME = At(0)
"""Stands for a time that is drawn."""
WAYS: dict[tuple[str, str], tuple[Act, ...]] = {
    (JOB, "unreachable"): (Act(In(JOB, "running", 1, 5), "world", "machine_unreachable", "", 900),),
    (JOB, "stopped"): (Act(In(JOB, "running", 1, 5), "ask", "stop"),),
    (JOB, "removing"): (Act(In(JOB, "finished", 1, 5), "ask", "remove"),),
    (NODE, "offline"): (Act(SOME_TIME, "world", "machine_unreachable", "machine/0", 900),),
    (NODE, "failed"): (Act(In(NODE, "inspecting", 1), "call", REFUSED_FOR_GOOD, "", 1),),
    (NODE, "removing"): (Act(In(NODE, "maintenance", 1, 5), "ask", "remove"),),
    (REGION, "offline"): (Act(SOME_TIME, "world", "site_away", "region/0", 900),),
    (REGION, "failed"): (
        Act(SOME_TIME, "ask", "add", "provider"),
        Act(In(PROVIDER, "ready", 1, 5), "ask", "add", "region"),
        Act(In(REGION, "provisioning", 1), "call", REFUSED_FOR_GOOD, "", 1),
    ),
    (REGION, "removing"): (Act(In(REGION, "healthy", 1, 5), "ask", "remove"),),
    (PROVIDER, "failed"): (Act(In(PROVIDER, "enabling", 1), "call", REFUSED_FOR_GOOD, "", 1),),
    (PROVIDER, "removing"): (Act(In(PROVIDER, "ready", 1, 5), "ask", "remove"),),
}
"""What leads to states that are rare without it."""
LONGEST_HISTORY = 40_000
"""Events of a run that is alive; the server ends one at 51,200."""


def _processes_end(draft: Draft) -> None:
    what = draft.random.choice(("kill", "kill", "kill", "restart", "second"))
    which = draft.random.choice(tuple(SECONDS) if what == "second" else PROCESSES)
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
        sorted(STATUSES) if draft.has_cloud else (JOB, NODE, REGION, ARTIFACT, DATASTORE)
    )
    if (noun := ADDED.get(lifecycle)) is not None:
        draft.add(At(draft.some_time() / 2), "ask", "add", noun)
    after_s = random.choice((0.0, 0.003, 0.02, 0.5, 5.0))
    nth = min(int(random.paretovariate(2.0)), 8)
    state = random.choice(open_states(lifecycle))
    for way in WAYS.get((lifecycle, state), ()):
        at = At(draft.some_time() / 2) if isinstance(way.when, At) else way.when
        draft.acts.append(replace(way, when=at))
    when = In(lifecycle, state, nth, after_s)
    lasts = random.choice((0.5, 20.0, 120.0))
    kind = random.choice(("call", "call", "world", "world", "process", "engine", "ask", "ask"))
    if kind == "call":
        draft.add(when, "call", random.choice((*CALL_MODES, *LASTING)), "", lasts)
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
    """Worker processes end with the engine, which has lost its last seconds.

    Rather at a call that sends messages: the engine has taken them, and the process of those who
    would act upon them ends before they do.
    """
    lost_s = draft.random.choice(LOST_S[:2])
    if draft.random.random() < 0.3:
        when = draft.moment(effects_of(*BUSY))
        draft.add(when, "engine", "restore", "", lost_s)
        for process in ("main", "planning"):
            draft.add(when, "process", "kill", process, draft.random.choice((0.5, 20.0)))
        return
    told = draft.call(tuple(TELLS))
    draft.add(replace(told, is_after=False), "engine", "restore", "", lost_s)
    ends = replace(told, is_after=TELLS[told.effect])
    draft.add(ends, "process", "kill", "main", draft.random.choice((0.5, 20.0)))


def _at_rest(life: Life) -> Iterable[str]:
    if waiting := life.rows.waiting_requests():
        yield f"the outbox: {waiting} requests have not been delivered"
    running = {one.workflow_id for one in life.engine.running()}
    for loop in ("placement", "outbox"):
        if loop not in running:
            yield f"the loop {loop} does not run"
    # Runs that the next release has marked fail their tasks with older code, and are tried again.
    limit_s = float("inf") if life.older_code_at is None else life.older_code_at
    for at, who, what, why in life.engine.log.lines:
        if what == "workflow task failed" and why != AFTER_A_RESTORE and at < limit_s * 1e6:
            yield f"{who}: its workflow code has failed: {why}"
    for one in life.engine.running():
        if (length := len(life.engine.history(one.workflow_id))) > LONGEST_HISTORY:
            yield f"{one.workflow_id} has a history of {length} events"
        if one.task_attempt >= 4:
            yield f"{one.workflow_id} is stuck: its workflow task fails again and again"


PLATFORM = Part(
    name="platform",
    workflows=(*LOOPS, "TrunkOpening", "DeviceFees", "Payouts", "BalanceGuard"),
    drawers=(
        (4, calls_fail(*LOOPS)),
        (1, calls_keep_failing(*LOOPS)),
        (7, _processes_end),
        (2, _upgrades),
        (8, _meets_a_state),
        (2, _engine_fails),
        (5, _host_fails),
        (1, asks("account", lambda _: 2, "JobBilling", "top_up")),
    ),
    always=_always,
    at_rest=_at_rest,
)  # fmt: skip
