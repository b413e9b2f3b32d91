"""Which pairs were met: a state with a message or with a fault, and an effect with a fault.

`impossible.py` has the pairs that cannot be met, and says why.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from temporalio import workflow

from tests.simulation.engine.execution import Run
from tests.simulation.impossible import reason_of
from tests.simulation.lasting_failures import LASTING, REFUSED_FOR_GOOD, final_errors_of
from tests.simulation.life import Life
from tests.simulation.lifecycles.all_parts import PARTS
from tests.simulation.lifecycles.part import CALL_MODES, effects_of
from tests.simulation.plan import Act
from tests.simulation.states import END, EVERYWHERE, FAULTS, MACHINE, STATUSES, open_states
from workers.registry import WORKFLOWS
from workflows.contracts.jobs import parse_run_id

Pair = tuple[str, str, str, str]
"""`message`, a lifecycle, its state, and the message; `struck`, a lifecycle, its state, and the
fault; or `effect`, its name, the fault, and nothing."""
KINDS = {
    "message": "state × message",
    "struck": "state × fault",
    "effect": "effect × fault",
}


@dataclass
class Coverage:
    """How often each pair was met."""

    met: Counter[Pair] = field(default_factory=Counter)

    def add_life(self, life: Life) -> None:
        for (lifecycle, state, message), times in life.engine.heard.items():
            self.met["message", lifecycle, state, message] += times
        for (_, effect, fault), times in life.failed_calls.items():
            self.met["effect", effect, fault, ""] += times
        for (lifecycle, state, fault), times in life.struck_states.items():
            self.met["struck", lifecycle, state, fault] += times

    def join(self, other: "Coverage") -> None:
        self.met.update(other.met)

    def never(self) -> list[Pair]:
        """The pairs that are possible, and that were not met."""
        return sorted(pair for pair in possible_pairs() if pair not in self.met)

    def contradictions(self) -> list[str]:
        """Pairs that were met, and that `impossible.py` says cannot be."""
        found = ((pair, reason_of(pair)) for pair in sorted(self.met))
        return [f"{' × '.join(pair)} was met: {why}" for pair, why in found if why]

    def lines(self) -> list[str]:
        """The figures of each kind: met, possible, never met, and impossible."""
        every, possible = all_pairs(), possible_pairs()
        told = []
        for kind, title in KINDS.items():
            may = {pair for pair in possible if pair[0] == kind}
            met = len(may & set(self.met))
            cannot = sum(pair[0] == kind for pair in every) - len(may)
            told.append(
                f"{title}: {met} met of {len(may)} possible pairs, {len(may) - met} never met; "
                f"{cannot} cannot be"
            )
        return told


# ── the states that a fault meets ───────────────────────────────────────────────────────────


def states_met(life: Life, act: Act, target: str = "") -> Iterator[tuple[str, str, str]]:
    """Each lifecycle that this act meets now, with its state, and the name of the fault.

    target: the id of the resource, for a fault of the world.
    """
    fault = act.what
    runs: Iterable[Run] = life.engine.server.running.values()
    if act.kind == "world":
        ids = _ids_of(life, fault, target)
        runs = (run for run in runs if ids is None or run.workflow_id in ids)
        runs = (run for run in runs if fault in FAULTS.get(run.workflow, ()))
    elif act.kind == "process" and act.target == "api":
        fault = "api away"
    elif act.kind == "process" and fault == "kill" and act.target == "planning":
        fault = "kill planning"
    for run in runs:
        if run.workflow in STATUSES:
            yield run.workflow, state_of(run), fault


def state_of(run: Run) -> str:
    """The status that a lifecycle shows; empty: it has just begun."""
    return str(run.attributes.get("ResourceStatus", ""))


def _ids_of(life: Life, fault: str, target: str) -> set[str] | None:
    """The workflows that a fault of the world concerns; None: all."""
    alive = [one for one in life.world.processes() if one.state != "exited"]
    if fault.startswith("process_"):
        return {f"job/{target}" for one in alive if parse_run_id(one.run_id)[0] == target}
    if fault not in (*MACHINE, *END):
        return None
    if fault in END:
        there = {one.name for one in life.world.cloud_machines() if one.is_running}
        if target not in there:
            return set()
    leases = {one.lease_id for one in life.rows.leases() if one.name == target}
    nodes = [
        node for node in life.rows.nodes() if node.minion_id == target or node.lease_id in leases
    ]
    machines = {target, *(node.minion_id for node in nodes)}
    jobs = {parse_run_id(one.run_id)[0] for one in alive if one.machine in machines}
    return {
        *(f"lease/{one}" for one in leases),
        *(f"node/{node.node_id}" for node in nodes),
        *(f"job/{one}" for one in jobs),
    }


# ── the pairs that there are ────────────────────────────────────────────────────────────────


def possible_pairs() -> set[Pair]:
    return {pair for pair in all_pairs() if not reason_of(pair)}


def all_pairs() -> set[Pair]:
    """Every pair: the signals and the faults of each lifecycle in each of its open states, and each
    mode of failure of each effect that the parts name."""
    found: set[Pair] = set()
    for kind in WORKFLOWS:
        definition = workflow._Definition.must_from_class(kind)
        name = definition.name or ""
        if name not in STATUSES:
            continue
        signals = [signal for signal in definition.signals if signal]
        calls = (f"call {mode}" for mode in (*CALL_MODES, *LASTING))
        faults = (*EVERYWHERE, *FAULTS[name], *calls)
        for state in open_states(name):
            found |= {("message", name, state, signal) for signal in signals}
            found |= {("struck", name, state, fault) for fault in faults}
    effects = {effect for part in PARTS for effect in effects_of(*part.workflows)}
    return found | {
        ("effect", effect, mode, "")
        for effect in effects
        for mode in (*CALL_MODES, *LASTING)
        if mode != REFUSED_FOR_GOOD or final_errors_of(effect)
    }
