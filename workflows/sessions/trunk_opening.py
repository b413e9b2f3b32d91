"""The opening of a trunk: how an API process, which reaches no node, finds the site of a run."""

from temporalio import workflow
from temporalio.exceptions import ActivityError

from workflows.effects.sessions import OpenTrunk, TrunkOpened, open_trunk
from workflows.primitives.failures import cause_of


@workflow.defn(name="TrunkOpening")
class TrunkOpening:
    """One message to the site's worker process, and its answer; bytes never pass here."""

    @workflow.run
    async def run(self, command: OpenTrunk) -> TrunkOpened:
        try:
            return await open_trunk(command, summary=command.run_id)
        except ActivityError as failure:
            return TrunkOpened(reason=cause_of(failure)[1])
