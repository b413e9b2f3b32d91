"""Activities of the task queue `transfers`, which read from others and send to them, for hours."""

from activities.artifacts.deliveries import deliver_output
from activities.artifacts.transfers import transfer_artifact
from activities.federation.models import isolate_model
from activities.registry import Activity

TRANSFERS: tuple[Activity, ...] = (transfer_artifact, deliver_output, isolate_model)
