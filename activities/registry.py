"""Which activities there are, by the queue that serves them.

MAIN and PLANNING read and write rows and never touch a node; SITE touches nodes and never opens
the database. To add one: its stub in `workflows/effects/`, its function, its name here.
"""

from collections.abc import Callable
from typing import Any

from activities.providers.registry import check_provider
from activities.record import record
from activities.site.job import clean_worker, end_worker, look_at_run, start_worker
from activities.site.node import (
    check_site,
    end_strays,
    inspect_node,
    prepare_node,
    reach_node,
    reboot_node,
)
from activities.site.staging import stage_worker
from activities.site.stored import collect_log, store_output
from activities.site.watch import watch_node
from activities.work_orders import discard_work_orders, remove_stored, seal_work_orders

Activity = Callable[..., Any]

MAIN: tuple[Activity, ...] = (
    record,
    check_provider,
    seal_work_orders,
    discard_work_orders,
    remove_stored,
)

PLANNING: tuple[Activity, ...] = ()

SITE: tuple[Activity, ...] = (
    check_site,
    reach_node,
    inspect_node,
    prepare_node,
    reboot_node,
    end_strays,
    watch_node,
    stage_worker,
    start_worker,
    look_at_run,
    end_worker,
    collect_log,
    store_output,
    clean_worker,
)
