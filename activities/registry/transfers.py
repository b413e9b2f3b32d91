"""Activities of the task queue `transfers`, which read what others serve, for hours."""

from activities.artifacts.transfers import transfer_artifact
from activities.registry import Activity

TRANSFERS: tuple[Activity, ...] = (transfer_artifact,)
