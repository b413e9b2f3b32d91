"""What a site queue serves: activities that touch nodes and never open the database."""

from activities.registry import Activity
from activities.site.collection import collect_log, store_output
from activities.site.nodes import (
    check_site,
    end_orphaned_runs,
    inspect_node,
    list_runs,
    prepare_node,
    reach_node,
    reboot_node,
    restore_logins,
)
from activities.site.runs import clean_worker, end_worker, get_run_status, start_worker
from activities.site.staging import stage_worker
from activities.site.state_snapshots import save_snapshot
from activities.site.watch import watch_node

SITE: tuple[Activity, ...] = (
    check_site,
    reach_node,
    inspect_node,
    prepare_node,
    reboot_node,
    restore_logins,
    list_runs,
    end_orphaned_runs,
    watch_node,
    stage_worker,
    start_worker,
    get_run_status,
    end_worker,
    collect_log,
    store_output,
    save_snapshot,
    clean_worker,
)
