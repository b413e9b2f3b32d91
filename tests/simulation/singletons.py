"""The loops and schedules that worker processes keep, as activities/temporal/singletons.py does.

The daily loops, device fees and payouts, are left out: a life is shorter than a day.
"""

from tests.simulation.contracts import NotFound, Unavailable
from tests.simulation.engine.engine import Engine
from workflows.contracts.placement import PlacementRequest
from workflows.contracts.schedules import ReconciliationRequest

ENSURE_INTERVAL_S = 60.0
STUCK_ATTEMPTS = 4
SCHEDULES = (
    ("lifecycle-reconciliation", "LifecycleReconciliation", 300.0),
    ("prices", "PriceRefresh", 86_400.0),
    ("offers", "OfferRefresh", 300.0),
    ("housekeeping", "Housekeeping", 3600.0),
)
LOOPS = (
    ("Placement", PlacementRequest(), "placement"),
    ("OutboxRelay", ReconciliationRequest(), "outbox"),
)


def keep_singletons(engine: Engine) -> None:
    """Ensure them now and every minute, while a main worker process is there."""

    def ensure() -> None:
        if engine.processes["main"].is_alive:
            try:
                _ensure(engine)
            except Unavailable as cause:
                engine.note("a worker process", f"could not ensure the singletons: {cause}")
        engine.later(ENSURE_INTERVAL_S, ensure)

    ensure()


def _ensure(engine: Engine) -> None:
    for _, _, name in LOOPS:
        try:
            found = engine.describe(name)
        except NotFound:
            continue
        if found.status == "running" and found.task_attempt >= STUCK_ATTEMPTS:
            engine.terminate(name, run_id=found.run_id)
    for workflow, request, name in LOOPS:
        engine.start(workflow, name, request, conflict="use_existing")
    for name, workflow, every_s in SCHEDULES:
        at_once = name == SCHEDULES[0][0]
        engine.schedules.create(
            name, workflow, ReconciliationRequest(), every_s, trigger_immediately=at_once
        )
