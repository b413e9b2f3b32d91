"""Plans: everything that is to happen in one life of an installation, as data.

A plan is drawn from a seed. It can also be written by hand, cut down by `shrink.py`, printed, and
played again. What is not in it (how long a call takes, in which order a list comes) is drawn from
the same seed while it is played.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Literal

from tests.simulation.behaviour import Behaviour
from tests.simulation.frequencies import often
from workflows.contracts.statuses import JobType

MOST_CALLS_OF_ONE = 30
"""At the calls of one effect by one workflow after that, nothing is drawn to happen."""
HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
MOST_TRIES = 5
"""To find a drawer whose targets an installation has."""
LEAST_WEIGHT = 0.1
"""Of an effect that few lives call, beside one that each calls."""
AFTER_STATE_S = (0.0, 0.02, 0.5, 5.0, 60.0)
"""How long after a state has shown."""
Kind = Literal["ask", "world", "call", "process", "engine"]


@dataclass(frozen=True)
class At:
    """So many virtual seconds after the installation is ready."""

    seconds: float

    def __str__(self) -> str:
        return f"at {self.seconds:.0f} s"

    def and_then(self, seconds: float) -> "At":
        """So many seconds later."""
        return At(round(self.seconds + seconds, 2))


@dataclass(frozen=True)
class On:
    """At the n-th call of an effect since the installation is ready, counted from 1."""

    effect: str
    nth: int
    is_after: bool = False
    """Right after it has answered, and not right before it is done."""
    of: str = ""
    """Whose calls are counted: of `job/3` the fourth job's, of `job#3` those of each job, and meant
    is the third one that comes to this number; empty: those of all workflows together."""
    later_s: float = 0.0
    """So many seconds after that."""

    def __str__(self) -> str:
        later = f"{self.later_s:g} s " if self.later_s else ""
        whose = f" of {self.of}" if self.of else ""
        when = "after" if self.is_after or self.later_s else "before"
        return f"{later}{when} {self.effect} number {self.nth}{whose}"

    def and_then(self, seconds: float) -> "On":
        """So many seconds later."""
        return replace(self, later_s=round(self.later_s + seconds, 2))


@dataclass(frozen=True)
class In:
    """When a lifecycle of this type shows this state for the n-th time, and a little later.

    An act without a target concerns the resource that shows it.
    """

    workflow: str
    state: str
    nth: int
    after_s: float = 0.0
    of: str = ""
    """Which one shows it, such as `job/3`; empty: all of them are counted together."""

    def and_then(self, seconds: float) -> "In":
        """So many seconds later."""
        return replace(self, after_s=round(self.after_s + seconds, 3))

    def __str__(self) -> str:
        which = self.workflow.removesuffix("Lifecycle").lower()
        whose = f" of {self.of}" if self.of else ""
        return f"{self.after_s:g} s after {which} {self.state} number {self.nth}{whose}"


@dataclass(frozen=True)
class Act:
    """What a person asks, or what goes wrong.

    kind, what: `ask` a verb of a resource, `add` with a noun as its target, or `add` a machine that
    was removed as a node again · `world`, a fault of `Outside.faults` · `call`, a mode of the
    engine's `CallFault`, of the call at which it happens, or one of `LASTING`, of that and of later
    calls of its effect by its workflow · `process`: `kill`, `restart` (all, with the same code),
    `upgrade` (all, to the next release), `roll` (one main worker process before the other),
    `rollback`, `second` (one more such process) · `engine`: `forget`, `restore`, `away`;
    target: such as `job/3`, `node/0`, `machine/1`, `lease/0`, `main`; numbers count what the plan
    has made, modulo what there is; `left-machine/0` is one whose nodes were all removed;
    seconds: how long it lasts, or how long after the moment the engine is as it was then;
    is_here: rather that which the call or the state of this moment belongs to, or what belongs to
    that: the node of its job, the lease of its node, …
    """

    when: At | On | In
    kind: Kind
    what: str
    target: str = ""
    seconds: float = 0.0
    is_here: bool = False

    def __str__(self) -> str:
        whom = f" {self.target}" if self.target else ""
        whom += " or that of the call" if self.is_here else ""
        how_long = f" for {self.seconds:.0f} s" if self.seconds else ""
        return f"{self.when}: {self.kind} {self.what}{whom}{how_long}"


@dataclass(frozen=True)
class JobPlan:
    """One job that is submitted."""

    at_s: float
    type: JobType
    behaviour: Behaviour
    worker_count: int = 1
    gpu_count: int = 1
    account: int = 0
    max_restarts: int = 3
    max_retries: int = 0
    max_duration_s: int | None = None
    end_all_on_failure: bool = True
    only_cloud: bool = False
    spot: bool = True
    in_container: bool = False
    """Whether it runs in a container, and so may be a guest."""
    keeps_output: bool = True
    """Whether what it has written is stored."""

    def __str__(self) -> str:
        what = f"{self.type} of {self.worker_count}×{self.gpu_count} GPUs"
        does = f"{self.behaviour.seconds:.0f} s, exit code {self.behaviour.exit_code}"
        return f"at {self.at_s:.0f} s: {what}, {does}"


@dataclass(frozen=True)
class Plan:
    """One life of an installation.

    machines: the GPUs of each own machine, by region; hours: how long faults and people act.
    """

    seed: int
    jobs: tuple[JobPlan, ...]
    machines: tuple[tuple[int, ...], ...]
    has_cloud: bool
    has_storage_node: bool
    microcredits: tuple[int, ...]
    acts: tuple[Act, ...]
    hours: float
    chances: float = 0.0
    """Of a signal or a message of the world to be late, repeated or out of order."""
    real_rows: bool = False
    suggested_events: int = 4096
    """The length of a history from which on the server suggests a new run."""
    begins_s: float = 0.0
    """The second of the day at which it is made: prices are read at midnight."""
    has_guests: bool = False
    """Whether the regions of own machines are public."""
    preemption_notice_s: int | None = None
    """The notice of guests, with real rows; None: no guest is pre-empted."""
    has_own_site: bool = False
    """Whether a worker process in its own network serves the site of the first region."""
    lifetime_s: int | None = None
    """How long a machine that is rented for a job lives at most, until people rest; None: days."""

    def size(self) -> int:
        """How much there is to read in its story."""
        return len(self.jobs) + len(self.acts) + sum(len(region) for region in self.machines)


@dataclass
class Draft:
    """A plan that is being drawn; the parts of the lifecycles add what belongs to them."""

    random: Random
    span_s: float
    jobs: int
    machines: int
    has_cloud: bool
    acts: list[Act] = field(default_factory=list)

    def some_time(self) -> float:
        return round(self.random.uniform(0, self.span_s), 1)

    def moment(self, effects: Sequence[str], noun: str = "") -> At | On:
        """A time, or more often one of the calls of these effects.

        noun: whose workflows ask for these effects; empty: those of several.
        """
        if not effects or self.random.random() < 0.35:
            return At(self.some_time())
        return self.call(effects, noun)

    def state(self, workflow: str, states: Sequence[str], noun: str = "") -> In:
        """One of these states of a lifecycle, of all or of one resource of the noun."""
        state, after_s = self.random.choice(states), self.random.choice(AFTER_STATE_S)
        many = {"job": self.jobs, "node": self.machines}.get(noun, 0)
        if self.random.random() < 0.3 or not many:
            nth = min(int(self.random.paretovariate(0.7)), 2 * self.jobs)
            return In(workflow, state, nth, after_s)
        return In(workflow, state, int(self.random.paretovariate(2.0)), after_s, self.a(noun, many))

    def call(self, effects: Sequence[str], noun: str = "") -> On:
        """One of the calls of these effects that such a life is likely to have, more often one of
        the first: of all, or of one resource of the noun."""
        all_often = [often(effect, has_cloud=self.has_cloud) for effect in effects]
        weights = [min(1.0, max(one.calls, LEAST_WEIGHT)) for one in all_often]
        [index] = self.random.choices(range(len(effects)), weights)
        effect, how_often = effects[index], all_often[index]
        is_after = self.random.random() < 0.5
        if not noun or self.random.random() < 0.3:
            return On(effect, self._early(how_often.calls), is_after)
        of_one = how_often.calls / max(1.0, how_often.resources)
        nth = min(self._early(2 * of_one), MOST_CALLS_OF_ONE)
        which = self._early(how_often.resources) if nth <= of_one else 1
        return On(effect, nth, is_after, of=f"{noun}#{which}")

    def _early(self, of: float) -> int:
        """One of so many, from 1 on, more often one of the first."""
        return int(max(0.0, of - 1) * self.random.random() ** 2) + 1

    def add(
        self,
        when: At | On | In,
        kind: Kind,
        what: str,
        target: str = "",
        s: float = 0.0,
        *,
        is_here: bool = False,
    ) -> None:
        self.acts.append(Act(when, kind, what, target, round(s, 1), is_here))

    def one_of(self, drawers: Sequence["Drawer"], weights: Sequence[int] | None = None) -> bool:
        """Let one of these draw that has something to draw here; False: none was found."""
        begins = len(self.acts)
        for _ in range(MOST_TRIES):
            self.random.choices(drawers, weights)[0](self)
            if len(self.acts) > begins:
                return True
        return False

    def is_here(self, when: At | On | In) -> bool:
        """Whether what happens at this moment meets whom the moment belongs to."""
        return not isinstance(when, At) and self.random.random() < 0.6

    def a(self, noun: str, of: int) -> str:
        """One of so many resources of a noun."""
        return f"{noun}/{self.random.randrange(max(1, of))}"


Drawer = Callable[[Draft], None]
"""Draws one thing that people may ask, or one fault."""


SUGGESTED_EVENTS = (60, 250, 4096, 4096)
"""The server's own limit, and shorter ones, as no history of a few hours is as long as that."""


def draw(
    seed: int, drawers: Iterable[tuple[int, Drawer]], *, jobs: int = 24, real_share: float = 0.0
) -> Plan:
    """The plan of a seed; the drawers come with their weights."""
    random = Random(seed)
    span_s = random.choice((900.0, 1800.0, 3600.0, 3 * 3600.0))
    has_cloud = random.random() < 0.45
    regions = 1 if random.random() < 0.7 else 2
    machines = tuple(
        tuple(random.choice((0, 1, 1, 2, 4)) for _ in range(random.choice((1, 2, 2, 3))))
        for _ in range(regions)
    )
    own = sum(len(region) for region in machines)
    drawn = [_job(random, span_s, has_cloud=has_cloud) for _ in range(jobs)]
    draft = Draft(random, span_s, jobs, own, has_cloud)
    weighted = list(drawers)
    weights = [weight for weight, _ in weighted]
    every = [drawer for _, drawer in weighted]
    how_many = 0 if random.random() < 0.12 else int(random.expovariate(1 / 7)) + 1
    for _ in range(min(how_many, 40)):
        draft.one_of(every, weights)
    poor = random.random() < 0.15
    lifetime_s = None
    if has_cloud and random.random() < 0.4:  # So that some end, and few begin again and again.
        lifetime_s = int(max(900.0, span_s * random.uniform(0.3, 0.7)))
    return Plan(
        seed=seed,
        jobs=tuple(sorted(drawn, key=lambda job: job.at_s)),
        machines=machines,
        has_cloud=has_cloud,
        has_storage_node=has_cloud and random.random() < 0.3,
        microcredits=(random.randrange(1, 3_000_000) if poor else 10**12, 10**12),
        acts=tuple(draft.acts),
        hours=span_s / 3600,
        chances=random.choice((0.0, 0.0, 0.05, 0.3)),
        real_rows=random.random() < real_share,
        suggested_events=random.choice(SUGGESTED_EVENTS),
        begins_s=random.choice((0.0, round(DAY_S - random.uniform(0.0, span_s + HOUR_S)))),
        has_own_site=random.random() < 0.15,
        lifetime_s=lifetime_s,
    )


def _job(random: Random, span_s: float, *, has_cloud: bool) -> JobPlan:
    kind = random.choices(
        (JobType.TRAINING, JobType.INFERENCE, JobType.NOTEBOOK, JobType.ENDPOINT), (8, 3, 3, 1)
    )[0]
    workers = random.choice((1, 1, 1, 1, 2, 3)) if kind is JobType.TRAINING else 1
    seconds = float("inf") if kind.is_service else random.choice((0.5, 5, 60, 600, 4000))
    fails = random.random() < 0.2
    behaviour = Behaviour(
        seconds=seconds * random.uniform(0.5, 1.5),
        exit_code=1 if fails and random.random() < 0.5 else 0,
        fails_first=random.choice((1, 2)) if fails else 0,
        ignores_sigterm=random.random() < 0.15,
        unkillable_s=random.choice((30.0, 600.0, 20_000.0)) if random.random() < 0.05 else 0.0,
        saves_state=random.random() < 0.3,
        writes_output=random.random() < 0.8,
    )
    if kind.is_service and random.random() < 0.2:  # It crashes by itself.
        behaviour = replace(behaviour, seconds=random.uniform(10, 2000), exit_code=1)
    return JobPlan(
        at_s=round(random.uniform(0, span_s * 0.8), 1),
        type=kind,
        behaviour=behaviour,
        worker_count=workers,
        gpu_count=random.choice((0, 1, 1, 1, 2)),
        account=0 if random.random() < 0.92 else 1,
        max_restarts=random.choice((0, 1, 3, 3)),
        max_retries=random.choice((0, 0, 1, 2)),
        max_duration_s=random.choice((None, None, None, 120, 1200)),
        end_all_on_failure=random.random() < 0.7,
        only_cloud=has_cloud and random.random() < 0.4,
        spot=random.random() < 0.7,
    )
