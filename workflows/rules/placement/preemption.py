"""Pre-emption: which guests leave for jobs of the owner, where the region's policy lets them."""

from collections import defaultdict
from collections.abc import Iterable

from workflows.contracts.placement import Demand, RunningGuest
from workflows.rules.placement.inventory import Inventory, NodeCapacity

_Guests = dict[str, list[RunningGuest]]


def guests_to_preempt(
    waiting: Iterable[Demand], inventory: Inventory, guests: Iterable[RunningGuest]
) -> tuple[str, ...]:
    """The ids of the jobs that are given notice, for waiting demands in the order of their turn.

    The newest guests leave first, and no more of them than one job of each demand needs. Those that
    have their notice already come before others, so that a second round adds nothing.
    """
    by_node: _Guests = defaultdict(list)
    for guest in guests:
        by_node[guest.node_id].append(guest)
    for there in by_node.values():
        there.sort(key=lambda guest: (guest.noticed, guest.since, guest.job_id), reverse=True)
    leaving: dict[str, None] = {}
    for demand in waiting:
        chosen = _room_for(demand, inventory, by_node)
        for node_id, needed in chosen.items():
            del by_node[node_id]  # What becomes free there is for this demand.
            leaving |= dict.fromkeys(guest.job_id for guest in needed if not guest.noticed)
    return tuple(leaving)


def _room_for(
    demand: Demand, inventory: Inventory, by_node: _Guests
) -> dict[str, list[RunningGuest]]:
    """The guests of each node that leave so that the demand fits; none: they would not do."""
    for region in inventory.regions:
        policy = region.guest_policy
        is_own = region.public and region.account_id == demand.account_id
        if not is_own or policy.preemption_notice_s is None or region.refusal(demand) is not None:
            continue
        for pool in region.pools(demand):
            chosen = _room_in(demand, pool, by_node)
            if chosen:
                return chosen
    return {}


def _room_in(
    demand: Demand, pool: list[NodeCapacity], by_node: _Guests
) -> dict[str, list[RunningGuest]]:
    missing = demand.worker_count
    chosen: dict[str, list[RunningGuest]] = {}
    options = [
        option
        for machine in pool
        if machine.active and (option := _option(demand, machine, by_node.get(machine.node_id, ())))
    ]
    for *_, machine, room, needed in sorted(options, key=lambda each: each[:2]):
        if missing <= 0:
            break
        missing -= room
        if needed:
            chosen[machine.node_id] = needed
    return chosen if missing <= 0 else {}


def _option(
    demand: Demand, machine: NodeCapacity, guests: Iterable[RunningGuest]
) -> tuple[int, str, NodeCapacity, int, list[RunningGuest]] | None:
    """How many workers fit on a node, and which guests leave for it; None: none fit.

    The number of guests without notice is first, by which nodes are compared.
    """
    needed: list[RunningGuest] = []
    room = machine.room_with(demand, needed)
    for guest in guests:
        if room >= demand.worker_count:
            break
        needed.append(guest)
        room = machine.room_with(demand, needed)
    if not room:
        return None
    for guest in [each for each in needed if not each.noticed]:
        others = [each for each in needed if each is not guest]
        if machine.room_with(demand, others) == room:
            needed = others
    return sum(not guest.noticed for guest in needed), machine.node_id, machine, room, needed
