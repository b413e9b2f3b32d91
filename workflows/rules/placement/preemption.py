"""Pre-emption: which guests leave for jobs of the owner, where the region's policy lets them."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from workflows.contracts.placement import Demand, RunningGuest
from workflows.rules.placement.inventory import Inventory, NodeCapacity

_Guests = dict[str, list[RunningGuest]]


@dataclass(frozen=True)
class Notices:
    """The ids of the jobs that are given notice, and of those whose notice is withdrawn."""

    given: tuple[str, ...] = ()
    withdrawn: tuple[str, ...] = ()


def notices(
    waiting: Iterable[Demand], inventory: Inventory, guests: Iterable[RunningGuest]
) -> Notices:
    """The notices that change, for waiting demands in the order of their turn.

    The newest guests leave first, and no more of them than one job of each demand needs. Those that
    have their notice already come before others, so that a second round adds nothing. A notice is
    withdrawn when no demand needs it any more; not while a node of the guest is not active, because
    nobody knows then what is needed there.
    """
    guests = tuple(guests)
    by_node: _Guests = defaultdict(list)
    for guest in guests:
        by_node[guest.node_id].append(guest)
    for there in by_node.values():
        there.sort(key=lambda guest: (guest.noticed, guest.since, guest.job_id), reverse=True)
    leaving: dict[str, bool] = {}
    """Whether they have their notice already."""
    for demand in waiting:
        chosen = _room_for(demand, inventory, by_node)
        for node_id, needed in chosen.items():
            del by_node[node_id]  # What becomes free there is for this demand.
            leaving |= {guest.job_id: guest.noticed for guest in needed}
    active = {
        each.node_id for region in inventory.regions for each in region.machines() if each.active
    }
    kept = leaving.keys() | {each.job_id for each in guests if each.node_id not in active}
    return Notices(
        given=tuple(job_id for job_id, is_noticed in leaving.items() if not is_noticed),
        withdrawn=tuple(sorted({each.job_id for each in guests if each.noticed} - kept)),
    )


def _room_for(
    demand: Demand, inventory: Inventory, by_node: _Guests
) -> dict[str, list[RunningGuest]]:
    """The guests of each node that leave so that the demand fits; none: they would not do.

    Where they have their notice already comes before where they have not.
    """
    options: list[dict[str, list[RunningGuest]]] = []
    for region in inventory.regions:
        policy = region.guest_policy
        is_own = region.public and region.account_id == demand.account_id
        if not is_own or policy.preemption_notice_s is None or region.refusal(demand) is not None:
            continue
        options += [_room_in(demand, pool, by_node) for pool in region.pools(demand)]
    return min(filter(None, options), key=_unnoticed_count, default={})


def _unnoticed_count(chosen: dict[str, list[RunningGuest]]) -> int:
    return sum(not guest.noticed for needed in chosen.values() for guest in needed)


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
