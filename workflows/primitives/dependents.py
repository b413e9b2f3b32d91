"""The dependents of a resource, as its lifecycle finds them and has them removed."""

from workflows.contracts.removals import Removal
from workflows.effects.lifecycles import (
    DependentsFound,
    FindDependents,
    RemoveDependents,
    find_dependents,
    remove_dependents,
)
from workflows.primitives.journal import Journal


class Dependents:
    """The dependents of the resource of one journal.

    A stale workflow run does not go on with a removal, because its row may say that the resource
    stays: `find` stops it, and what it asks for before that is ignored.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    async def find(self) -> DependentsFound:
        """What still uses the resource. A stale workflow run stops here."""
        found = await find_dependents(FindDependents(resource_id=self._journal.resource_id))
        await self._journal.stop_if_behind(found.sequence)
        return found

    async def remove(self, removal: Removal) -> None:
        """Signal `remove` to all of them; a signal that fails now is sent again the next time."""
        command = RemoveDependents(
            resource_id=self._journal.resource_id,
            removal=removal,
            sequence=self._journal.sequence,
        )
        await remove_dependents(command)
