"""Effects on nodes and on their rows."""

from datetime import datetime

from workflows.contracts.base import Contract, Done
from workflows.contracts.errors import (
    HOST_KEY_MISMATCH,
    LOGIN_REFUSED,
    LOSSES,
    NON_RETRYABLE,
    PROTOCOL_VIOLATION,
)
from workflows.contracts.hosts import Announcement
from workflows.contracts.nodes import (
    EarlierRun,
    Hardware,
    IdleWorkloadFacts,
    LeavingRun,
    NodeAddress,
    NodeNotice,
    Preparation,
    RunSeen,
    WatchEnded,
)
from workflows.contracts.statuses import NodeStatus
from workflows.effects.effect import HEARTBEAT_S, Effect, SiteCommand


class FindAnnouncement(Contract):
    """Find what a machine has announced with a join token of its node's region."""

    minion_id: str
    region_id: str = ""


class AnnouncementFound(Contract):
    announcement: Announcement | None = None


class FindWantedStatus(Contract):
    node_id: str


class IdleWorkloadWanted(Contract):
    """The idle workload that a person wants on a node while it is active."""

    revision: str = ""
    """What differs with each change of it; empty: none is wanted."""
    sealed: str = ""
    """The workload, sealed for the region's site; empty: none is wanted."""


class WantedStatusFound(Contract):
    status: NodeStatus | None = None
    """None: nothing was requested that the lifecycle has not followed yet."""
    revision: int = 0
    idle_workload: IdleWorkloadWanted | None = None
    """None: the node cannot have one, or nobody has ever wanted one there."""
    has_console: bool = False
    """Whether the node's machine has a console that shows its status."""


class ReachNode(SiteCommand):
    """Connect to the node, and prove that it answers with the expected host key."""


class NodeReached(Contract):
    boot_id: str


class InspectNode(SiteCommand):
    tries_speeds: bool = False
    """Whether the machine tries how fast its disk and its CPU are, which takes a few seconds."""


class NodeInspected(Contract):
    hardware: Hardware


class FindPeers(Contract):
    node_id: str
    region_id: str


class PeersFound(Contract):
    """The peers of a node, which the node must reach."""

    peers: tuple[NodeAddress, ...] = ()


class PrepareNode(SiteCommand):
    exclusive: bool
    peers: tuple[NodeAddress, ...] = ()
    serves_cache: bool = False
    """Whether the node serves the region cache."""


class NodePrepared(Contract):
    preparation: Preparation


class RebootNode(SiteCommand):
    boot_id: str
    """The boot id before the reboot; a machine with another boot id has restarted and is not
    restarted again."""


class SwitchIdleWorkload(SiteCommand):
    """Switch the idle workload of the node on, to another one, or off, when none is given."""

    workload: IdleWorkloadWanted = IdleWorkloadWanted()


class ShowNodeStatus(SiteCommand):
    """Show the status of the node on the console of its machine."""

    status: NodeStatus


class IdleWorkloadSwitched(Contract):
    facts: IdleWorkloadFacts


class RestoreLogins(SiteCommand):
    """Restore the logins that the preparation closed, and withdraw the region's key.

    Then the owner can log in as before, and the platform cannot.
    """


class FindNodeRuns(Contract):
    node_id: str


class NodeRunsFound(Contract):
    """The runs that live jobs have on the node, and those that have been left to the node."""

    run_ids: tuple[str, ...] = ()
    job_ids: tuple[str, ...] = ()
    leaving: tuple[LeavingRun, ...] = ()
    sequence: int = 0
    """The sequence of the last step in the node's row, which is ahead of a workflow that Temporal
    has restored."""


class ListRuns(SiteCommand):
    pass


class RunsListed(Contract):
    run_ids: tuple[str, ...] = ()


class EndOrphanedRuns(SiteCommand):
    """End every run on the node that is in `among` and not in `live`.

    `among` is listed before `live` is read, so the run of a job that is placed meanwhile, or
    during a retry, is in neither list and goes on.
    """

    among: tuple[str, ...]
    live: tuple[str, ...]
    leaving: tuple[str, ...] = ()
    """Runs with a leaving allocation; one that is not on the node any more has ended."""


class OrphanedRunsEnded(Contract):
    """The orphaned runs: those that have ended, and those that are still alive."""

    runs: tuple[RunSeen, ...] = ()
    earlier_runs: tuple[EarlierRun, ...] = ()
    """Those of earlier nodes of the machine that are still alive."""
    cache_full: str | None = None
    """Why the region's cache on the node could not keep what it was sent last; None: it could."""


class BillOrphanedRuns(Contract):
    """Post the usage of orphaned runs, as far as their jobs are known.

    The leaving allocation of a run that has ended is freed in the same transaction.
    """

    node_id: str = ""
    """The node that has reported them; it frees its own allocations alone."""
    runs: tuple[RunSeen, ...]


class WatchNode(SiteCommand):
    """Watch all runs of the node: store their log bytes and signal their exits to the jobs.

    The watch lasts until it is cancelled or the node is unreachable.
    """

    boot_id: str = ""
    """The last known boot id. A watch that finds another one fails, so that the node's lifecycle
    reads the boot id anew; empty: any boot id."""


class NotifyJobs(Contract):
    """Signal the node notice to every job with a live allocation on the node."""

    node_id: str
    notice: NodeNotice
    reason: str = ""
    ended_at: datetime | None = None
    """When the machine ended, by its provider's clock, with `MACHINE_GONE`; when it broke the
    protocol, with `PROTOCOL_VIOLATED`."""


class JobsNotified(Contract):
    job_ids: tuple[str, ...] = ()


find_announcement = Effect("find_announcement", FindAnnouncement, AnnouncementFound)
find_wanted_status = Effect("find_wanted_status", FindWantedStatus, WantedStatusFound)
find_peers = Effect("find_peers", FindPeers, PeersFound)
find_node_runs = Effect("find_node_runs", FindNodeRuns, NodeRunsFound)
bill_orphaned_runs = Effect("bill_orphaned_runs", BillOrphanedRuns, Done)
notify_jobs = Effect("notify_jobs", NotifyJobs, JobsNotified, schedule_to_close_s=120)
"""At most two minutes, because the node has no watch while its jobs are notified."""

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
"""The first connection: two attempts, which the node's lifecycle repeats; in between it records
why the node is unreachable."""

find_node_again = Effect(
    "reach_node",
    ReachNode,
    NodeReached,
    queue=None,
    start_to_close_s=20,
    schedule_to_close_s=3600,
    retry_first_s=1,
    retry_max_s=15,
    non_retryable=(HOST_KEY_MISMATCH, PROTOCOL_VIOLATION),
)
"""The reconnection to a known node: attempts for an hour, which the node's lifecycle repeats.
Another host key fails at once, and so does a protocol violation."""

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
"""The first connection to a new machine, whose SSH server starts when the machine has booted."""

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
"""Two attempts after a failed watch, before the node becomes offline: the fault may be ours."""

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
"""An inspection of a node in use, with a shorter limit, because the node may have no watch
meanwhile."""

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
switch_idle_workload = Effect(
    "switch_idle_workload",
    SwitchIdleWorkload,
    IdleWorkloadSwitched,
    queue=None,
    start_to_close_s=30,
    schedule_to_close_s=120,
    attempts=3,
)
show_node_status = Effect(
    "show_node_status",
    ShowNodeStatus,
    Done,
    queue=None,
    start_to_close_s=20,
    schedule_to_close_s=45,
    attempts=2,
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
"""At most 15 s until a worker process takes it: a removal must not wait for a site without one."""

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
"""One watch for each node. It fails with the type of the loss; the node's lifecycle then probes.

When a worker process dies or stops, Temporal retries its watches on another one. The nodes are
healthy then, and a probe by the lifecycles of 250 nodes took half a minute.
"""
