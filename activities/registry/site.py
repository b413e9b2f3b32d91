"""Activities of the task queue of a site, which reach nodes and never open the database."""

from activities.registry import Activity, activities_in
from activities.site import (
    collection,
    datastore_sources,
    datastores,
    devices,
    nodes,
    region_cache,
    runs,
    staging,
    state_snapshots,
    volumes,
    watch,
)
from activities.site.sessions import trunks

SITE: tuple[Activity, ...] = activities_in(
    *(nodes, datastores, datastore_sources, watch, staging, runs, collection, state_snapshots),
    *(volumes, region_cache, devices, trunks),
)
WATCHES: tuple[Activity, ...] = (devices.watch_device,)
"""The activities of the queue of a site's watches."""
