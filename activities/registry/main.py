"""What the main queue serves: activities that read and write rows and never touch a node."""

from activities.billing.job_billing import begin_billing, end_billing, post_usage, tell_job_to_end
from activities.billing.orphaned_runs import bill_strays
from activities.jobs.work_orders import (
    discard_state,
    discard_work_orders,
    remove_stored,
    seal_work_orders,
)
from activities.leases.leasing import lease_machine, return_machine, tell_holder
from activities.leases.orphaned_machines import end_unknown_machine
from activities.leases.reconciliation import sweep_machines
from activities.leases.shortages import find_shortages, remember_shortage
from activities.lifecycles.dependents import find_dependents, tell_dependents
from activities.lifecycles.reconciliation import sweep_lost
from activities.lifecycles.record import record
from activities.nodes.peers import find_announcement, find_peers
from activities.nodes.running_jobs import find_node_runs, tell_jobs
from activities.outbox.relay import deliver_requests
from activities.placement.planning import announce_placements, find_placement
from activities.placement.withdrawals import withdraw_places
from activities.providers.cloud_parts import (
    forget_provider_key,
    make_provider_part,
    make_region_part,
    remove_provider_part,
    remove_region_part,
)
from activities.providers.machines import (
    await_machine,
    create_machine,
    look_at_machine,
    release_machine,
)
from activities.providers.notifications import follow_news, tell_news_state
from activities.providers.price_refresh import refresh_prices
from activities.providers.registry import check_provider
from activities.regions.storage_nodes import add_storage_node, dismiss_node, find_storage
from activities.registry import Activity

MAIN: tuple[Activity, ...] = (
    record,
    deliver_requests,
    sweep_lost,
    sweep_machines,
    refresh_prices,
    end_unknown_machine,
    follow_news,
    tell_news_state,
    check_provider,
    make_provider_part,
    remove_provider_part,
    forget_provider_key,
    find_dependents,
    tell_dependents,
    find_announcement,
    find_peers,
    find_node_runs,
    tell_jobs,
    bill_strays,
    find_placement,
    announce_placements,
    begin_billing,
    post_usage,
    end_billing,
    tell_job_to_end,
    seal_work_orders,
    discard_work_orders,
    discard_state,
    remove_stored,
    create_machine,
    look_at_machine,
    await_machine,
    release_machine,
    find_shortages,
    remember_shortage,
    tell_holder,
    lease_machine,
    return_machine,
    withdraw_places,
    make_region_part,
    remove_region_part,
    find_storage,
    add_storage_node,
    dismiss_node,
)
