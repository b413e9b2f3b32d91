"""Activities of the task queue `main`, which read and write rows and call nobody else."""

from activities.artifacts.contents import find_progress, remove_content
from activities.artifacts.volumes import record_volume
from activities.billing.balance_guard import guard_balances
from activities.billing.device_fees import charge_device_days
from activities.billing.job_billing import begin_billing, end_billing, post_usage, tell_job_to_end
from activities.billing.orphaned_runs import bill_orphaned_runs
from activities.billing.payouts import pay_out
from activities.datastores.checks import find_datastore_checker, forget_datastore
from activities.datastores.readers import find_datastore_reader
from activities.devices.assignments import find_assignment
from activities.devices.rollouts import advance_rollout, end_rollout, roll_back
from activities.devices.specs import discard_device_specs, seal_device_spec
from activities.federation.jobs import (
    create_federated_job,
    end_federated_job,
    review_federation,
)
from activities.federation.models import withdraw_model
from activities.housekeeping.retention import remove_expired
from activities.jobs.awaited_data import find_job_data
from activities.jobs.run_specs import (
    discard_outputs,
    discard_run_specs,
    discard_snapshots,
    remove_stored,
    seal_run_specs,
)
from activities.leases.leasing import acquire_lease, notify_holder, release_lease
from activities.leases.shortages import find_shortages, remember_shortage
from activities.lifecycles.dependents import find_dependents, remove_dependents
from activities.lifecycles.reconciliation import restart_lost_workflows
from activities.lifecycles.record import record
from activities.nodes.addresses import find_announcement, find_peers
from activities.nodes.running_jobs import find_node_runs, notify_jobs
from activities.nodes.wanted import find_wanted_status
from activities.outbox.relay import relay_outbox
from activities.placement.planning import find_placement, notify_placed_jobs
from activities.placement.withdrawals import withdraw_allocations
from activities.providers.checks import check_provider, forget_provider_key
from activities.providers.notifications import report_feed_status, start_notifications
from activities.regions.storage_nodes import (
    add_storage_node,
    find_storage,
    find_storage_claim,
    find_storage_fill,
    request_node_removal,
)
from activities.registry import Activity

MAIN: tuple[Activity, ...] = (
    record,
    relay_outbox,
    restart_lost_workflows,
    remove_expired,
    start_notifications,
    report_feed_status,
    check_provider,
    forget_provider_key,
    find_dependents,
    remove_dependents,
    find_datastore_checker,
    forget_datastore,
    find_datastore_reader,
    find_announcement,
    find_wanted_status,
    find_peers,
    find_node_runs,
    notify_jobs,
    bill_orphaned_runs,
    find_placement,
    notify_placed_jobs,
    begin_billing,
    post_usage,
    end_billing,
    tell_job_to_end,
    charge_device_days,
    pay_out,
    guard_balances,
    find_job_data,
    seal_run_specs,
    discard_run_specs,
    discard_snapshots,
    discard_outputs,
    remove_stored,
    find_shortages,
    remember_shortage,
    notify_holder,
    acquire_lease,
    release_lease,
    withdraw_allocations,
    find_storage,
    find_storage_claim,
    find_storage_fill,
    add_storage_node,
    request_node_removal,
    find_progress,
    remove_content,
    record_volume,
    find_assignment,
    seal_device_spec,
    discard_device_specs,
    advance_rollout,
    end_rollout,
    roll_back,
    review_federation,
    create_federated_job,
    end_federated_job,
    withdraw_model,
)
