"""Effects of every lifecycle: record a step, find dependents and remove them."""

from workflows.contracts.base import Contract, Done
from workflows.contracts.lifecycles import Record, Recorded
from workflows.contracts.removals import Removal
from workflows.effects.effect import Effect

record = Effect("record", Record, Recorded, start_to_close_s=10)
"""Write status, events and changes of one step in one transaction, and wake placement when the
step concerns it."""


class FindDependents(Contract):
    """Find the dependents of a provider (regions), of a region (nodes, datastores), or of a node, a
    datastore or an artifact (jobs)."""

    resource_id: str


class DependentsFound(Contract):
    """What still uses a resource."""

    ids: tuple[str, ...] = ()
    own_ids: tuple[str, ...] = ()
    """Dependents that do not prevent the removal: a storage node that the region created for
    itself, nodes that are being removed, and ephemeral nodes whose job has ended."""
    sequence: int = 0
    """The sequence of the last step in the resource's row, which is ahead of a stale workflow."""


class RemoveDependents(Contract):
    """Signal `remove` to all dependents of the resource."""

    resource_id: str
    removal: Removal
    sequence: int = 0
    """The sequence of the resource's last recorded step. If the row is ahead, a newer workflow run
    owns the resource and this request is ignored. 0: an earlier release has not said it."""


find_dependents = Effect("find_dependents", FindDependents, DependentsFound)

remove_dependents = Effect("remove_dependents", RemoveDependents, Done)
