"""One life of federated jobs: what both parties ask and what goes wrong, drawn from its seed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from random import Random
from typing import Any, Literal, cast

from activities.federation.models import isolate_model
from tests.replay.next_release import PATCHED
from tests.simulation.behaviour import Behaviour
from tests.simulation.contracts import Attempt, Handler, Refused, Verb
from tests.simulation.engine.attempts import CallFault
from tests.simulation.federation import checks
from tests.simulation.federation.parties import ALL, EGRESS, READS, Consent, Parties
from tests.simulation.installation import installation
from tests.simulation.lifecycles.part import effects_of
from tests.simulation.plan import Act, At, JobPlan, Plan
from tests.simulation.rows_real import RealRows
from tests.simulation.simulation import DISPATCH_S, Player
from workflows.contracts.federation import FederatedStatus, LogPolicy
from workflows.contracts.statuses import JobType
from workflows.rules.accounts.plans import Plan as AccountPlan

MAKERS = 2
MODES: tuple[
    Literal["refused", "lost", "failed_after", "slow", "late", "killed_before", "killed_after"], ...
] = ("refused", "lost", "failed_after", "slow", "late", "killed_before", "killed_after")
REST_S = 900.0
REST_LIMIT_S = 2 * 3600.0
FINAL = frozenset(each.value for each in FederatedStatus if each.is_final)


@dataclass(frozen=True)
class Federated:
    """A federated job as it was created."""

    federated_id: str
    job_id: str
    account_id: str
    type: JobType


def plan_of(seed: int) -> Plan:
    """The installation of a seed, which has no cloud, and no jobs of its own."""
    random = Random(seed)
    return Plan(
        seed=seed,
        jobs=(),
        machines=(random.choice(((1,), (2,), (1, 1))),),
        has_cloud=False,
        has_storage_node=False,
        microcredits=(10**12,) * (1 + MAKERS),
        acts=(),
        hours=random.choice((0.25, 0.5, 1.0)),
        chances=random.choice((0.0, 0.0, 0.05)),
        real_rows=True,
        suggested_events=random.choice((60, 4096)),
    )


def play(seed: int, workflows: tuple[type, ...] | None = None) -> "FederatedPlayer":
    """The life of a seed; what does not hold is in `life.violations`.

    workflows: which all worker processes serve instead of the product's.
    """
    life = installation(plan_of(seed))
    try:
        player = FederatedPlayer(life, PATCHED, random=Random(seed))
        if workflows is not None:
            life.engine.processes.upgrade(workflows, 0.0)
        player.play()
    finally:
        life.rows.close()
    return player


@dataclass
class FederatedPlayer(Player):
    """The parties of federated jobs, beside all else that a life has."""

    random: Random = field(default_factory=Random)
    parties: Parties = field(init=False)
    federated: dict[str, Federated] = field(default_factory=dict)
    given: dict[str, Consent] = field(default_factory=dict)
    """What was allowed when the job of each federated job was created."""
    chance: float = 0.0
    """Of a call of a federated lifecycle to go wrong."""
    is_quiet: bool = True
    """Whether nothing goes wrong in this life, but for what people ask."""
    ended: dict[str, datetime] = field(default_factory=dict)
    """When each federated job was first seen to have ended."""

    def _until_ready(self) -> None:
        """Draw what is to happen once the installation and both parties are ready."""
        super()._until_ready()
        life = self.life
        clinic, *makers = life.accounts
        rows = cast("RealRows", life.rows)
        self.parties = Parties(rows, clinic, tuple(makers), life.engine.now)
        self.parties.begin()
        life.engine.serve(rows.handlers(isolate_model))
        create = rows.effects["create_federated_job"]
        life.engine.serve({"create_federated_job": self._watched(create)})
        self.is_quiet = self.random.random() < 0.3
        if not self.is_quiet:
            self.chance = self.random.choice((0.0, 0.05, 0.2))
        for _ in range(self.random.randint(3, 6)):
            life.engine.later(self._some_time() * 0.7, self._calmly(self._create))
        for _ in range(self.random.randint(1, 6)):
            life.engine.later(self._some_time(), self._calmly(self._draw()))

    def _watched(self, create: Handler) -> Handler:
        """The effect, which notes what was allowed at the instant at which a job was created."""

        def handle(attempt: Attempt, asked: Any) -> Any:
            before = self._has_job(asked.federated_id)
            try:
                return create(attempt, asked)
            finally:
                if not before and self._has_job(asked.federated_id):
                    self._see_created(self.federated[asked.federated_id])

        return handle

    def _has_job(self, federated_id: str) -> bool:
        query = "SELECT id FROM jobs WHERE federated_id = ?"
        return bool(cast("RealRows", self.life.rows).select(query, federated_id))

    def _see_created(self, made: Federated) -> None:
        consent = self.parties.consent
        if made.federated_id in self.given:
            self._violated(f"{made.federated_id}: its job was created twice")
        if not consent.allows(made.account_id):
            self._violated(f"{made.job_id}: was created, and a party does not allow it")
        self.given[made.federated_id] = consent

    def of_call(self, attempt: Attempt) -> CallFault | None:
        fault = super().of_call(attempt)
        is_ours = attempt.effect in effects_of("FederatedLifecycle")
        if fault is not None or not is_ours or self.life.is_calm:
            return fault
        if self.random.random() >= self.chance:
            return None
        return CallFault(self.random.choice(MODES), seconds=self.random.choice((0.5, 20, 200)))

    # ── what people do, and what goes wrong ─────────────────────────────────────────────────

    def _some_time(self) -> float:
        return self.random.uniform(0, self.life.plan.hours * 3600)

    def _calmly(self, act: Callable[[], None]) -> Callable[[], None]:
        """An act that is left out once all is to be well, or where the API refuses it."""

        def happens() -> None:
            if self.life.is_calm:
                return
            try:
                act()
            except Refused as refusal:
                self.life.refused.append(str(refusal))
                self.life.engine.note("the API", f"refuses: {refusal}")
            self._dispatch()

        return happens

    def _draw(self) -> Callable[[], None]:
        acts: dict[Callable[[], None], int] = {
            self._withdraw: 8, self._cancel: 2, self._cancel_job: 1,
        }  # fmt: skip
        if not self.is_quiet:
            acts |= {
                self._machine_fails: 4, self._node_leaves: 1, self._run_crashes: 1,
                self._site_is_away: 1, self._kill: 2, self._go_away: 1, self._forget: 1,
            }  # fmt: skip
        [act] = self.random.choices(list(acts), list(acts.values()))
        return act

    def _create(self) -> None:
        random = self.random
        account_id = random.choice(
            (*self.parties.makers, *self.parties.makers, self.parties.clinic)
        )
        kind = random.choice((JobType.INFERENCE, JobType.INFERENCE, JobType.TRAINING))
        plan = JobPlan(
            at_s=0.0,
            type=kind,
            behaviour=Behaviour(
                seconds=random.choice((5.0, 600.0, 4000.0)) * random.uniform(0.5, 1.5),
                fails_first=random.choice((0, 0, 1)),
                ignores_sigterm=random.random() < 0.2,
            ),
            max_restarts=random.choice((0, 3)),
            max_retries=random.choice((0, 1)),
            spot=False,
            keeps_output=False,
        )
        index = len(self.federated)
        federated_id, job_id = self.parties.create(account_id, plan, index)
        made = Federated(federated_id, job_id, account_id, kind)
        self.federated[federated_id], self.life.jobs[job_id] = made, plan
        self.life.world.behave(job_id, plan.behaviour)
        self.life.engine.note("a person", f"creates {federated_id} of {account_id}: {plan}")

    def _withdraw(self) -> None:
        """A party allows less, in one of the ways there are; some of them allow it again later."""
        parties, maker = self.parties, self.random.choice(self.parties.makers)
        ways: tuple[tuple[Callable[[], None], Callable[[], None]], ...] = (
            (lambda: parties.remove_member(maker), lambda: parties.join_again(maker)),
            (
                lambda: parties.change_member(maker, READS),
                lambda: parties.change_member(maker, ALL),
            ),
            (
                lambda: parties.change_project(use_only_owned_resources=False),
                lambda: parties.change_project(use_only_owned_resources=True),
            ),
            (
                lambda: parties.change_project(federated_egress=[]),
                lambda: parties.change_project(federated_egress=list(EGRESS)),
            ),
            (
                lambda: parties.change_project(federated_logs=LogPolicy.NONE),
                lambda: parties.change_project(federated_logs=LogPolicy.ALL),
            ),
            (
                lambda: parties.change_plan(maker, AccountPlan.TEAM),
                lambda: parties.change_plan(maker, AccountPlan.ENTERPRISE),
            ),
        )
        withdraw, give = self.random.choice(ways)
        withdraw()
        self.life.engine.note("a person", f"withdraws consent: {parties.consent}")
        if self.random.random() < 0.4:
            self.life.engine.later(self.random.choice((1.0, 60.0, 1200.0)), self._calmly(give))

    def _open(self) -> list[Federated]:
        statuses = checks.statuses_of(cast("RealRows", self.life.rows))
        return [one for one in self.federated.values() if statuses[one.federated_id] not in FINAL]

    def _cancel(self) -> None:
        if not (found := self._open()):
            return
        one = self.random.choice(found)
        self.parties.cancel(
            self.random.choice((one.account_id, self.parties.clinic)), one.federated_id
        )

    def _cancel_job(self) -> None:
        """The clinic cancels the job itself."""
        found = [one for one in self._open() if one.federated_id in self.given]
        if found:
            self._ask_verb(self.random.choice(found).job_id, Verb.CANCEL)

    def _world(self, what: str, target: str, *seconds: float) -> None:
        lasts = self.random.choice(seconds) if seconds else 0.0
        self._act(Act(At(0.0), "world", what, target, lasts))

    def _a(self, noun: str) -> str:
        return f"{noun}/{self.random.randrange(8)}"

    def _machine_fails(self) -> None:
        what = self.random.choice(("machine_unreachable", "machine_unreachable", "machine_reboots"))
        self._world(what, self._a("machine"), 20.0, 300.0, 5000.0)

    def _node_leaves(self) -> None:
        self._ask_verb(self.random.choice(self.life.nodes), Verb.RESCHEDULE_REMOVE)

    def _run_crashes(self) -> None:
        if self.life.jobs:
            self._world("process_crashes", self._a("job"))

    def _site_is_away(self) -> None:
        self._world("site_away", "region/0", 60.0, 1200.0)

    def _kill(self) -> None:
        seconds = self.random.choice((0.5, 5.0, 120.0))
        self._act(Act(At(0.0), "process", "kill", self.random.choice(("main", "api")), seconds))

    def _go_away(self) -> None:
        self._act(Act(At(0.0), "engine", "away", seconds=self.random.choice((5.0, 300.0))))

    def _forget(self) -> None:
        self._act(Act(At(0.0), "engine", "forget"))

    # ── the checks ──────────────────────────────────────────────────────────────────────────

    def _look(self) -> None:
        super()._look()
        for what in checks.always(self):
            self._violated(what)

    def _come_to_rest(self) -> None:
        """What waits for a person is canceled, and then every federated job comes to its end."""
        super()._come_to_rest()
        life = self.life
        limit = life.seconds() + REST_LIMIT_S
        self._cancel_what_waits()
        found = list(checks.at_rest(self))
        while found and life.seconds() < limit and not life.violations:
            life.engine.play(life.seconds() + REST_S)
            self._look()
            found = list(checks.at_rest(self))
        for what in found:
            self._violated(what)

    def _cancel_what_waits(self) -> None:
        jobs = self.life.views()
        for one in self._open():
            job = jobs.get(one.job_id)
            if job is not None and job.status in ("stopped", "waiting_for_resources"):
                self.parties.cancel(self.parties.clinic, one.federated_id)
        self.life.engine.later(DISPATCH_S, self.life.rows.relay)
