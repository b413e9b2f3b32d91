"""How often effects are called while faults are drawn, so that what is drawn happens.

The figures only weigh what is drawn, and need not be exact. `measure_frequencies.py` measures them.
"""

from typing import NamedTuple


class Often(NamedTuple):
    """The median of a seed; below 1: the share of the seeds that have any."""

    calls: float
    resources: float
    """Those whose workflows call it."""


def often(effect: str, *, has_cloud: bool) -> Often:
    """How often an effect is called in a life with a cloud, or in one without."""
    found = CALLS.get(effect, (0, 0, 0, 0))
    return Often(*(found[2:] if has_cloud else found[:2]))


CALLS: dict[str, tuple[float, float, float, float]] = {
    "acquire_lease": (0, 0, 28, 15),
    "begin_billing": (8, 8, 19, 17),
    "check_cloud": (0, 0, 1, 1),
    "check_site": (0.47, 0.47, 2, 2),
    "clean_worker": (7, 6, 17, 13),
    "collect_log": (8, 6, 17, 13),
    "create_machine": (0, 0, 15, 15),
    "describe_machine": (0, 0, 20, 7),
    "discard_outputs": (0.03, 0.03, 0, 0),
    "discard_run_specs": (6, 6, 14, 14),
    "discard_snapshots": (0.25, 0.25, 1, 1),
    "end_billing": (6, 6, 14, 13),
    "end_orphaned_runs": (0.5, 0.5, 22, 15),
    "end_worker": (2, 1, 4, 4),
    "ensure_provider_resource": (0, 0, 0.04, 0.04),
    "find_announcement": (0.16, 0.16, 0.43, 0.43),
    "find_node_runs": (3, 1, 87, 16),
    "find_peers": (0.12, 0.12, 15, 15),
    "find_placement": (21, 12, 19, 5),
    "find_shortages": (0, 0, 15, 15),
    "find_storage": (0, 0, 1, 1),
    "find_wanted_status": (0.5, 0.5, 22, 15),
    "get_run_status": (0.28, 0.28, 6, 4),
    "inspect_node": (0.31, 0.31, 19, 15),
    "list_runs": (0.5, 0.5, 22, 15),
    "notify_holder": (0, 0, 16, 15),
    "notify_jobs": (0.25, 0.25, 1, 1),
    "notify_placed_jobs": (47, 1, 94, 1),
    "plan_placements": (47, 1, 94, 1),
    "post_usage": (15, 14, 33, 29),
    "prepare_node": (0.12, 0.12, 15, 15),
    "reach_node": (0.31, 0.31, 40, 30),
    "receive_notifications": (0, 0, 2, 1),
    "reconcile_machines": (0, 0, 12, 1),
    "record": (72, 25, 344, 56),
    "relay_outbox": (1, 1, 1, 1),
    "release_lease": (0, 0, 76, 11),
    "remove_expired": (0.44, 0.44, 1, 1),
    "remove_stored": (0.03, 0.03, 0, 0),
    "report_feed_status": (0, 0, 0.04, 0.04),
    "restart_lost_workflows": (7, 6, 12, 12),
    "restore_logins": (0.12, 0.12, 0.21, 0.21),
    "save_snapshot": (3, 2, 24, 6),
    "seal_run_specs": (9, 8, 19, 17),
    "stage_worker": (10, 8, 23, 17),
    "start_notifications": (0, 0, 0.04, 0.04),
    "start_worker": (10, 8, 22, 17),
    "store_output": (7, 6, 17, 13),
    "tell_job_to_end": (0.03, 0.03, 0, 0),
    "terminate_machine": (0, 0, 54, 11),
    "wait_for_machine": (0, 0, 69, 15),
    "watch_node": (0.44, 0.44, 21, 18),
    "withdraw_allocations": (0.19, 0.19, 12, 12),
}
"""Calls and resources of each effect without a cloud, then with one."""
