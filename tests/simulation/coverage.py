"""Which pairs of a state with a message, and of an effect with a fault, were met or never met."""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from temporalio import workflow

from tests.simulation.life import Life
from tests.simulation.lifecycles.all_parts import PARTS
from tests.simulation.lifecycles.part import CALL_MODES, effects_of
from workers.registry import WORKFLOWS
from workflows.contracts import statuses

STATUSES: dict[str, type[StrEnum]] = {
    "JobLifecycle": statuses.JobStatus,
    "NodeLifecycle": statuses.NodeStatus,
    "LeaseLifecycle": statuses.LeaseStatus,
    "RegionLifecycle": statuses.RegionStatus,
    "ProviderLifecycle": statuses.ProviderStatus,
}
Pair = tuple[str, str, str]
"""Lifecycle, its state, and the message; or `effect`, its name, and the fault."""


@dataclass
class Coverage:
    """How often each pair was met."""

    met: Counter[Pair] = field(default_factory=Counter)

    def add_life(self, life: Life) -> None:
        self.met.update(life.engine.heard)
        self.met.update(life.failed_calls)

    def join(self, other: "Coverage") -> None:
        self.met.update(other.met)

    def never(self) -> list[Pair]:
        """The pairs that there are, and that were not met."""
        return sorted(pair for pair in all_pairs() if pair not in self.met)

    def lines(self) -> list[str]:
        """The figures: met of all, for messages and for faults."""
        every = all_pairs()
        told = []
        for title, faults in (("state × message", False), ("effect × fault", True)):
            kind = {pair for pair in every if (pair[0] == "effect") is faults}
            told.append(f"{title}: {len(kind & set(self.met))} of {len(kind)} pairs met")
        return told


def all_pairs() -> set[Pair]:
    """Every pair that could be met: signals of each lifecycle in each of its open states, and each
    mode of failure of each effect that the parts name."""
    found: set[Pair] = set()
    for kind in WORKFLOWS:
        definition = workflow._Definition.must_from_class(kind)
        if (states := STATUSES.get(definition.name or "")) is None:
            continue
        signals = [name for name in definition.signals if name]
        found |= {
            (definition.name or "", state.value, signal)
            for state in states
            if state.value not in ("archived", "released", "refused")
            for signal in signals
        }
    effects = {effect for part in PARTS for effect in effects_of(*part.workflows)}
    return found | {("effect", effect, mode) for effect in effects for mode in CALL_MODES}
