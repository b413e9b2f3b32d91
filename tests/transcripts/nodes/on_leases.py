"""Nodes with leased machines."""

from datetime import timedelta

from tests.simulation.engine.engine import Limits
from tests.transcripts.nodes.own import ACTIVE, BROKEN, FORCED, LIES, RESTED, VIOLATED
from tests.transcripts.nodes.whole_node import (
    ANSWERS,
    DAY_S,
    HARDWARE,
    NO_ROUTE,
    READY,
    WholeNode,
    after,
    in_turn,
    leased,
    on_it,
    these,
)
from tests.transcripts.whole import Answer, always, broken, fails
from workflows.contracts.leases import LeaseEnding, MachineLost
from workflows.contracts.removals import Removal
from workflows.contracts.statuses import LeaseStatus, NodeStatus, NodeType
from workflows.effects.leases import LeaseAcquired, LeaseReleased

WAITS = LeaseAcquired(lease_id="lea-1", status=LeaseStatus.CREATING)
ENDED = LeaseAcquired(lease_id="lea-1", status=LeaseStatus.REFUSED, reason="no offer is left")
LOST = MachineLost(lease_id="lea-1", reason="it was preempted")
OTHER = MachineLost(lease_id="lea-0", reason="it was preempted")
LEFT = LeaseReleased(left=("lea-1",))
TWO_JOBS = these(on_it("job-7", "job-8"), on_it("job-7"), on_it("job-7"))


def _with_jobs() -> dict[str, Answer]:
    """Jobs that leave one after the other once they are asked to."""
    return in_turn("find_node_runs", None, *TWO_JOBS)


def _ending(node: WholeNode, lease_id: str = "lea-1") -> LeaseEnding:
    ends_at = node.engine.now() + timedelta(seconds=5000)
    return LeaseEnding(lease_id=lease_id, reason="its lease ends", ends_at=ends_at)


def waits_for_its_machine() -> list[str]:
    old = READY.model_copy(update={"lease_id": "lea-0"})
    node = leased(always("acquire_lease", WAITS))
    return node.play((100, "machine_ready", old), (3000, "machine_ready", READY), most_s=3100)


def finds_its_machine_ready_by_a_poll() -> list[str]:
    return leased(in_turn("acquire_lease", *these(WAITS, WAITS))).play(most_s=200)


def waits_for_its_machine_in_vain() -> list[str]:
    node = leased(
        always("acquire_lease", WAITS), in_turn("find_wanted_status", None, *these(ACTIVE))
    )
    return node.play((DAY_S, "wake", None), (DAY_S + 50, "wake", None), most_s=DAY_S + 200)


def gets_no_machine() -> list[str]:
    node = leased(
        in_turn("acquire_lease", *these(ENDED)),
        in_turn("find_wanted_status", *these(RESTED, ACTIVE)),
    )
    return node.play((600, "wake", None), (900, "wake", None), most_s=1000)


def loses_its_machine_before_it_is_ready() -> list[str]:
    node = leased(always("acquire_lease", WAITS))
    return node.play((100, "machine_lost", OTHER), (200, "machine_lost", LOST), most_s=300)


def loses_its_machine_and_gets_another() -> list[str]:
    node = leased(_with_jobs())
    ended = LOST.model_copy(update={"ended_at": node.engine.now() + timedelta(seconds=90)})
    return node.play((90, "machine_lost", OTHER), (100, "machine_lost", ended), most_s=400)


def loses_one_machine_after_the_other() -> list[str]:
    times = (100, 1000, 3000, 9000)
    return leased().play(*((at, "machine_lost", LOST) for at in times), most_s=14_000)


def its_machine_is_ended_by_a_person() -> list[str]:
    node = leased(_with_jobs(), in_turn("find_wanted_status", None, *these(ACTIVE)))
    lost = LOST.model_copy(update={"by_person": True})
    return node.play((100, "machine_lost", lost), (900, "wake", None), most_s=1000)


def leaves_before_the_end_of_its_lease() -> list[str]:
    node = leased(_with_jobs())
    early, late = _ending(node, "lea-0"), _ending(node)
    return node.play(
        (90, "lease_ending", early), (100, "lease_ending", late), (101, "lease_ending", late),
        most_s=600,
    )  # fmt: skip


def loses_its_machine_while_its_jobs_leave() -> list[str]:
    node = leased(always("find_node_runs", on_it("job-7")))
    return node.play((100, "lease_ending", _ending(node)), (200, "machine_lost", LOST), most_s=3000)


def its_machine_goes_slowly() -> list[str]:
    node = leased({"release_lease": lambda _: LEFT})
    node.changes(6000, ANSWERS)
    return node.play((100, "machine_lost", LOST), most_s=9000)


def serves_one_job_and_loses_its_machine() -> list[str]:
    node = leased(_with_jobs(), type=NodeType.EPHEMERAL)
    return node.play((100, "machine_lost", LOST))


def serves_one_job_and_gets_no_machine() -> list[str]:
    return leased(in_turn("acquire_lease", *these(ENDED)), type=NodeType.EPHEMERAL).play()


def serves_one_job_and_is_removed() -> list[str]:
    return leased(type=NodeType.EPHEMERAL).play((100, "remove", Removal(requested_by="job-7")))


def is_the_storage_of_its_region() -> list[str]:
    node = leased(services=("storage",))
    return node.play((100, "lease_ending", _ending(node)), (200, "remove", FORCED))


def lies_and_has_a_leased_machine() -> list[str]:
    node = leased(_with_jobs(), after("watch_node", 100, fails(LIES)),
                  in_turn("find_wanted_status", None, *these(ACTIVE)))  # fmt: skip
    return node.play((900, "wake", None), most_s=1000)


def is_said_to_lie_and_has_a_leased_machine() -> list[str]:
    node = leased(type=NodeType.EPHEMERAL)
    return node.play((100, "protocol_violated", VIOLATED))


def cannot_be_prepared_and_has_a_leased_machine() -> list[str]:
    return leased(in_turn("prepare_node", fails(BROKEN))).play(most_s=100)


def is_removed_while_its_machine_goes() -> list[str]:
    node = leased({"release_lease": lambda _: LEFT})
    node.changes(600, ANSWERS)
    return node.play((100, "machine_lost", LOST), (300, "remove", FORCED))


def is_removed_with_its_jobs() -> list[str]:
    return leased(always("find_node_runs", on_it("job-7"))).play((100, "remove", FORCED))


def is_removed_and_its_jobs_go_on_elsewhere() -> list[str]:
    node = leased(_with_jobs())
    return node.play((100, "remove", Removal(force=True, requested_by="x", reschedules=True)))


def is_offline_and_its_lease_ends() -> list[str]:
    node = leased(after("watch_node", 100, fails(NO_ROUTE)))
    node.changes(50, broken(NO_ROUTE, "reach_node"))
    return node.play((400, "lease_ending", _ending(node)), most_s=600)


def lacks_a_part_of_its_machine() -> list[str]:
    offer = READY.offer.model_copy(update={"gpu_type": "l4", "gpu_count": 1})
    ready = WAITS.model_copy(
        update={"status": LeaseStatus.READY, "ready": READY.model_copy(update={"offer": offer})}
    )
    assert not HARDWARE.gpus
    return leased(always("acquire_lease", ready)).play(most_s=2500)


def is_adopted_while_its_machine_goes() -> list[str]:
    node = leased(in_turn("release_lease", *these(LEFT)))
    node.adopted(
        NodeStatus.OFFLINE, lease_id="lea-1", releasing="it was preempted", tries_left=2,
        minion_id="SHA256:key",
    )  # fmt: skip
    return node.play(most_s=600)


def is_adopted_after_the_loss_of_its_machine() -> list[str]:
    node = leased()
    node.adopted(NodeStatus.ACTIVE, lease_id="lea-1", lost=LOST, tries_left=3)
    return node.play(most_s=300)


def is_adopted_after_its_lease_has_failed() -> list[str]:
    node = leased(in_turn("find_wanted_status", *these(ACTIVE)))
    node.adopted(NodeStatus.FAILED, lease_id="lea-1", reason="no offer is left")
    return node.play((600, "wake", None), most_s=700)


def goes_on_with_its_machine_in_next_runs() -> list[str]:
    node = leased(
        in_turn("acquire_lease", *these(*[WAITS] * 9)), limits=Limits(suggested_events=60)
    )
    return node.play(most_s=9000)
