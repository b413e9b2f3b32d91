"""Which activities there are, by the queue that serves them.

MAIN and PLANNING read and write rows and never touch a node; NEWS listens to providers, for as long
as they are there; SITE touches nodes and never opens the database. To add one: its stub in
`workflows/effects/`, its function, its name here.
"""

from collections.abc import Callable
from typing import Any

from activities.billing import begin_billing, end_billing, post_usage, tell_job_to_end
from activities.leased_nodes import lease_machine, return_machine, withdraw_places
from activities.machine_sweep import sweep_machines
from activities.machines import (
    await_machine,
    create_machine,
    find_shortages,
    look_at_machine,
    release_machine,
    remember_shortage,
    tell_holder,
)
from activities.news import follow_news, listen_for_news, tell_news_state
from activities.node_rows import (
    bill_strays,
    find_announcement,
    find_node_runs,
    find_peers,
    tell_jobs,
)
from activities.placement import announce_placements, find_placement
from activities.planning import PLANNING
from activities.price_refresh import refresh_prices
from activities.providers.projects import (
    forget_provider_key,
    make_provider_part,
    remove_provider_part,
)
from activities.providers.region_parts import make_region_part, remove_region_part
from activities.providers.registry import check_provider
from activities.record import record
from activities.region_rows import (
    add_storage_node,
    dismiss_node,
    find_dependents,
    find_storage,
    tell_dependents,
)
from activities.site.job import clean_worker, end_worker, look_at_run, start_worker
from activities.site.logins import release_node
from activities.site.node import (
    check_site,
    end_strays,
    inspect_node,
    list_runs,
    prepare_node,
    reach_node,
    reboot_node,
)
from activities.site.staging import stage_worker
from activities.site.states import save_state
from activities.site.stored import collect_log, store_output
from activities.site.watch import watch_node
from activities.sweep import deliver_requests, sweep_lost
from activities.unknown_machines import end_unknown_machine
from activities.work_orders import (
    discard_state,
    discard_work_orders,
    remove_stored,
    seal_work_orders,
)

__all__ = ["MAIN", "NEWS", "PLANNING", "SITE"]

Activity = Callable[..., Any]

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

NEWS: tuple[Activity, ...] = (listen_for_news,)

SITE: tuple[Activity, ...] = (
    check_site,
    reach_node,
    inspect_node,
    prepare_node,
    reboot_node,
    release_node,
    list_runs,
    end_strays,
    watch_node,
    stage_worker,
    start_worker,
    look_at_run,
    end_worker,
    collect_log,
    store_output,
    save_state,
    clean_worker,
)
