"""Small workflows that show one rule of Temporal each, on the engine and on a real server."""

from tests.simulation.engine.probes import (
    activities,
    cancellations,
    local_activities,
    workflows,
)
from tests.simulation.engine.probes.base import PROBES, Act, Asked, Listener, Probe, Said, seconds
from tests.simulation.engine.probes.workflows import Counts

__all__ = [
    "PROBES",
    "Act",
    "Asked",
    "Counts",
    "Listener",
    "Probe",
    "Said",
    "activities",
    "cancellations",
    "local_activities",
    "seconds",
    "workflows",
]
