"""All parts, one for each lifecycle. A new lifecycle joins by its file and a line here."""

from tests.simulation.lifecycles.artifacts import ARTIFACTS
from tests.simulation.lifecycles.billing import BILLING
from tests.simulation.lifecycles.datastores import DATASTORES
from tests.simulation.lifecycles.jobs import JOBS
from tests.simulation.lifecycles.leases import LEASES
from tests.simulation.lifecycles.part import Part
from tests.simulation.lifecycles.placement import PLACEMENT
from tests.simulation.lifecycles.platform import PLATFORM
from tests.simulation.lifecycles.resources import NODES, PROVIDERS, REGIONS
from tests.simulation.lifecycles.restarts import RESTARTS

PARTS: tuple[Part, ...] = (
    *(JOBS, BILLING, NODES, LEASES, REGIONS, DATASTORES, PROVIDERS, ARTIFACTS),
    *(PLACEMENT, RESTARTS, PLATFORM),
)
