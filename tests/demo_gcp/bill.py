"""What the platform's leases have cost, beside what the cloud's own meter says."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from tests.demo_gcp.cloud import Charge
from workers.runner.commands import Resource

AGREE_WITHIN_S = 1.0
_NAME, _TYPE, _NUMBER = 42, 22, 11


def table(leases: Sequence[Resource], charges: Sequence[Charge]) -> list[str]:
    """A line for each machine that the cloud has charged for, and the sum of all leases."""
    of_name = {str(lease["name"]): lease for lease in leases}
    lines = [_line("machine", "type", "lease s", "meter s", "credits")]
    for charge in charges:
        lease = of_name.get(charge.name)
        kind = f"{charge.machine_type}{' (spot)' if charge.spot else ''}"
        seconds = "none" if lease is None else f"{lasted_s(lease):.1f}"
        cost = "-" if lease is None else _credits(int(lease["cost_microcredits"]))
        lines.append(_line(charge.name, kind, seconds, f"{charge.seconds:.1f}", cost))
    together = sum(int(lease["cost_microcredits"]) for lease in leases)
    metered_s = sum(charge.seconds for charge in charges)
    lines.append(_line("all", "", "", f"{metered_s:.1f}", _credits(together)))
    return lines


def disagreements(leases: Sequence[Resource], charges: Sequence[Charge]) -> list[str]:
    """Where the two do not say the same, to the second; in words for people."""
    of_name = {str(lease["name"]): lease for lease in leases}
    found = [f"{each.name}: no lease names it" for each in charges if each.name not in of_name]
    for charge in charges:
        lease = of_name.get(charge.name)
        if lease is not None and abs(lasted_s(lease) - charge.seconds) > AGREE_WITHIN_S:
            said = f"{lasted_s(lease):.1f} s by its lease, {charge.seconds:.1f} s by the meter"
            found.append(f"{charge.name}: {said}")
    metered = {charge.name for charge in charges}
    return found + [
        f"{name}: its lease has cost {lease['cost_microcredits']} microcredits, the meter nothing"
        for name, lease in of_name.items()
        if lease["cost_microcredits"] and name not in metered
    ]


def lasted_s(lease: Resource) -> float:
    """For how long it has cost, less than a second more than the API's whole ones; 0 while it has
    not ended."""
    if lease["began_at"] is None or lease["ended_at"] is None:
        return 0.0
    began, ended = (datetime.fromisoformat(lease[name]) for name in ("began_at", "ended_at"))
    return (ended - began).total_seconds()


def _line(name: str, kind: str, *numbers: str) -> str:
    told = "".join(f"{number:>{_NUMBER}}" for number in numbers)
    return f"{name:<{_NAME}}{kind:<{_TYPE}}{told}"


def _credits(microcredits: int) -> str:
    return f"{microcredits / 1e6:.6f}"
