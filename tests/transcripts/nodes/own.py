"""Nodes with a machine of their owner."""

from temporalio.exceptions import ApplicationError

from tests.transcripts.nodes.whole_node import (
    ANSWERS,
    DAY_S,
    HARDWARE,
    NO_ROUTE,
    WholeNode,
    after,
    in_turn,
    on_it,
    these,
)
from tests.transcripts.whole import Answer, always, broken, fails, slowly
from workflows.contracts.errors import HOST_KEY_MISMATCH, LOGIN_REFUSED, PROTOCOL_VIOLATION, REFUSED
from workflows.contracts.hosts import Announcement
from workflows.contracts.leases import MachineLost
from workflows.contracts.lifecycles import Refresh
from workflows.contracts.nodes import (
    EarlierRun,
    Gpu,
    LeavingRun,
    NodeAddress,
    Preparation,
    ProtocolViolation,
    Reboot,
    RunSeen,
)
from workflows.contracts.removals import Removal
from workflows.contracts.statuses import NodeStatus
from workflows.effects.nodes import (
    AnnouncementFound,
    NodeInspected,
    NodePrepared,
    NodeReached,
    OrphanedRunsEnded,
    PeersFound,
    WantedStatusFound,
)

ELSEWHERE = AnnouncementFound(
    announcement=Announcement(minion_id="SHA256:key", host="10.0.0.9", port=2222, user="admin")
)
ACTIVE = WantedStatusFound(status=NodeStatus.ACTIVE, revision=3)
RESTED = WantedStatusFound(status=NodeStatus.MAINTENANCE, revision=4)
LIES = ApplicationError("no such answer", type=PROTOCOL_VIOLATION, non_retryable=True)
ANOTHER = ApplicationError("another key", type=HOST_KEY_MISMATCH, non_retryable=True)
REFUSES = ApplicationError("no login", type=LOGIN_REFUSED, non_retryable=True)
BROKEN = ApplicationError("no disk", type=REFUSED, non_retryable=True)
VIOLATED = ProtocolViolation(minion_id="SHA256:key", reason="it lies")
UNLIKE = HARDWARE.model_copy(
    update={"gpus": (Gpu(index=0, name="A", uuid="a"), Gpu(index=1, name="B", uuid="b"))}
)
FORCED = Removal(force=True, requested_by="usr-1")


def is_added_and_waits_for_a_person() -> list[str]:
    return WholeNode(exclusive=True).play()


def is_activated_and_put_in_maintenance() -> list[str]:
    node = WholeNode(in_turn("find_wanted_status", None, *these(ACTIVE, ACTIVE, RESTED)))
    return node.play((100, "wake", None), (200, "wake", None), (300, "wake", None), most_s=400)


def waits_for_its_announcement() -> list[str]:
    node = WholeNode(in_turn("find_announcement", None, *these(ELSEWHERE)), host=None)
    return node.play((5 * DAY_S, "wake", None), most_s=5 * DAY_S + 100)


def waits_for_its_announcement_in_vain() -> list[str]:
    none = in_turn("find_announcement", None, None, *these(ELSEWHERE))
    node = WholeNode(none, host=None)
    return node.play((DAY_S, "wake", None), (8 * DAY_S, "wake", None), most_s=8 * DAY_S + 100)


def is_not_reached_at_first() -> list[str]:
    down = fails(NO_ROUTE)
    node = WholeNode(
        in_turn("reach_node", down, down, down), always("find_announcement", ELSEWHERE)
    )
    return node.play((20, "wake", None), most_s=400)


def is_not_reached_within_the_hour() -> list[str]:
    return WholeNode(broken(NO_ROUTE, "reach_node")).play((9000, "wake", None), most_s=10_000)


def is_another_machine() -> list[str]:
    node = WholeNode(in_turn("reach_node", fails(ANOTHER)))
    return node.play((100, "wake", None), most_s=200)


def refuses_the_login() -> list[str]:
    node = WholeNode(broken(REFUSES, "reach_node"))
    return node.play((100, "remove", Removal()), most_s=200)


def misses_what_its_region_requires() -> list[str]:
    return WholeNode(relaxed_requirements=()).play((100, "remove", Removal()), most_s=200)


def misses_later_what_its_region_requires() -> list[str]:
    inspected = in_turn("inspect_node", None, *these(NodeInspected(hardware=UNLIKE)))
    relaxed = ("nvme-drives", "tpm-2", "sata-drives")
    node = WholeNode(inspected, always("find_wanted_status", ACTIVE), relaxed_requirements=relaxed)
    return node.play((100, "refresh", Refresh()), most_s=4000)


def cannot_be_prepared() -> list[str]:
    node = WholeNode(in_turn("prepare_node", fails(BROKEN)))
    return node.play((100, "wake", None), most_s=200)


def cannot_reach_its_peers() -> list[str]:
    peer = NodeAddress(node_id="nod-2", region_id="reg-1", host="10.0.0.2", port=22, minion_id="x")
    alone = NodePrepared(preparation=Preparation(unreachable_peers=("nod-2",)))
    node = WholeNode(
        always("find_peers", PeersFound(peers=(peer,))), always("prepare_node", alone),
        relaxed_requirements=("nvme-drives", "tpm-2", "sata-drives"),
    )  # fmt: skip
    return node.play(most_s=100)


def asks_for_a_restart() -> list[str]:
    asks = HARDWARE.model_copy(update={"reboot_required": True})
    again = NodeReached(boot_id="boot-2")
    node = WholeNode(
        always("inspect_node", NodeInspected(hardware=asks)),
        in_turn("reach_node", None, None, *these(again, again, again)), exclusive=True,
    )  # fmt: skip
    return node.play(most_s=100)


def asks_for_a_restart_that_never_comes() -> list[str]:
    asks = HARDWARE.model_copy(update={"reboot_required": True})
    return WholeNode(always("inspect_node", NodeInspected(hardware=asks)), exclusive=True).play(
        most_s=2000
    )


def finds_runs_that_nobody_claims() -> list[str]:
    seen = {"job_id": "job-1", "worker": 0, "attempt": 1, "elapsed_s": 7}
    ended, alive = (
        RunSeen(run_id="job-1-0-1", **seen),
        RunSeen(run_id="job-1-0-2", alive="x", **seen),
    )
    found = OrphanedRunsEnded(
        runs=(ended, alive), earlier_runs=(EarlierRun(name="nod-0/job-3-0-1", alive="y"),)
    )
    leaving = on_it("job-7", leaving=(LeavingRun(run_id="job-1-0-2", gpu_indices=(0, 1)),))
    node = WholeNode(
        in_turn("end_orphaned_runs", *these(found, found)),
        in_turn("find_node_runs", *these(leaving, leaving)),
        always("find_wanted_status", ACTIVE),
    )
    return node.play((20, "wake", None), most_s=1000)


def cannot_end_a_run_that_is_leaving() -> list[str]:
    alive = RunSeen(run_id="j-0-1", job_id="j", worker=0, attempt=1, elapsed_s=7, alive="x")
    node = WholeNode(
        always("end_orphaned_runs", OrphanedRunsEnded(runs=(alive,))),
        always("find_node_runs", on_it(leaving=(LeavingRun(run_id="j-0-1"),))),
        in_turn("find_wanted_status", *these(ACTIVE)),
    )
    return node.play((5000, "remove", Removal()), most_s=6000)


def cannot_list_its_runs() -> list[str]:
    node = WholeNode(
        in_turn("list_runs", fails(BROKEN)), in_turn("inspect_node", None, fails(BROKEN))
    )
    return node.play(most_s=4000)


def cannot_end_its_orphans_while_it_serves() -> list[str]:
    node = WholeNode()
    node.changes(100, broken(BROKEN, "end_orphaned_runs"))
    return node.play((200, "refresh", Refresh()), most_s=300)


def is_told_of_what_is_not_its_own() -> list[str]:
    lost = MachineLost(lease_id="lea-1", reason="it was preempted")
    return WholeNode().play((100, "machine_lost", lost), (200, "wake", None), (200, "wake", None),
                            most_s=300)  # fmt: skip


def is_restarted_by_a_person() -> list[str]:
    node = WholeNode(in_turn("find_node_runs", None, *these(on_it("job-7"), on_it("job-7"))))
    return node.play((100, "reboot", Reboot()), (200, "reboot", Reboot(force=True)), most_s=300)


def cannot_be_restarted() -> list[str]:
    return WholeNode(broken(BROKEN, "reboot_node")).play((100, "reboot", None), most_s=300)


def is_removed() -> list[str]:
    return WholeNode(always("find_wanted_status", ACTIVE)).play((100, "remove", Removal()))


def keeps_its_jobs_from_a_removal() -> list[str]:
    jobs = these(*[on_it("job-7")] * 4)
    node = WholeNode(in_turn("find_node_runs", None, *jobs), always("find_wanted_status", ACTIVE))
    return node.play((100, "remove", Removal()), (200, "remove", FORCED), most_s=900)


def is_removed_and_its_jobs_do_not_leave() -> list[str]:
    node = WholeNode(always("find_node_runs", on_it("job-7")), broken(BROKEN, "restore_logins"))
    return node.play((100, "remove", FORCED.model_copy(update={"reschedules": True})))


def is_removed_before_it_is_reached() -> list[str]:
    return WholeNode(_slowly_reached()).play((100, "remove", Removal()))


def _slowly_reached() -> dict[str, Answer]:
    return {"reach_node": slowly(ANSWERS["reach_node"], 600)}


def is_not_believed_any_more() -> list[str]:
    node = WholeNode(
        after("watch_node", 1000, fails(LIES)),
        in_turn("find_node_runs", None, *these(on_it("job-7"), on_it("job-7"), on_it("job-7"))),
        in_turn("find_wanted_status", *these(ACTIVE, RESTED)),
    )
    return node.play((9000, "wake", None), most_s=9100)


def is_said_to_lie_by_a_job() -> list[str]:
    other = VIOLATED.model_copy(update={"minion_id": "SHA256:other"})
    return WholeNode(in_turn("find_wanted_status", *these(ACTIVE))).play(
        (100, "protocol_violated", other),
        (200, "protocol_violated", VIOLATED),
        (300, "remove", Removal()),
        most_s=400,
    )


def lies_while_it_is_inspected() -> list[str]:
    return WholeNode(broken(LIES, "inspect_node")).play((100, "wake", None), most_s=200)
