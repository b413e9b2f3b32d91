"""The providers that a job names: which of them one is, and the order in which they are tried.

The order in which a job names its providers is the order of preference. The first one that has
room now gets the job, whatever the others cost; without names all are compared by price.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from workflows.contracts.placement import Demand


def position_of(providers: Sequence[str], provider_id: str, provider_kind: str) -> int | None:
    """The place of a provider among the names, its id or its kind; None: it is not named."""
    for position, name in enumerate(providers):
        if name in (provider_id, provider_kind):
            return position
    return None


def is_excluded(demand: Demand, provider_id: str, provider_kind: str) -> bool:
    """Whether the job names providers, and this one is none of them."""
    asked = demand.providers
    return bool(asked) and provider_id not in asked and provider_kind not in asked


def in_order(demand: Demand) -> Iterator[Demand]:
    """The demand with one of its providers at a time, the preferred ones first."""
    if len(demand.providers) < 2:
        yield demand
        return
    for name in demand.providers:
        yield replace(demand, providers=(name,))
