"""The comparison of a provider's machines with our leases."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from workflows.contracts.statuses import LeaseStatus


@dataclass(frozen=True)
class Leased:
    """A lease with the zone of its machine; None: no offer was tried yet."""

    lease_id: str
    zone: str | None
    status: LeaseStatus
    unreadable: str = ""
    """Why its row cannot be read; then the lease counts as holding its machine in every zone."""
    in_any_zone: bool = False
    """Whether the name alone makes it the machine, because a marketplace states zones, which may
    differ from that of the offer, and ends all machines of a name at once."""

    def holds(self, zone: str) -> bool:
        """Whether the lease has not ended and holds the machine in this zone."""
        if self.unreadable:
            return True
        return not self.status.is_final and self.zone is not None and self.is_in(zone)

    def is_in(self, zone: str) -> bool:
        """Whether the machine of its name in this zone is the lease's."""
        return self.in_any_zone or self.zone == zone


@dataclass(frozen=True)
class Discrepancies:
    """The discrepancies that a lease reconciliation found, with machines as (name, zone)."""

    to_release: tuple[tuple[str, str], ...]
    """Machines to terminate: their lease has ended or is in another zone, so they were created
    late. That a marketplace's machine of an open lease is a late one, its driver finds out."""
    unknown: tuple[tuple[str, str], ...]
    """Orphaned machines; only a person has them terminated, because they may do work."""
    missing: tuple[str, ...]
    """The ids of ready leases whose machine the provider does not list."""


def compare(owned: Collection[tuple[str, str]], leases: Mapping[str, Leased]) -> Discrepancies:
    """Compare machines with leases.

    owned: (name, zone) of the machines with our ownership label, listed before the leases were
    read; leases: by machine name. A lease is committed before its machine is created, so each
    listed machine has its lease here. The next reconciliation compares machines that are newer
    than the list.
    """
    to_release, unknown = [], []
    for name, zone in sorted(owned):
        lease = leases.get(name)
        if lease is None:
            unknown.append((name, zone))
        elif not lease.holds(zone):
            to_release.append((name, zone))
    zones: dict[str, list[str]] = {}
    for name, zone in owned:
        zones.setdefault(name, []).append(zone)
    missing = [
        lease.lease_id
        for name, lease in leases.items()
        if lease.status is LeaseStatus.READY and not any(map(lease.is_in, zones.get(name, ())))
    ]
    return Discrepancies(tuple(to_release), tuple(unknown), tuple(sorted(missing)))
