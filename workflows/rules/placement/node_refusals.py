"""The refusals of nodes: why a job was not placed, with one refusal for each node.

With more than `LISTED_NODES` nodes there is one refusal for each region and code instead.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from workflows.contracts.billing import MICROCREDITS
from workflows.contracts.placement import GB, Demand, Refusal
from workflows.rules.counts import counted
from workflows.rules.placement.inventory import Inventory, NodeCapacity, RegionCapacity

LISTED_NODES = 32
ROOMY = "workers"
"""The code of nodes with free slots, which refuse only if the job needs more of them."""
NO_FEE_CREDITS = "the creator of the federated job has no credits left for its fee"
GIB = 1024**3

_INACTIVE, _GPU_COUNT, _CPU, _MEMORY, _DISK, _PORT, _RESERVED, _OWNER_FIRST = (
    (code, True)
    for code in (
        "inactive", "gpu-count", "cpu", "memory", "disk", "port", "reserved", "owner-first",
    )
)  # fmt: skip

_FOR_NOW = ("guest-hours", "guest-limit")
"""The codes of whole regions that capacity or time may end."""

NOTHING_THERE = Refusal(
    offer_id="none", code="no-offers", detail="there is no node to choose from", ever=False
)


@dataclass(frozen=True, slots=True)
class Finding:
    """Nodes of one region that refuse for one reason."""

    region: RegionCapacity
    code: str
    ever: bool
    machines: list[NodeCapacity]


def refusals_of(
    demand: Demand, inventory: Inventory, job_id: str | None = None
) -> tuple[Refusal, ...]:
    """The refusals of all visible nodes at this moment.

    job_id: the nodes that a hold-back keeps for this job do not refuse it for that.
    A reservation that another job holds is the only refusal: no node could end it.
    """
    holder = inventory.holder(demand)
    if holder is not None:
        return (_held(demand, holder),)
    return describe_refusals(findings_of(demand, inventory, job_id), demand)


def _held(demand: Demand, holder: str) -> Refusal:
    return Refusal(
        offer_id=demand.reservation_id or "none",
        region_id=demand.region_id,
        code="reservation",
        detail=holder,
    )


def findings_of(demand: Demand, inventory: Inventory, job_id: str | None = None) -> list[Finding]:
    """All visible nodes by the code of what they lack; nodes with free slots are `ROOMY`."""
    regions = inventory.seen_by(demand)
    return [finding for region in regions for finding in _findings(demand, region, job_id)]


def describe_refusals(found: list[Finding], demand: Demand) -> tuple[Refusal, ...]:
    """The refusals of these findings, as sentences for people."""
    if not found:
        return (NOTHING_THERE,)
    if sum(len(finding.machines) for finding in found) > LISTED_NODES:
        return tuple(_one_for_all(finding, demand) for finding in found)
    return tuple(
        _refusal(finding, machine, demand) for finding in found for machine in finding.machines
    )


def _findings(demand: Demand, region: RegionCapacity, job_id: str | None) -> Iterator[Finding]:
    code = region.refusal(demand)
    if code is not None:
        ever = code in _FOR_NOW and not _exceeds_limit(region, demand)
        yield Finding(region, code, ever, machines=list(region.machines()))
        return
    wanted = region.pools(demand)
    chosen = {id(pool) for pool in wanted}
    others = [pool for pool in region.by_type.values() if id(pool) not in chosen]
    if others:
        machines = [machine for pool in others for machine in pool]
        yield Finding(region, "gpu-type", ever=False, machines=machines)
    short: dict[tuple[str, bool], list[NodeCapacity]] = {}
    roomy: list[NodeCapacity] = []
    shapes: dict[int, tuple[tuple[str, bool] | None, int]] = {}
    for pool in wanted:
        for machine in pool:
            empty = shapes.get(machine.shape)
            if empty is None:
                empty = shapes[machine.shape] = _shortage_of_empty(machine, demand)
            shortage, cpus = empty
            shortage = shortage or _shortage_now(machine, demand, cpus, job_id)
            (roomy if shortage is None else short.setdefault(shortage, [])).append(machine)
    for (code, ever), machines in short.items():
        yield Finding(region, code, ever, machines)
    if roomy:
        yield Finding(region, ROOMY, _could_hold(chain.from_iterable(wanted), demand), roomy)


def _exceeds_limit(region: RegionCapacity, demand: Demand) -> bool:
    """Whether the region takes no guest of so many GPUs, however few others hold."""
    most = region.guest_policy.most_gpus
    return most is not None and demand.gpu_count * demand.worker_count > most


def _could_hold(machines: Iterable[NodeCapacity], demand: Demand) -> bool:
    """Whether the nodes could run all workers if nothing else ran on them."""
    missing = demand.worker_count
    for machine in machines:
        missing -= machine.capacity(demand)
        if missing <= 0:
            return True
    return False


def _shortage_of_empty(
    machine: NodeCapacity, demand: Demand
) -> tuple[tuple[str, bool] | None, int]:
    """The code of what empty nodes of this shape lack, None: nothing; and the CPUs of a worker."""
    offer, cpus = machine.offer, machine.cpus_for(demand)
    code = None
    if not machine.admits(demand):
        code = _inadmissible(machine, demand)
    elif demand.gpu_count > machine.gpu_total:
        code = "gpu-count"
    elif cpus > offer.cpu_count:
        code = "cpu"
    elif demand.memory_bytes > offer.memory_bytes:
        code = "memory"
    return (None if code is None else (code, False)), cpus


def _shortage_now(  # noqa: PLR0911 - a list of conditions, asked by the hundred thousand
    machine: NodeCapacity, demand: Demand, cpus: int, job_id: str | None
) -> tuple[str, bool] | None:
    """The code of what the node lacks now and may have later; None: nothing."""
    if not machine.active:
        return _INACTIVE
    if demand.gpu_count > len(machine.free_gpus):
        return _GPU_COUNT
    if cpus > machine.free_cpus:
        return _CPU
    if demand.memory_bytes > machine.free_memory_bytes:
        return _MEMORY
    if demand.disk_bytes > machine.free_disk_bytes:
        return _DISK
    if demand.port in machine.used_ports:
        return _PORT
    if machine.closed_to_guests and machine.owner_id != demand.account_id:
        return _OWNER_FIRST
    kept = machine.held_for is not None and machine.held_for != job_id
    return _RESERVED if kept else None


def _inadmissible(machine: NodeCapacity, demand: Demand) -> str:
    if machine.owner_id != demand.account_id:
        code = machine.guest_refusal(demand)
        if code is not None:
            return code
    if demand.needs_image and not machine.podman:
        return "image"
    if demand.needs_apt_packages and not machine.takes_apt_packages:
        return "apt-packages"
    if demand.needs_confinement:
        code = machine.confinement_refusal(demand)
        if code is not None:
            return code
    if demand.data_bytes and machine.is_too_small(demand):
        return "disk"
    return "price" if machine.is_too_dear(demand) else "credits"


def _refusal(finding: Finding, machine: NodeCapacity, demand: Demand) -> Refusal:
    words = _WORDS[finding.code](machine, demand, finding.ever)
    return Refusal(
        offer_id=machine.node_id,
        region_id=finding.region.region_id,
        code=finding.code,
        detail=f"{_node(machine, demand)}: {words}",
        ever=finding.ever,
    )


def _one_for_all(finding: Finding, demand: Demand) -> Refusal:
    """One refusal for all nodes of a finding, with the numbers of the node with most free."""
    nearest = finding.machines[0]
    if finding.ever:
        nearest = max(finding.machines, key=lambda m: (len(m.free_gpus), m.free_cpus))
    words = _WORDS[finding.code](nearest, demand, finding.ever)
    count = len(finding.machines)
    such = f"{count} nodes, such as " * (count > 1)
    return Refusal(
        offer_id=finding.region.region_id,
        region_id=finding.region.region_id,
        code=finding.code,
        detail=f"region {finding.region.region_name}: {such}{_node(nearest, demand)}: {words}",
        ever=finding.ever,
    )


def _node(machine: NodeCapacity, demand: Demand) -> str:
    """The node in words; the names that other accounts give their nodes are not shown."""
    if machine.owner_id != demand.account_id:
        return f"public node {machine.node_id}"
    return f"node {machine.offer.node_name or machine.node_id}"


def gpus_asked(demand: Demand) -> str:
    """The GPUs of a demand in words, such as `4×A100 or H100`."""
    return f"{demand.gpu_count}×{' or '.join(demand.gpu_types)}"


def _gpu_type(machine: NodeCapacity, demand: Demand, ever: bool) -> str:  # noqa: ARG001
    has = f"{machine.gpu_total}×{machine.offer.gpu_type}" if machine.gpu_total else "no GPU"
    return f"asked {gpus_asked(demand)}, has {has}"


def _gpu_count(machine: NodeCapacity, demand: Demand, ever: bool) -> str:
    if not ever:
        return f"asked {gpus_asked(demand)}, has {machine.gpu_total}"
    free = len(machine.free_gpus)
    return f"asked {gpus_asked(demand)}, {free} free of {machine.gpu_total}"


def _cpu(machine: NodeCapacity, demand: Demand, ever: bool) -> str:
    asked, total = machine.cpus_for(demand), machine.offer.cpu_count
    has = f"{machine.free_cpus} free of {total}" if ever else f"has {total}"
    return f"asked {counted(asked, 'CPU')}, {has}"


def _memory(machine: NodeCapacity, demand: Demand, ever: bool) -> str:
    total = f"{machine.offer.memory_bytes / GIB:.1f}"
    has = f"{machine.free_memory_bytes / GIB:.1f} free of {total}" if ever else f"has {total}"
    return f"asked {demand.memory_bytes / GIB:.1f} GiB of memory, {has}"


def _disk(machine: NodeCapacity, demand: Demand, ever: bool) -> str:
    if not ever:
        asked, data, has = (
            each / GB for each in (demand.disk_bytes, demand.data_bytes, machine.disk_bytes)
        )
        return f"asked {asked:.0f} GB of disk and {data:.1f} for its data, has {has:.1f}"
    asked, free = demand.disk_bytes / GB, max(0, machine.free_disk_bytes) / GB
    return f"asked {asked:.0f} GB of disk, {free:.1f} free"


def _price(machine: NodeCapacity, demand: Demand, ever: bool) -> str:  # noqa: ARG001
    most = demand.max_price_microcredits_per_gpu_hour
    asked_price = machine.price_for(demand)
    if demand.gpu_count and asked_price > most:
        price = asked_price / MICROCREDITS
        return f"costs {price:g} credits a GPU-hour, asked at most {most / MICROCREDITS:g}"
    cost = machine.cost_per_hour(demand) * demand.worker_count / MICROCREDITS
    cap = (demand.price_cap_microcredits_per_hour or 0) / MICROCREDITS
    return f"the job costs {cost:g} credits an hour, asked at most {cap:g}"


def _credits(machine: NodeCapacity, demand: Demand, ever: bool) -> str:  # noqa: ARG001
    if not demand.has_fee_credits:
        return NO_FEE_CREDITS
    cost = machine.cost_per_hour(demand) * demand.worker_count / MICROCREDITS
    return f"the job costs {cost:g} credits an hour, and its payer has none left: add some"


def _not_owned(machine: NodeCapacity, demand: Demand, ever: bool) -> str:  # noqa: ARG001
    if machine.trusted_only and not demand.only_owned:
        return "runs jobs of its owner alone"
    return "asked owned machines alone, belongs to another account"


def _untrusted(machine: NodeCapacity, demand: Demand, ever: bool) -> str:  # noqa: ARG001
    return (
        "is at a stranger, who would see the job's secrets or third-party keys; "
        "placement.untrusted: true gives it what the job has"
    )


def _not_sold(machine: NodeCapacity, demand: Demand, ever: bool) -> str:  # noqa: ARG001
    if not machine.gpu_total:
        return "has no GPU, and others' nodes take no jobs without GPUs"
    return (
        f"GPUs of type {machine.offer.gpu_type} are not sold there: they have no market price, or "
        "the node cannot hold off containers of other accounts"
    )


def _containers(machine: NodeCapacity, demand: Demand, ever: bool) -> str:  # noqa: ARG001
    return "takes jobs of other accounts in containers alone: give environment.image"


def _owner_first(machine: NodeCapacity, demand: Demand, ever: bool) -> str:  # noqa: ARG001
    return "jobs of its owner wait for it"


def _guest_hours(machine: NodeCapacity, demand: Demand, ever: bool) -> str:  # noqa: ARG001
    policy = machine.offer.guest_policy
    return f"takes guests from {policy.from_hour}:00 to {policy.until_hour}:00 UTC"


def _guest_limit(machine: NodeCapacity, demand: Demand, ever: bool) -> str:  # noqa: ARG001
    most, held = machine.offer.guest_policy.most_gpus, machine.region.guest_gpu_count
    asked = counted(demand.gpu_count * demand.worker_count, "GPU")
    return f"asked {asked} as a guest, its region lets guests have {most}, who hold {held}"


def _apt_packages(machine: NodeCapacity, demand: Demand, ever: bool) -> str:  # noqa: ARG001
    region = machine.offer.region_name or machine.offer.region_id
    return (
        "cannot install environment.apt_packages for one job alone. Use environment.image instead, "
        f"or have the owner of region {region} allow them on its machines (allows_apt_packages)"
    )


def _confinement(machine: NodeCapacity, demand: Demand, ever: bool) -> str:  # noqa: ARG001
    return f"cannot confine the run of a federated job: {machine.no_confinement_reason}"


def _attestation(machine: NodeCapacity, demand: Demand, ever: bool) -> str:  # noqa: ARG001
    reason = machine.no_attestation_reason
    return f"asked a node that attests what it runs (needs_attestation): this one {reason}"


def _wrong_region(machine: NodeCapacity, demand: Demand, ever: bool) -> str:  # noqa: ARG001
    return f"asked region {demand.region_id}, is in {machine.offer.region_id}"


def _provider(machine: NodeCapacity, demand: Demand, ever: bool) -> str:  # noqa: ARG001
    asked = " or ".join(demand.providers)
    return f"asked provider {asked}, is of {machine.offer.provider_kind}"


def _image(machine: NodeCapacity, demand: Demand, ever: bool) -> str:  # noqa: ARG001
    return "asked a container image, has no podman"


def _inactive(machine: NodeCapacity, demand: Demand, ever: bool) -> str:  # noqa: ARG001
    return "is not active"


def _port(machine: NodeCapacity, demand: Demand, ever: bool) -> str:  # noqa: ARG001
    return f"asked port {demand.port}, which is in use"


def _reserved(machine: NodeCapacity, demand: Demand, ever: bool) -> str:  # noqa: ARG001
    return "is kept free for a job that has waited longer"


def _workers(machine: NodeCapacity, demand: Demand, ever: bool) -> str:  # noqa: ARG001
    each = gpus_asked(demand) if demand.gpu_count else counted(machine.cpus_for(demand), "CPU")
    fit = machine.free_slots(demand)
    asked = counted(demand.worker_count, "worker")
    return (
        f"asked {asked} of {each}, {fit} {'fits' if fit == 1 else 'fit'} here and too few elsewhere"
    )


_WORDS: dict[str, Callable[[NodeCapacity, Demand, bool], str]] = {
    "apt-packages": _apt_packages,
    "attestation": _attestation,
    "confinement": _confinement,
    "containers": _containers,
    "cpu": _cpu,
    "credits": _credits,
    "disk": _disk,
    "gpu-count": _gpu_count,
    "gpu-type": _gpu_type,
    "guest-hours": _guest_hours,
    "guest-limit": _guest_limit,
    "image": _image,
    "inactive": _inactive,
    "memory": _memory,
    "not-owned": _not_owned,
    "not-sold": _not_sold,
    "owner-first": _owner_first,
    "port": _port,
    "price": _price,
    "provider": _provider,
    "reserved": _reserved,
    "workers": _workers,
    "untrusted": _untrusted,
    "wrong-region": _wrong_region,
}
