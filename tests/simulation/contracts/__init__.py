"""What the parts of the simulator agree on: Temporal as effects see it, effects, rows, the world.

`engine/` is Temporal with its worker processes, `rows_model/` and `rows_real/` the database behind
the queues `main` and `planning`, `outside/` what is behind the queues of sites and clouds. All
happens in one thread, in virtual time and from one seed: a life played twice is the same life.
"""

from tests.simulation.contracts.effects import (
    Attempt,
    CutOff,
    Event,
    Handler,
    Sleep,
    Steps,
    Until,
)
from tests.simulation.contracts.outside import (
    CloudMachine,
    Outside,
    Process,
)
from tests.simulation.contracts.rows import (
    AccountView,
    AllocationView,
    CapacityView,
    JobView,
    LeaseView,
    NodeView,
    Refused,
    ResourceView,
    Rows,
    Usage,
    Verb,
)
from tests.simulation.contracts.temporal import (
    AlreadyStarted,
    Cancellable,
    Execution,
    ExecutionStatus,
    NotFound,
    Temporal,
    Unavailable,
)

__all__ = [
    "AccountView",
    "AllocationView",
    "AlreadyStarted",
    "Attempt",
    "Cancellable",
    "CapacityView",
    "CloudMachine",
    "CutOff",
    "Event",
    "Execution",
    "ExecutionStatus",
    "Handler",
    "JobView",
    "LeaseView",
    "NodeView",
    "NotFound",
    "Outside",
    "Process",
    "Refused",
    "ResourceView",
    "Rows",
    "Sleep",
    "Steps",
    "Temporal",
    "Unavailable",
    "Until",
    "Usage",
    "Verb",
]
