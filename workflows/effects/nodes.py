"""Effects on a node, and on the rows of a node."""

from datetime import datetime

from workflows.contracts.base import Contract, Done
from workflows.contracts.errors import HOST_KEY_MISMATCH, LOGIN_REFUSED, LOSSES, NON_RETRYABLE
from workflows.contracts.nodes import (
    Announcement,
    Hardware,
    NodeAddress,
    NodeNotice,
    Preparation,
    RunSeen,
    WatchEnded,
)
from workflows.effects.effect import HEARTBEAT_S, Effect, SiteCommand


class FindAnnouncement(Contract):
    minion_id: str


class AnnouncementFound(Contract):
    announcement: Announcement | None = None


class ReachNode(SiteCommand):
    """Prove that the node answers with its own key."""


class NodeReached(Contract):
    boot_id: str


class InspectNode(SiteCommand):
    pass


class NodeInspected(Contract):
    hardware: Hardware


class FindPeers(Contract):
    node_id: str
    region_id: str


class PeersFound(Contract):
    """The region's other nodes, to be reached from the new one."""

    peers: tuple[NodeAddress, ...] = ()


class PrepareNode(SiteCommand):
    exclusive: bool
    peers: tuple[NodeAddress, ...] = ()
    serves_cache: bool = False
    """It is to serve its region's cache."""


class NodePrepared(Contract):
    preparation: Preparation


class RebootNode(SiteCommand):
    boot_id: str
    """The boot that is to end: a machine that has restarted since is left alone."""


class RestoreLogins(SiteCommand):
    """Open what preparing has closed: it is its owner's alone again."""


class FindNodeRuns(Contract):
    node_id: str


class NodeRunsFound(Contract):
    """The runs that live jobs hold on the node."""

    run_ids: tuple[str, ...] = ()
    job_ids: tuple[str, ...] = ()


class ListRuns(SiteCommand):
    pass


class RunsListed(Contract):
    run_ids: tuple[str, ...] = ()


class EndOrphanedRuns(SiteCommand):
    """End every supervised command on the node that is in `among` and not in `live`.

    `among` is listed before `live` is asked for: a job that is placed meanwhile, or while this is
    tried again, has its run in neither and is left alone.
    """

    among: tuple[str, ...]
    live: tuple[str, ...]


class OrphanedRunsEnded(Contract):
    runs: tuple[RunSeen, ...] = ()


class BillOrphanedRuns(Contract):
    """Post what strays had run before they were ended, as far as their jobs are known."""

    runs: tuple[RunSeen, ...]


class WatchNode(SiteCommand):
    """Bring the exits and log bytes of all runs of the node until cancelled or lost."""

    boot_id: str = ""
    """Of the boot that is known: after another one the node is looked at first. Empty: any."""


class NotifyJobs(Contract):
    """Signal every job with a live allocation on the node what has become of the node."""

    node_id: str
    notice: NodeNotice
    reason: str = ""
    ended_at: datetime | None = None
    """When the machine ended, by its provider's clock; with `MACHINE_GONE` alone."""


class JobsNotified(Contract):
    job_ids: tuple[str, ...] = ()


find_announcement = Effect("find_announcement", FindAnnouncement, AnnouncementFound)
find_peers = Effect("find_peers", FindPeers, PeersFound)
find_node_runs = Effect("find_node_runs", FindNodeRuns, NodeRunsFound)
bill_orphaned_runs = Effect("bill_orphaned_runs", BillOrphanedRuns, Done)
notify_jobs = Effect("notify_jobs", NotifyJobs, JobsNotified, schedule_to_close_s=120)
"""Within two minutes: a job that cannot be told must not keep its node from being watched."""

try_node = Effect(
    "reach_node",
    ReachNode,
    NodeReached,
    queue=None,
    start_to_close_s=20,
    schedule_to_close_s=60,
    retry_first_s=2,
    attempts=2,
)
"""First contact: two looks, and again; in between people are told what is in the way."""

find_node_again = Effect(
    "reach_node",
    ReachNode,
    NodeReached,
    queue=None,
    start_to_close_s=20,
    schedule_to_close_s=3600,
    retry_first_s=1,
    retry_max_s=15,
    non_retryable=(HOST_KEY_MISMATCH,),
)
"""For a node that was there before: an hour, and again. Another key is told at once."""

await_ssh = Effect(
    "reach_node",
    ReachNode,
    NodeReached,
    queue=None,
    start_to_close_s=20,
    schedule_to_close_s=600,
    retry_first_s=1,
    retry_max_s=5,
)
"""For a machine that was just made: its SSH server begins when it has booted."""

probe_node = Effect(
    "reach_node",
    ReachNode,
    NodeReached,
    queue=None,
    start_to_close_s=20,
    schedule_to_close_s=60,
    retry_first_s=1,
    attempts=2,
)
"""Two looks, before a node whose watch broke is called offline: it may have been our side."""

inspect_node = Effect(
    "inspect_node",
    InspectNode,
    NodeInspected,
    queue=None,
    start_to_close_s=60,
    schedule_to_close_s=1800,
    heartbeat_s=HEARTBEAT_S,
)
inspect_again = Effect(
    "inspect_node",
    InspectNode,
    NodeInspected,
    queue=None,
    start_to_close_s=60,
    schedule_to_close_s=180,
    heartbeat_s=HEARTBEAT_S,
    attempts=3,
)
"""What it is now, of a node that is in use: meanwhile nobody watches it."""

prepare_node = Effect(
    "prepare_node",
    PrepareNode,
    NodePrepared,
    queue=None,
    start_to_close_s=300,
    schedule_to_close_s=3600,
    heartbeat_s=HEARTBEAT_S,
)
reboot_node = Effect(
    "reboot_node",
    RebootNode,
    Done,
    queue=None,
    start_to_close_s=30,
    schedule_to_close_s=600,
)
restore_logins = Effect(
    "restore_logins",
    RestoreLogins,
    Done,
    queue=None,
    start_to_close_s=30,
    schedule_to_close_s=90,
    schedule_to_start_s=15,
    attempts=2,
)
"""Its removal does not wait for a site that nobody serves."""

list_runs = Effect(
    "list_runs",
    ListRuns,
    RunsListed,
    queue=None,
    start_to_close_s=20,
    schedule_to_close_s=90,
    attempts=3,
)
end_orphaned_runs = Effect(
    "end_orphaned_runs",
    EndOrphanedRuns,
    OrphanedRunsEnded,
    queue=None,
    start_to_close_s=120,
    schedule_to_close_s=600,
    heartbeat_s=HEARTBEAT_S,
    attempts=3,
)
watch_node = Effect(
    "watch_node",
    WatchNode,
    WatchEnded,
    queue=None,
    start_to_close_s=24 * 3600,
    schedule_to_close_s=7 * 24 * 3600,
    schedule_to_start_s=60,
    heartbeat_s=HEARTBEAT_S,
    non_retryable=(*NON_RETRYABLE, *sorted(LOSSES), LOGIN_REFUSED),
)
"""One for each node. It fails with the loss that it saw; the node's workflow looks again.

When its worker dies or stops, the next one takes it up: nothing is wrong with the node then, and to
have the workflows of 250 nodes look at them took half a minute.
"""
