"""What a plan has for the moments at which lifecycles show their states."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial

from tests.simulation.engine.execution import Run
from tests.simulation.life import Life
from tests.simulation.plan import Act, In
from tests.simulation.states import CLOUD, END, MACHINE, REGION


@dataclass
class InStates:
    """The acts that wait for states.

    strike: lets an act happen, at a state of this workflow; number_of: of a workflow, as plans
    count.
    """

    life: Life
    strike: Callable[[Act, str], None]
    number_of: Callable[[str], str]
    acts: dict[tuple[str, str, str, int], list[Act]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """By whose states are counted, the lifecycle, its state, and the number of times."""
    calls: dict[str, Act] = field(default_factory=dict)
    """Faults of the next call of an effect, by the id of the workflow that calls it."""
    times: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def clear(self) -> None:
        """Let nothing happen any more."""
        self.acts.clear()
        self.calls.clear()

    def add(self, acts: Iterable[Act]) -> None:
        for act in acts:
            if isinstance(act.when, In):
                when = act.when
                self.acts[when.of, when.workflow, when.state, when.nth].append(act)
        if self.acts:
            self.life.engine.on_status = self._shows

    def _shows(self, run: Run, state: str) -> None:
        self._meets("", run, state)
        if whose := self.number_of(run.workflow_id):
            self._meets(whose, run, state)

    def _meets(self, whose: str, run: Run, state: str) -> None:
        self.times[whose, run.workflow, state] += 1
        nth = self.times[whose, run.workflow, state]
        for act in self.acts.pop((whose, run.workflow, state, nth), ()):
            assert isinstance(act.when, In)
            if act.kind == "call":
                self.calls[run.workflow_id] = act
            else:
                self.life.engine.later(act.when.after_s, partial(self._happens, act, run))

    def _happens(self, act: Act, run: Run) -> None:
        """Let it happen to the resource of the run, unless it has a target or needs none."""
        if act.target or act.kind not in ("ask", "world"):
            self.strike(act, run.workflow_id)
        elif act.what in (*CLOUD, "store_away"):
            self.strike(replace(act, target="cloud"), "")  # It meets all of them.
        elif act.what == "site_away" and run.workflow != REGION:
            self.strike(replace(act, target="region/0"), "")
        elif target := self._target(act, run.workflow_id.split("/")[-1]):
            self.strike(replace(act, target=f"this/{target}"), "")

    def _target(self, act: Act, resource_id: str) -> str | None:
        """The id at which an act is aimed, which for the faults of a machine is the machine's."""
        if act.kind == "ask" or act.what not in (*MACHINE, *END):
            return resource_id
        nodes = {node.node_id: node for node in self.life.rows.nodes()}
        node_id = next(
            (one.node_id for one in self.life.rows.allocations() if one.job_id == resource_id),
            resource_id,
        )
        node = nodes.get(node_id)
        if act.what in MACHINE:
            return None if node is None else node.minion_id
        lease_id = resource_id if node is None else node.lease_id
        return next((one.name for one in self.life.rows.leases() if one.lease_id == lease_id), None)
