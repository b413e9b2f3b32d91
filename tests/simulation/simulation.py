"""Playing a plan: the installation, the people, the faults, and the checks."""

import logging
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, cast

from tests.replay.next_release import PATCHED
from tests.simulation.contracts import Attempt, Refused, Verb
from tests.simulation.coverage import state_of, states_met
from tests.simulation.engine.attempts import CallFault, FaultMode
from tests.simulation.engine.snapshots import Snapshot
from tests.simulation.in_states import InStates
from tests.simulation.installation import ZONE, installation
from tests.simulation.lasting_failures import LASTING, LastingFailures
from tests.simulation.life import Life, Request, Violation, resource_beside
from tests.simulation.lifecycles.all_parts import PARTS
from tests.simulation.plan import Act, At, On, Plan
from tests.simulation.states import STATUSES
from tests.simulation.submissions import submission_of
from workers.registry import WORKFLOWS
from workflows.contracts.statuses import ProviderKind
from workflows.rules.jobs.artifacts import volumes_of

READY_LIMIT_S = 3600.0
LOOK_INTERVAL_S = 120.0
"""Between two looks at what always holds."""
REST_INTERVAL_S = 900.0
REST_LIMIT_S = 9 * 3600.0
"""The longest that an installation in which all is well may need to come to rest: billing is
hourly, a node is given up after an hour, an output may be stored for some."""
DISPATCH_S = 0.02
"""After a commit of the API, its dispatcher delivers the outbox rows."""
AFTER_S = 0.005
"""Right after a call."""
ENDS = ("stop", "cancel", "discard", "remove")
ACTIVATION_INTERVAL_S = 60.0
"""Between two looks of a person whether a node that was added is ready."""


def play(
    plan: Plan, *, is_recorded: bool = False, next_release: tuple[type, ...] = PATCHED
) -> Life:
    """One life from its plan; what was found wrong is in `Life.violations`.

    is_recorded: keep the histories of all workflows, for `write_histories`; next_release: the
    workflows that an upgrade of the plan brings.
    """
    logging.getLogger("temporalio").setLevel(logging.CRITICAL)  # The engine's log has it all.
    life = installation(plan, is_recorded=is_recorded)
    try:
        return Player(life, next_release).play()
    finally:
        life.rows.close()


@dataclass
class Player:
    """The people of an installation, and what goes wrong in it."""

    life: Life
    next_release: tuple[type, ...] = PATCHED
    is_taken_back: bool = False
    """Whether an upgrade was: workflows may wait for the next release, until the end at most."""
    moments: dict[tuple[str, str, int, bool], list[Act]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """By whose calls are counted, the effect, the number of its call, and whether after it."""
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    come: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    """How many resources of a noun have come to their n-th call of an effect."""
    of_ones: set[str] = field(default_factory=set)
    """The effects of which the calls of single resources are counted as well."""
    lasting: LastingFailures = field(default_factory=LastingFailures)
    in_states: InStates = field(init=False)
    api_is_up: bool = True
    known: set[str] = field(default_factory=set)

    def play(self) -> Life:
        life = self.life
        engine = life.engine
        self._until_ready()
        life.began_s = life.seconds()
        for index, plan in enumerate(life.plan.jobs):
            engine.later(plan.at_s, self._submitter(index))
        for act in life.plan.acts:
            if isinstance(act.when, At):
                engine.later(act.when.seconds, self._actor(act))
            elif isinstance(act.when, On):
                when = act.when
                self.moments[when.of, when.effect, when.nth, when.is_after].append(act)
                if when.of:
                    self.of_ones.add(when.effect)
        self.in_states = InStates(life, self._act, self._number_of)
        self.in_states.add(life.plan.acts)
        engine.faults = self
        end_s = life.began_s + life.plan.hours * 3600
        self._look()
        while life.seconds() < end_s and not life.violations:
            engine.play(min(end_s, life.seconds() + LOOK_INTERVAL_S))
            self._look()
        self._come_to_rest()
        return life

    # ── the calls of effects, as the engine asks for their faults ───────────────────────────

    def of_call(self, attempt: Attempt) -> CallFault | None:
        """What happens to this call; what the plan has for this moment happens with it."""
        fault = self._meet("", attempt)
        if attempt.effect in self.of_ones:
            fault = self._meet_of_one(attempt) or fault
        if (waiting := self.in_states.calls.pop(attempt.workflow_id, None)) is not None:
            fault = self._fault(waiting, attempt)
        if fault is None and self.lasting.errors:
            error = self.lasting.error_of(attempt, self.life.seconds())
            return None if error is None else CallFault("refused", error=error)
        return fault

    def _meet(self, whose: str, attempt: Attempt) -> CallFault | None:
        """Count the call, and let happen what the plan has for it."""
        self.calls[whose, attempt.effect] += 1
        return self._let_happen(whose, self.calls[whose, attempt.effect], attempt)

    def _let_happen(self, whose: str, nth: int, attempt: Attempt) -> CallFault | None:
        fault = None
        for is_after in (False, True):
            for act in self.moments.pop((whose, attempt.effect, nth, is_after), ()):
                assert isinstance(act.when, On)
                later_s = act.when.later_s + (AFTER_S if is_after else 0.0)
                if act.kind == "call":
                    fault = self._fault(act, attempt)
                elif later_s:
                    self.life.engine.later(later_s, self._actor(act, attempt.workflow_id))
                else:
                    self._act(act, attempt.workflow_id)
        return fault

    def _meet_of_one(self, attempt: Attempt) -> CallFault | None:
        """Count the call for its resource alone, as plans name it."""
        effect, workflow_id = attempt.effect, attempt.workflow_id
        number = self._number_of(workflow_id)
        fault = self._meet(number, attempt) if number else None
        noun = workflow_id.partition("/")[0]
        self.calls[workflow_id, effect] += 1
        nth = self.calls[workflow_id, effect]
        self.come[noun, effect, nth] += 1
        order = f"{noun}#{self.come[noun, effect, nth]}"
        return self._let_happen(order, nth, attempt) or fault

    def _number_of(self, workflow_id: str) -> str:
        """Such as `job/3`, as plans count; empty: it is none that they count."""
        noun, _, resource_id = workflow_id.partition("/")
        ids = {"job": list(self.life.jobs), "node": self.life.nodes}.get(noun, [])
        return f"{noun}/{ids.index(resource_id)}" if resource_id in ids else ""

    def _fault(self, act: Act, attempt: Attempt) -> CallFault | None:
        self.life.struck.append(str(act))
        self.life.failed_calls["effect", attempt.effect, act.what] += 1
        run = self.life.engine.server.running.get(attempt.workflow_id)
        if run is not None and run.workflow in STATUSES:
            self.life.struck_states[run.workflow, state_of(run), f"call {act.what}"] += 1
        self.life.engine.note(attempt.workflow_id, f"{attempt.effect} goes wrong: {act.what}")
        if act.what == "canceled":  # A person does that, in Temporal.
            resource_id = attempt.workflow_id.partition("/")[2]
            self.life.requests.append(Request(self.life.engine.now(), resource_id, "cancel"))
            self.life.engine.cancel_by_person(attempt.workflow_id)
            return None  # So that no other fault of this call takes its place.
        if act.what in LASTING:
            until_s = self.life.seconds() + act.seconds
            self.lasting.begin(attempt, act.what, until_s, self.life.engine.random)
            return None  # `of_call` asks how it fails, now and later.
        return CallFault(mode=cast("FaultMode", act.what), seconds=act.seconds)

    def of_request(self, kind: str, workflow_id: str) -> Literal["refused", "lost"] | None:
        """What happens to a request to the server, by the plan's chances."""
        chances = self.life.plan.chances
        if not chances or self.life.is_calm or self.life.engine.random.random() >= chances / 4:
            return None
        return "refused" if self.life.engine.random.random() < 0.5 else "lost"

    # ── people ──────────────────────────────────────────────────────────────────────────────

    def _until_ready(self) -> None:
        """Activate each node as soon as it may be, until all are active."""
        life, engine, rows = self.life, self.life.engine, self.life.rows
        self._dispatch()
        limit = life.seconds() + READY_LIMIT_S
        while life.seconds() < limit:
            engine.play(life.seconds() + 20)
            own = [one for one in rows.nodes() if one.node_id in life.nodes]
            for node in own:
                if node.status == "maintenance" and not life.requests_of(node.node_id):
                    self._ask_verb(node.node_id, Verb.ACTIVATE)
            regions = all(one.status == "healthy" for one in rows.regions())
            if regions and all(node.status == "active" for node in own):
                return
        found = [(one.node_id, one.status, one.status_reason) for one in rows.nodes()]
        found += [(one.resource_id, one.status, one.status_reason) for one in rows.regions()]
        found += [(one.resource_id, one.status, one.status_reason) for one in rows.providers()]
        self._violated(f"the installation: not ready after an hour: {found}")

    def _submitter(self, index: int) -> Callable[[], None]:
        def submit() -> None:
            life, plan = self.life, self.life.plan.jobs[index]
            account = life.accounts[plan.account % len(life.accounts)]
            try:
                has_data = not life.plan.real_rows  # Whose volumes and keys would have rows.
                asked = submission_of(plan, index, has_data=has_data)
                job_id = life.rows.submit(account, asked)
            except Refused as refusal:
                life.refused.append(str(refusal))
                return
            life.jobs[job_id], life.volumes[job_id] = plan, volumes_of(asked)
            life.world.behave(job_id, plan.behaviour)
            life.engine.note("a person", f"submits {job_id}: {plan}")
            self._dispatch()

        return submit

    def _ask_verb(self, resource_id: str, verb: Verb) -> None:
        life = self.life
        attempt = self._attempt_before(resource_id) if verb is Verb.START else 0
        try:
            made = life.rows.ask(resource_id, verb)
        except Refused as refusal:
            life.refused.append(f"{verb} {resource_id}: {refusal}")
            life.engine.note("the API", f"refuses {verb} of {resource_id}: {refusal}")
            return
        life.engine.note("a person", f"asks {verb} of {resource_id}")
        asked = Request(life.engine.now(), resource_id, verb.value, life.is_calm, attempt)
        life.requests.append(asked)
        if verb is Verb.RESUBMIT and made:
            life.jobs[made] = life.jobs[resource_id]
            life.volumes[made] = life.volumes.get(resource_id, ())
            life.world.behave(made, life.jobs[resource_id].behaviour)
        self._dispatch()

    def _attempt_before(self, job_id: str) -> int:
        """The last attempt of a job that is stopped; 0: it is not."""
        job = self.life.views().get(job_id)
        return job.attempt if job is not None and job.status == "stopped" else 0

    def _end_services(self) -> None:
        """Stop what would never end, unless a person has asked for an end, or for a start that has
        still to come true: else what was asked could not be told from what the rest asks."""
        life = self.life
        asked = {each.resource_id for each in life.requests if each.by_rest}
        for job in life.rows.jobs():
            is_service = job.is_open and life.jobs[job.job_id].type.is_service
            if is_service and job.status != "stopped" and job.job_id not in asked:
                requests = life.persons_requests_of(job.job_id)
                if not requests or requests[-1].verb not in ENDS:
                    self._ask_verb(job.job_id, Verb.STOP)
        self._dispatch()

    def _add(self, noun: str) -> None:
        """A person adds an own machine, a datastore, a region, a provider or a dataset."""
        life = self.life
        try:
            if noun == "provider":
                life.providers.append(life.rows.add_provider(life.accounts[0], ProviderKind.GCP))
            elif noun == "region":  # Of own machines, or of a cloud that a person has added.
                is_new = len(life.providers) > 1 + life.plan.has_cloud
                provider, zone = (life.providers[-1], ZONE) if is_new else (life.providers[0], "")
                life.regions.append(life.rows.add_region(provider, zone=zone))
            elif noun == "dataset":
                life.datasets.append(life.rows.add_dataset(life.accounts[0]))
            elif noun == "datastore":
                life.datastores.append(life.rows.add_datastore(life.regions[0]))
            else:
                machine = life.world.add_machine(gpus=1)
                life.machines.append(machine)
                life.nodes.append(life.rows.add_node(life.regions[0], machine))
        except Refused as refusal:
            life.refused.append(str(refusal))
            life.engine.note("the API", f"refuses a {noun}: {refusal}")
            return
        life.engine.note("a person", f"adds a {noun}")
        self._dispatch()

    def _dispatch(self) -> None:
        if self.api_is_up:
            self.life.engine.later(DISPATCH_S, self.life.rows.relay)

    def _resource(self, target: str) -> str | None:
        """The id that `job/3` stands for, from 0 on and modulo what there is; None: nothing is."""
        life = self.life
        noun, _, number = target.partition("/")
        if noun == "this":
            return number
        found = {
            "job": lambda: list(life.jobs),
            "node": lambda: life.nodes,
            "machine": lambda: life.machines,
            "region": lambda: life.regions,
            "datastore": lambda: life.datastores,
            "provider": lambda: life.providers,
            "dataset": lambda: life.datasets,
            "account": lambda: life.accounts,
            "lease": lambda: [one.lease_id for one in life.rows.leases()],
            "storage": lambda: [
                one.node_id for one in life.rows.nodes() if one.lease_id and not one.ephemeral
            ],
            "left-machine": lambda: [
                one for one in reversed(life.machines) if one not in self._served_machines()
            ],
            "cloud-machine": lambda: [
                one.name for one in life.world.cloud_machines() if one.is_running
            ],
        }.get(noun, lambda: [""])()
        return found[int(number or 0) % len(found)] if found else None

    def _served_machines(self) -> set[str | None]:
        """Those that have a node which was not removed."""
        return {one.minion_id for one in self.life.rows.nodes() if one.status != "archived"}

    # ── what happens ────────────────────────────────────────────────────────────────────────

    def _actor(self, act: Act, workflow_id: str = "") -> Callable[[], None]:
        return lambda: self._act(act, workflow_id)

    def _act(self, act: Act, workflow_id: str = "") -> None:
        """workflow_id: at whose call or state it happens; empty: at a time."""
        life = self.life
        if life.is_calm:
            return
        if act.what == "add" and "/" not in act.target:  # There may be none of its noun yet.
            life.struck.append(str(act))
            self._add(act.target)
            return
        target = self._here(act, workflow_id) or self._resource(act.target)
        if target is None:
            return
        life.struck.append(str(act))
        if act.kind == "process":
            self._process(act)
        elif act.kind == "engine":
            self._engine(act)
        elif act.kind == "world":
            life.struck_states.update(states_met(life, act, target))
            life.engine.note("the world", f"{act.what} {target}")
            if act.what == "machine_lies":
                life.disbelieved.add(target)
            life.world.strike(act.what, target, seconds=act.seconds)
        elif act.what == "add":
            self._add_again(target)
        else:
            self._ask_verb(target, Verb(act.what))

    def _here(self, act: Act, workflow_id: str) -> str | None:
        """The target that the workflow of a call serves, or that belongs to it."""
        if not act.is_here or not workflow_id:
            return None
        noun = act.target.partition("/")[0]
        own, _, rest = workflow_id.partition("/")
        return rest if own == noun else resource_beside(self.life.rows, noun, own, rest)

    def _add_again(self, minion_id: str) -> None:
        """The owner of a machine that was removed lets it join again, as another node."""
        life = self.life
        index = life.machines.index(minion_id)
        sizes = [len(region) for region in life.plan.machines]
        region = next(n for n in range(len(sizes)) if index < sum(sizes[: n + 1]))
        if (found := life.world.join(minion_id)) is None:
            return
        life.machines[index] = found
        try:
            node_id = life.rows.add_node(life.regions[region], found)
        except Refused as refusal:
            life.refused.append(f"add {minion_id}: {refusal}")
            return
        life.engine.note("a person", f"adds {minion_id} again, as {node_id}")
        life.nodes.append(node_id)
        self._dispatch()
        life.engine.later(ACTIVATION_INTERVAL_S, lambda: self._activate(node_id))

    def _activate(self, node_id: str) -> None:
        """Open a new node for jobs as soon as it is ready for them, unless others asked before."""
        node = next(one for one in self.life.rows.nodes() if one.node_id == node_id)
        if self.life.is_calm or self.life.requests_of(node_id) or node.status == "archived":
            return
        if node.status == "maintenance":
            self._ask_verb(node_id, Verb.ACTIVATE)
        else:
            self.life.engine.later(ACTIVATION_INTERVAL_S, lambda: self._activate(node_id))

    def _process(self, act: Act) -> None:
        engine = self.life.engine
        if act.what == "kill" and act.target not in (*engine.processes.names(), "api"):
            return
        self.life.struck_states.update(states_met(self.life, act))
        if act.what in ("roll", "rollback") and self.life.older_code_at is None:
            self.life.older_code_at = self.life.seconds()
        if act.target == "api":
            self.api_is_up = False
            engine.later(act.seconds, self._api_is_back)
        elif act.what == "kill":
            engine.processes.kill(act.target, again_after_s=act.seconds)
        elif act.what == "restart":
            engine.processes.restart(act.seconds)
        elif act.what == "upgrade":
            engine.processes.upgrade(self.next_release, act.seconds)
        elif act.what == "roll":
            engine.processes.roll(self.next_release, act.seconds)
        elif act.what == "rollback":
            self.is_taken_back = True
            engine.processes.upgrade(WORKFLOWS, act.seconds)
        else:
            engine.processes.second(act.target)

    def _api_is_back(self) -> None:
        self.api_is_up = True
        self._dispatch()

    def _engine(self, act: Act) -> None:
        engine = self.life.engine
        self.life.struck_states.update(states_met(self.life, act))
        if act.what == "away":
            engine.go_away(act.seconds)
        elif act.what == "forget":
            self.life.has_forgotten = True
            self.life.forgotten |= self._open_jobs()
            engine.forget()
        else:
            kept, open_then = engine.snapshot(), self._open_jobs()
            engine.later(act.seconds, lambda: self._restore(kept, open_then))

    def _restore(self, kept: Snapshot, open_then: set[str]) -> None:
        if not self.life.is_calm:
            self.life.has_forgotten = True
            self.life.forgotten |= open_then | self._open_jobs()
            self.life.engine.restore(kept)

    def _open_jobs(self) -> set[str]:
        return {job.job_id for job in self.life.rows.jobs() if job.is_open}

    # ── the checks ──────────────────────────────────────────────────────────────────────────

    def _look(self) -> None:
        """What always holds."""
        life = self.life
        for what in (*life.world.violations(), *life.rows.violations()):
            self._violated(what)
        for part in PARTS:
            if part.always is not None:
                for what in part.always(life):
                    self._violated(what)

    def _come_to_rest(self) -> None:
        """All is well again, services are ended, and what is left comes to its end."""
        life, engine = self.life, self.life.engine
        life.calm_at = engine.now()
        self.moments.clear()
        self.in_states.clear()
        self.lasting.errors.clear()
        self.api_is_up = True
        for name in engine.processes.names():
            engine.processes.start(name)
        if self.is_taken_back:
            engine.processes.upgrade(self.next_release)
        life.world.calm()
        life.rows.lifetime_s = None  # Else what takes longer than a machine lives never ends.
        limit = life.seconds() + REST_LIMIT_S
        found: list[str] = []
        while life.seconds() < limit and not life.violations:
            self._end_services()
            engine.play(life.seconds() + REST_INTERVAL_S)
            self._look()
            life.is_at_rest = True
            found = [what for part in PARTS if part.at_rest for what in part.at_rest(life)]
            life.is_at_rest = False
            if not found:
                break
        for what in found:
            self._violated(what)
        life.steps = engine.activations

    def _violated(self, what: str) -> None:
        if what not in self.known:
            self.known.add(what)
            life = self.life
            life.engine.note("VIOLATION", what)
            life.violations.append(Violation(life.seconds() - life.began_s, what))
