"""What the platform's leases have cost, beside what the meters of the marketplaces say.

The meters count to a part of a second, the leases whole ones, and a lease ends when the
answer to the deletion of its machine has come. Vast.ai charges storage alone until a machine runs;
the lease counts the whole price from the creation on, so that no cap is passed unseen.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tests.demo_burst.marketplaces import HOUR_S, Charge
from workers.runner.commands import Resource

AGREE_WITHIN_S = 2.0
"""How much longer a lease may be than its machine was charged. The charge ends when the marketplace
accepts the deletion, and the lease when the answer has come, by the platform's clock."""
PRICE_WITHIN = 2
"""Microcredits an hour, by which two roundings may differ."""
_NAME, _NUMBER = 46, 12


def table(
    leases: Sequence[Resource], charges: Sequence[Charge], orphans: Collection[str]
) -> list[str]:
    """A line for each machine that a marketplace has charged for, and the sums.

    orphans: the machine names that no lease names.
    """
    of_name = {str(lease["name"]): lease for lease in leases}
    lines = [_line("machine", "market", "lease s", "meter s", "lease", "meter")]
    for charge in charges:
        lease = of_name.get(charge.machine_name)
        known = charge.machine_name in orphans
        seconds = ("orphan" if known else "none") if lease is None else str(lease["seconds"])
        cost = "-" if lease is None else _credits(int(lease["cost_microcredits"]))
        metered = _credits(charge.microcredits)
        lines.append(
            _line(charge.machine_name, charge.kind, seconds, f"{charge.seconds:.1f}", cost, metered)
        )
    together = sum(int(lease["cost_microcredits"]) for lease in leases)
    metered_all = sum(charge.microcredits for charge in charges)
    metered_s = sum(charge.seconds for charge in charges)
    lines.append(
        _line("all", "", "", f"{metered_s:.1f}", _credits(together), _credits(metered_all))
    )
    return lines


def disagreements(
    leases: Sequence[Resource],
    charges: Sequence[Charge],
    *,
    orphans: Collection[str] = (),
    vanished: Collection[str] = (),
) -> list[str]:
    """Where the two do not say the same; in words for people.

    vanished: machines whose hosts have vanished, which the meter counts no further, and the lease
    until their end was certain.
    """
    of_name = {str(lease["name"]): lease for lease in leases if lease["began_at"] is not None}
    names = {charge.machine_name for charge in charges}
    found = []
    for charge in charges:
        name = charge.machine_name
        if name in of_name:
            found += _differences(of_name[name], charge, is_vanished=name in vanished)
        elif name not in orphans:
            found.append(f"{name}: no lease names it")
    costs = {name: lease["cost_microcredits"] for name, lease in of_name.items()}
    return found + [
        f"{name}: its lease has cost {cost} microcredits, the meters nothing"
        for name, cost in costs.items()
        if cost and name not in names
    ]


def _differences(lease: Resource, charge: Charge, *, is_vanished: bool) -> list[str]:
    """Seconds, price and cost are each compared with the meter's."""
    name, seconds = charge.machine_name, int(lease["seconds"])
    price, cost = int(lease["microcredits_per_hour"]), int(lease["cost_microcredits"])
    later_s = seconds - charge.seconds
    found = []
    if later_s < -1 or (later_s > AGREE_WITHIN_S and not is_vanished):
        found.append(f"{name}: {seconds} s by its lease, {charge.seconds:.1f} s by the meter")
    if abs(price - charge.microcredits_per_hour) > PRICE_WITHIN:
        found.append(
            f"{name}: {price} microcredits an hour by its lease, {charge.microcredits_per_hour} "
            "by the meter"
        )
    # Beside the meter's: the seconds until the answer came, and GPUs before the machine ran.
    unmetered_s = max(0.0, charge.seconds - charge.gpu_s)
    beside = later_s * price + unmetered_s * charge.gpu_microcredits_per_hour
    if abs(cost - charge.microcredits - beside / HOUR_S) > price / HOUR_S + PRICE_WITHIN:
        found.append(f"{name}: {cost} microcredits by its lease, {charge.microcredits} metered")
    return found


def explained(
    leases: Sequence[Resource],
    charges: Sequence[Charge],
    vanished: Collection[str],
    orphans: Collection[str],
) -> list[str]:
    """What the difference of the two sums is made of; in words for people."""
    of_name = {str(lease["name"]): lease for lease in leases if lease["began_at"] is not None}
    boots, ends, away, lost = 0.0, 0.0, 0.0, 0
    for charge in charges:
        lease = of_name.get(charge.machine_name)
        if lease is None:
            lost += charge.microcredits if charge.machine_name in orphans else 0
            continue
        boots += (charge.seconds - charge.gpu_s) * charge.gpu_microcredits_per_hour / HOUR_S
        later = (int(lease["seconds"]) - charge.seconds) * charge.microcredits_per_hour / HOUR_S
        if charge.machine_name in vanished:
            away += later
        else:
            ends += later
    return [
        f"{_credits(round(boots)):>10}  GPUs of machines that did not run yet, in the leases alone",
        f"{_credits(round(ends)):>10}  until the deletions of the machines were answered",
        f"{_credits(round(away)):>10}  until the end of the machine was seen whose host vanished",
        f"{_credits(-lost):>10}  the orphan, which no lease names",
    ]


def _line(name: str, kind: str, *numbers: str) -> str:
    return f"{name:<{_NAME}}{kind:<10}" + "".join(f"{number:>{_NUMBER}}" for number in numbers)


def _credits(microcredits: int) -> str:
    return f"{microcredits / 1e6:.6f}"
