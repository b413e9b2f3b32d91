"""Deliveries of outputs to their destinations: an activity of the task queue `transfers`."""

from temporalio import activity

from activities.artifacts.sources.tar_streams import refused
from workflows.effects.job_data import DeliverOutput, OutputDelivered


@activity.defn
def deliver_output(command: DeliverOutput) -> OutputDelivered:
    """Send the stored output of a job to its destination, going on after what was sent.

    Raises: ApplicationError `Refused` for what another attempt would not mend, `Unavailable` for a
    destination that does not answer now, `TransferWaits` while all slots of the account are taken,
    `NotFound`.
    """
    raise refused(f"{command.job_id}: no destination is available yet")
