"""Who may log in to a machine that is no node any more."""

from temporalio import activity

from activities.site.calls import ask
from workflows.contracts.base import Done
from workflows.effects.nodes import ReleaseNode


@activity.defn
async def release_node(command: ReleaseNode) -> Done:
    """Let others log in as before it was prepared; a second time changes nothing."""
    await ask(command.node, "release", {}, limit_s=25)
    return Done()
