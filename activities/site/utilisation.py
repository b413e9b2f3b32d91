"""The utilisation of a watched node, in the heartbeat of its watch.

A heartbeat is sent every few seconds anyway, and Temporal keeps the details of the last one alone.
So a thousand nodes cost no row, no event and no connection more, until somebody reads.
"""

import time
from datetime import UTC, datetime

from activities.site.answers.frames import UtilisationFrame
from activities.site.run_names import RunNames
from activities.temporal.heartbeats import set_details
from workflows.contracts.utilisation import GpuUtilisation, NodeUtilisation, RunUtilisation

LEAST_PAUSE_S = 5.0
"""Half of the watcher's interval; what comes sooner is dropped."""


class UtilisationNote:
    """The last utilisation that one node has said of itself."""

    def __init__(self, names: RunNames) -> None:
        self._names = names
        self._next_s = 0.0

    def note(self, frame: UtilisationFrame) -> None:
        """Send the frame with the heartbeats from now on, without runs that are not the node's."""
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + LEAST_PAUSE_S
        known = [(self._names.read(run.run_id), run) for run in frame.runs]
        found = NodeUtilisation(
            at=datetime.now(UTC),
            gpus=tuple(GpuUtilisation(**gpu.model_dump()) for gpu in frame.gpus),
            runs=tuple(
                RunUtilisation(**run.model_dump() | {"run_id": run_id})
                for run_id, run in known
                if run_id is not None
            ),
        )
        set_details(found.model_dump_json())
