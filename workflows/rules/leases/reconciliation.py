"""A provider's list of machines against our leases, both ways."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from workflows.contracts.statuses import LeaseStatus


@dataclass(frozen=True)
class Leased:
    """What a lease says of its machine: where it is being tried or is, None: nowhere yet."""

    lease_id: str
    zone: str | None
    status: LeaseStatus


@dataclass(frozen=True)
class Discrepancies:
    """What is to be done about what was found, as (machine name, place)."""

    to_release: tuple[tuple[str, str], ...]
    """Its lease has ended, or is at another place now: a late answer has made it."""
    unknown: tuple[tuple[str, str], ...]
    """It carries our ownership label and no lease names it: for a person, as it may be at work."""
    missing: tuple[str, ...]
    """Leases that are ready, by id, and whose machine the provider does not list."""


def compare(owned: Collection[tuple[str, str]], leases: Mapping[str, Leased]) -> Discrepancies:
    """owned: (name, place) of the machines with our label, listed before the leases were read.

    leases: by machine name. A lease is committed before its machine is asked for, so whatever was
    listed has its lease here; and what came later than the list is judged by the next one.
    """
    to_release, unknown = [], []
    for name, zone in sorted(owned):
        lease = leases.get(name)
        if lease is None:
            unknown.append((name, zone))
        elif lease.status.is_final or lease.zone != zone:
            to_release.append((name, zone))
    listed = frozenset(owned)
    missing = [
        lease.lease_id
        for name, lease in leases.items()
        if lease.status is LeaseStatus.READY and (name, lease.zone) not in listed
    ]
    return Discrepancies(tuple(to_release), tuple(unknown), tuple(sorted(missing)))
