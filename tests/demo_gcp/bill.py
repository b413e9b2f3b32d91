"""What the platform's leases have cost, beside what the cloud's own meter says."""

from __future__ import annotations

from tests.demo_gcp.telling import Telling
from workers.runner.commands import Resource

COUNTS_TO_S = 1.0
"""Both count seconds; a lease counts whole ones."""


def compare(telling: Telling) -> None:
    """One line for each machine, and the sums. Raises: StackError, where the two do not agree."""
    leases = {str(lease["name"]): lease for lease in telling.api.get("/v1/leases")["items"]}
    charges = telling.cloud.charges()
    telling.tell(f"\n{'machine':<38}{'type':<16}{'lease s':>8}{'meter s':>9}{'cost':>11}")
    for charge in charges:
        lease = leases.get(charge.name)
        kind = f"{charge.machine_type}{' spot' if charge.spot else ''}"
        seconds = "-" if lease is None else str(lease["seconds"])
        cost = "-" if lease is None else _credits(lease)
        told = f"{seconds:>8}{charge.seconds:>9.1f}{cost:>11}"
        telling.tell(f"{charge.name:<38}{kind:<16}{told}")
    cost = sum(int(lease["cost_microcredits"]) for lease in leases.values())
    telling.tell(f"together {cost / 1e6:.6f} credits, of dated list prices; our own fee is above\n")
    telling.expect(
        f"each of the {len(charges)} machines that the cloud has charged for has its lease",
        [charge.name for charge in charges if charge.name not in leases] == [],
    )
    telling.expect(
        "leases and the cloud's meter agree to the second",
        all(abs(leases[one.name]["seconds"] - one.seconds) <= COUNTS_TO_S for one in charges),
    )
    telling.expect(
        "the cloud charges for nothing any more", not any(each.is_running for each in charges)
    )
    telling.expect("the cloud lists no machine", telling.cloud.machines() == [])
    odd = telling.cloud.violations()
    telling.expect("Google's documents know every request that was made", not odd)


def _credits(lease: Resource) -> str:
    return f"{int(lease['cost_microcredits']) / 1e6:.6f}"
