"""Every method that the double answers, by its id in Google's documents."""

from tests.doubles.gcp import (
    disks,
    instances,
    network,
    operations,
    places,
    platform,
    quota,
    sinks,
    skus,
)
from tests.doubles.gcp.calls import Handler
from tests.doubles.gcp.discovery import surface

HANDLERS: dict[str, Handler] = {
    method: handler
    for module in (platform, quota, places, operations, network, disks, instances, sinks, skus)
    for method, handler in module.serves.items()
}
SURFACE = surface(HANDLERS)
