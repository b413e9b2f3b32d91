"""Activities of the task queue of a site, which reach nodes and never open the database."""

from activities.registry import Activity, activities_in
from activities.site import (
    collection,
    datastores,
    nodes,
    region_cache,
    runs,
    staging,
    state_snapshots,
    watch,
)
from activities.site.sessions import trunks

SITE: tuple[Activity, ...] = activities_in(
    nodes, datastores, watch, staging, runs, collection, state_snapshots, region_cache, trunks
)
