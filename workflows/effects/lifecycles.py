"""Effects of every lifecycle: recording a step, starting and telling other workflows."""

from workflows.contracts.base import Contract, Done
from workflows.contracts.lifecycles import Record, Recorded, Removal
from workflows.effects.effect import Effect

record = Effect("record", Record, Recorded, start_to_close_s=10)
"""Status, event and changes of one step, in one transaction; wakes placement when it matters."""


class FindDependents(Contract):
    """What still uses a provider (its regions), a region (its nodes) or a node (its jobs)."""

    resource_id: str


class DependentsFound(Contract):
    ids: tuple[str, ...] = ()
    own_ids: tuple[str, ...] = ()
    """Those of them that keep nobody from removing the resource: a region's storage, which it has
    made for itself, and nodes that leave already, or were made for a job that has ended."""


class RemoveDependents(Contract):
    """Send `remove` to everything that still uses the resource."""

    resource_id: str
    removal: Removal


find_dependents = Effect("find_dependents", FindDependents, DependentsFound)

remove_dependents = Effect("remove_dependents", RemoveDependents, Done)
