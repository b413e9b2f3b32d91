"""Activities of the cloud queues of each provider kind, which call the kind's API."""

from activities.leases.orphaned_machines import terminate_orphaned_machine
from activities.leases.reconciliation import reconcile_machines
from activities.providers.cloud_parts import (
    check_cloud,
    ensure_provider_resource,
    ensure_region_resource,
    remove_provider_resource,
    remove_region_resource,
)
from activities.providers.machines import (
    create_machine,
    describe_machine,
    list_owned_machines,
    terminate_machine,
    wait_for_machine,
)
from activities.providers.offer_refresh import refresh_offers
from activities.providers.price_refresh import refresh_prices
from activities.registry import Activity

CLOUD: tuple[Activity, ...] = (
    check_cloud,
    ensure_provider_resource,
    remove_provider_resource,
    ensure_region_resource,
    remove_region_resource,
    create_machine,
    describe_machine,
    wait_for_machine,
    list_owned_machines,
    reconcile_machines,
    refresh_prices,
    refresh_offers,
)
RELEASES: tuple[Activity, ...] = (
    describe_machine,
    terminate_machine,
    terminate_orphaned_machine,
)
"""The activities that end machines, and describe one for the last time."""
