"""One life of an installation while it is played, as the checks of the lifecycles see it."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from tests.simulation.behaviour import Behaviour
from tests.simulation.contracts import JobView, Outside, Process, Rows
from tests.simulation.engine.engine import Engine
from tests.simulation.plan import JobPlan, Plan
from workflows.contracts.artifacts import VolumeAccess


@dataclass(frozen=True)
class Request:
    """What a person has asked, and the API has accepted."""

    at: datetime
    resource_id: str
    verb: str
    by_rest: bool = False
    """Asked so that the life comes to rest, and not because a person wants it."""
    attempt: int = 0
    """Of a stopped job that is started: the last one before."""


@dataclass(frozen=True)
class Violation:
    """An invariant that does not hold."""

    at_s: float
    what: str


@dataclass
class Life:
    """An installation, what was asked of it, and what was seen to be wrong.

    The lists of ids are in the order in which the plan made the resources.
    """

    plan: Plan
    engine: Engine
    world: Outside
    rows: Rows
    began_s: float = 0.0
    """The virtual second at which it was ready."""
    accounts: list[str] = field(default_factory=list)
    providers: list[str] = field(default_factory=list)
    regions: list[str] = field(default_factory=list)
    machines: list[str] = field(default_factory=list)
    """The minion ids of the own machines."""
    nodes: list[str] = field(default_factory=list)
    datasets: list[str] = field(default_factory=list)
    datastores: list[str] = field(default_factory=list)
    jobs: dict[str, JobPlan] = field(default_factory=dict)
    volumes: dict[str, tuple[tuple[str, VolumeAccess], ...]] = field(default_factory=dict)
    """The volumes of each job."""
    requests: list[Request] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """What the API has refused, in its words."""
    violations: list[Violation] = field(default_factory=list)
    steps: int = 0
    struck: list[str] = field(default_factory=list)
    """The acts of the plan that have happened."""
    failed_calls: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Calls of effects that went wrong: `effect`, its name, and how."""
    calm_at: datetime | None = None
    """Since when nobody asks any more, and nothing goes wrong; None: not yet."""
    struck_states: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Lifecycles that faults have met: the workflow type, its state, and the fault."""
    disbelieved: set[str] = field(default_factory=set)
    """The minion ids of machines that have lied: what runs there is left as it is."""
    is_at_rest: bool = False
    """Whether it is asked now what holds at rest."""
    most_burn: Counter[str] = field(default_factory=Counter)
    """The highest burn rate of each account that was seen, in microcredits per hour."""
    has_forgotten: bool = False
    """Whether the engine has lost or restored its workflows."""
    forgotten: set[str] = field(default_factory=set)
    """The jobs that were open when it did, or when it was as it is again."""
    older_code_at: float | None = None
    """Since when workers of the older release may meet runs that the next one has marked, in
    virtual seconds; None: never."""

    @property
    def is_calm(self) -> bool:
        return self.calm_at is not None

    def seconds(self) -> float:
        """The virtual seconds since the engine began."""
        return self.engine.clock.now / 1e6

    def requests_of(self, resource_id: str) -> list[str]:
        return [request.verb for request in self.requests if request.resource_id == resource_id]

    def persons_requests_of(self, resource_id: str) -> list[Request]:
        """What people have asked of a resource, without what its rest has."""
        found = (request for request in self.requests if request.resource_id == resource_id)
        return [request for request in found if not request.by_rest]

    def behaviour(self, job_id: str) -> Behaviour:
        return self.jobs[job_id].behaviour

    def views(self) -> dict[str, JobView]:
        return {job.job_id: job for job in self.rows.jobs()}

    def processes(self) -> dict[str, list[Process]]:
        """All processes by job."""
        found: dict[str, list[Process]] = defaultdict(list)
        for process in self.world.processes():
            found[process.run_id.rsplit("-", 2)[0]].append(process)
        return found


def resource_beside(rows: Rows, noun: str, own: str, resource_id: str) -> str | None:
    """What of a noun belongs to another resource now: the node of a job, the lease of a node.

    own: the noun of the other one, or the first word of the workflow that serves it.
    """
    resource_id = resource_id.partition("/")[0]
    nodes = {one.node_id: one for one in rows.nodes()}
    held = [(one.job_id, one.node_id) for one in rows.allocations() if one.node_id in nodes]
    leases = {one.lease_id: one for one in rows.leases()}
    if own == "node":
        node_ids = [resource_id]
    elif own == "lease" and resource_id in leases:
        node_ids = [leases[resource_id].holder_id.removeprefix("node/")]
    else:
        node_ids = [node_id for job_id, node_id in held if job_id == resource_id]
    for node_id in node_ids:
        node = nodes.get(node_id)
        lease = leases.get(node.lease_id or "") if node else None
        found = {
            "node": node_id,
            "machine": node.minion_id if node else None,
            "region": node.region_id if node else None,
            "lease": lease.lease_id if lease else None,
            "cloud-machine": lease.name if lease else None,
            "job": next((job_id for job_id, at in held if at == node_id), None),
        }.get(noun)
        if found is not None:
            return found
    return None


def machines_given_up(
    life: Life, verbs: Sequence[str] = ("force_remove", "reschedule_remove")
) -> frozenset[str]:
    """The machines that a person has removed by force, or with their region or provider, and those
    that have lied.

    What runs there then is left as it is, where it cannot be reached.
    verbs: how they were removed.
    """
    forced = {request.resource_id for request in life.requests if request.verb in verbs}
    if not forced:
        return frozenset(life.disbelieved)
    regions = {
        region.resource_id
        for region in life.rows.regions()
        if region.resource_id in forced or region.provider_id in forced
    }
    return frozenset(
        node.minion_id
        for node in life.rows.nodes()
        if node.minion_id and (node.node_id in forced or node.region_id in regions)
    ).union(life.disbelieved)
