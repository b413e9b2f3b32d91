"""Nodes whose machines are leased for them, each by a real lease on a cloud that keeps state."""

from datetime import timedelta

import pytest
from temporalio.exceptions import ApplicationError

from tests.waiting import eventually
from tests.workflows.conftest import Stage
from tests.workflows.fake_cloud import PRICE_MICROCREDITS
from tests.workflows.nodes.test_node_lifecycle import Handle, reaches
from workflows.contracts import errors
from workflows.contracts.base import Contract
from workflows.contracts.leases import LeaseRelease, MachineLost
from workflows.contracts.machines import MachineClaim, MachineOffer, MachineSpec
from workflows.contracts.nodes import Gpu, Hardware, NodeProgress
from workflows.contracts.removals import Removal
from workflows.contracts.statuses import NodeStatus, NodeType, ProviderKind
from workflows.nodes.node_lifecycle import NodeLifecycle
from workflows.primitives.journal import LEASE_ID

CLAIM = MachineClaim(
    provider_id="prv-1",
    provider_kind=ProviderKind.GCP,
    offers=(
        MachineOffer(zone="zone-a", machine_type="large", microcredits_per_hour=PRICE_MICROCREDITS),
    ),
    spec=MachineSpec(lifetime_s=3600),
)


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "workflows.nodes.leased_machine.RELEASE_POLL_MIN", timedelta(milliseconds=100)
    )
    monkeypatch.setattr(
        "workflows.nodes.leased_machine.RETRY_INTERVAL_MIN", timedelta(milliseconds=10)
    )


async def leased(
    stage: Stage,
    kind: NodeType = NodeType.PERMANENT,
    machine: MachineClaim = CLAIM,
    service: str = "compute",
) -> Handle:
    """A node that waits for its machine, as what was made for it is: nobody has activated it."""
    stage.world.machines["nod-1"].hardware = Hardware(cpu_count=4, memory_bytes=2**33)
    return await stage.node(
        type=kind,
        machine=machine,
        services=(service,),
        host=None,
        minion_id="",
        relaxed_requirements=(),
    )


def statuses(stage: Stage) -> list[str]:
    return stage.world.statuses["nod-1"]


async def preempted(stage: Stage) -> None:
    """Its provider takes the machine, and its lease is told."""
    (lease_id,) = list(stage.world.leases)[-1:]
    stage.world.cloud.end(f"baseload-{lease_id}")
    await stage.client.get_workflow_handle(f"lease/{lease_id}").signal("refresh")


async def test_a_leased_node_is_active_by_itself_and_its_removal_leaves_no_machine(
    stage: Stage,
) -> None:
    handle = await leased(stage)
    await reaches(stage, NodeStatus.ACTIVE)
    assert statuses(stage) == ["connecting", "inspecting", "preparing", "active"]
    assert stage.world.hosts["nod-1"] == "10.0.0.1"
    assert len(stage.world.cloud.machines) == 1
    (lease_id,) = stage.world.leases
    assert (await handle.describe()).typed_search_attributes.get(LEASE_ID) == lease_id

    await handle.signal(NodeLifecycle.remove, Removal())
    assert (await handle.result()).status == "archived"
    assert (await handle.describe()).typed_search_attributes.get(LEASE_ID) is None
    assert stage.world.cloud.machines == {}
    assert stage.world.rows[lease_id].status == "released"


@pytest.mark.parametrize("service", ["storage", "compute"])
async def test_the_storage_node_of_a_region_in_a_cloud_serves_its_cache_and_no_other_does(
    stage: Stage, service: str
) -> None:
    await leased(stage, service=service)
    await reaches(stage, NodeStatus.ACTIVE)
    told = stage.world.told["nod-1"]["node.prepared"]
    assert ("serves the region cache at 10.0.0.1:8710" in told) == (service == "storage")


async def test_a_node_whose_machine_is_refused_says_why_and_costs_nothing(stage: Stage) -> None:
    stage.world.cloud.short.add("zone-a")
    handle = await leased(stage)
    await reaches(stage, NodeStatus.FAILED)
    report = await handle.query(NodeLifecycle.status)
    assert "zone-a has none left" in str(report.status_reason)
    assert not stage.world.cloud.made
    await handle.signal(NodeLifecycle.remove, Removal())
    assert (await handle.result()).status == "archived"


async def test_what_was_made_for_one_job_is_over_when_its_machine_is_refused(stage: Stage) -> None:
    stage.world.cloud.short.add("zone-a")
    handle = await leased(stage, NodeType.EPHEMERAL)
    report = await handle.result()
    assert report.status == NodeStatus.ARCHIVED
    assert "zone-a has none left" in str(report.status_reason)
    assert "zone-a has none left" in stage.world.withdrawn[0]


async def test_what_was_made_for_one_job_is_over_when_its_machine_is_taken(stage: Stage) -> None:
    handle = await leased(stage, NodeType.EPHEMERAL)
    await reaches(stage, NodeStatus.ACTIVE)
    await preempted(stage)
    report = await handle.result()
    assert (report.status, report.status_reason) == (
        NodeStatus.ARCHIVED, "the provider says that the machine is gone",
    )  # fmt: skip
    assert len(stage.world.leases) == 1
    assert stage.world.cloud.machines == {}


async def test_a_node_hears_of_a_release_that_an_earlier_run_of_it_has_asked_for_late(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The earlier run was canceled in Temporal, and the lease does not notify who releases it."""
    interval = "workflows.nodes.leased_machine.POLL_INTERVAL_MIN"
    monkeypatch.setattr(interval, timedelta(milliseconds=100))
    await leased(stage)
    await reaches(stage, NodeStatus.ACTIVE)
    (lease_id,) = stage.world.leases
    late = LeaseRelease(reason="its node is being removed", by_holder=True)
    await stage.client.get_workflow_handle(f"lease/{lease_id}").signal("release", late)
    await eventually(lambda: not stage.world.cloud.machines, "the machine is terminated")
    machine = stage.world.machines["nod-1"]
    machine.reachable = False
    machine.changed.set()
    await reaches(stage, NodeStatus.OFFLINE)
    await eventually(lambda: len(stage.world.leases) == 2, "another is leased")
    machine.reachable = True
    await reaches(stage, NodeStatus.ACTIVE)
    told = stage.world.told["nod-1"]["node.machine-lost"]
    assert told == f"{lease_id} is released: its node is being removed"


async def test_a_permanent_node_whose_machine_is_taken_gets_another(stage: Stage) -> None:
    handle = await leased(stage)
    await reaches(stage, NodeStatus.ACTIVE)
    await preempted(stage)
    await eventually(lambda: len(stage.world.leases) == 2, "another is leased")
    await reaches(stage, NodeStatus.ACTIVE)
    assert "offline" in statuses(stage)
    assert (
        stage.world.told["nod-1"]["node.machine-lost"]
        == "the provider says that the machine is gone"
    )
    assert len(stage.world.cloud.machines) == 1

    older = next(iter(stage.world.leases))
    await handle.signal("machine_lost", MachineLost(lease_id=older, reason="late news"))
    await handle.signal(NodeLifecycle.remove, Removal())
    assert (await handle.result()).status == "archived"
    assert "late news" not in str(stage.world.rows["nod-1"])
    assert stage.world.cloud.machines == {}


async def test_a_node_waits_for_the_drivers_of_its_gpus(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workflows.hosts.inspection.DRIVERS_POLL_MIN", timedelta(milliseconds=50))
    offer = CLAIM.offers[0].model_copy(update={"gpu_type": "T4", "gpu_count": 1})
    await leased(stage, machine=CLAIM.model_copy(update={"offers": (offer,)}))
    await eventually(lambda: "node.incomplete" in stage.world.events["nod-1"], "it is told")
    assert stage.world.told["nod-1"]["node.incomplete"] == "was created with 1×T4, has none"
    assert statuses(stage)[-1] == "inspecting"
    machine = stage.world.machines["nod-1"]
    gpus = (Gpu(index=0, name="Tesla T4", uuid="GPU-0"),)
    machine.hardware = machine.hardware.model_copy(update={"gpus": gpus})
    await reaches(stage, NodeStatus.ACTIVE)


async def test_a_node_that_is_to_run_containers_waits_for_podman(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workflows.hosts.inspection.DRIVERS_POLL_MIN", timedelta(milliseconds=50))
    spec = CLAIM.spec.model_copy(update={"containers": True})
    await leased(stage, machine=CLAIM.model_copy(update={"spec": spec}))
    await eventually(lambda: "node.incomplete" in stage.world.events["nod-1"], "it is told")
    assert stage.world.told["nod-1"]["node.incomplete"].startswith("was created with podman, has")
    assert statuses(stage)[-1] == "inspecting"
    machine = stage.world.machines["nod-1"]
    runtimes = (*machine.hardware.runtimes, "podman")
    machine.hardware = machine.hardware.model_copy(update={"runtimes": runtimes})
    await reaches(stage, NodeStatus.ACTIVE)


async def test_a_node_without_the_gpus_it_was_made_for_gives_its_machine_back(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workflows.hosts.inspection.DRIVERS_LIMIT", timedelta(0))
    offer = CLAIM.offers[0].model_copy(update={"gpu_type": "T4", "gpu_count": 2})
    await leased(stage, machine=CLAIM.model_copy(update={"offers": (offer,)}))
    await reaches(stage, NodeStatus.FAILED)
    await eventually(lambda: stage.world.cloud.machines == {}, "its machine is gone")
    reason = str(stage.world.rows["nod-1"].status_reason)
    assert reason.endswith("was created with 2×T4, has none")


async def test_a_strangers_machine_that_is_not_as_offered_is_given_back_at_once_and_remembered(
    stage: Stage,
) -> None:
    offer = CLAIM.offers[0].model_copy(
        update={"gpu_type": "T4", "gpu_count": 1, "provider_offer_id": "4711", "host": "815"}
    )
    rented = {"offers": (offer,), "provider_kind": ProviderKind.VASTAI}
    handle = await leased(stage, NodeType.EPHEMERAL, CLAIM.model_copy(update=rented))
    assert (await handle.result()).status == "archived"
    assert stage.world.cloud.machines == {}
    assert "preparing" not in statuses(stage)
    assert "node.incomplete" not in stage.world.events["nod-1"], "it waits for nothing"
    said = stage.world.told["nod-1"]["node.host-distrusted"]
    words = "host 815: its machine was not what was offered: was created with 1×T4, has none"
    assert stage.world.cloud.remembered == {"host/815": words}
    assert said.startswith(words.replace("815:", "815 of vastai:"))
    assert "not rented before" in said


async def refused(_: object) -> None:
    raise ApplicationError("no database", non_retryable=True)


async def test_a_host_that_cannot_be_remembered_is_left_all_the_same(stage: Stage) -> None:
    stage.world.faults["remember_shortage"].append(refused)
    offer = CLAIM.offers[0].model_copy(
        update={"gpu_type": "T4", "gpu_count": 1, "provider_offer_id": "4711"}
    )
    rented = {"offers": (offer,), "provider_kind": ProviderKind.RUNPOD}
    handle = await leased(stage, NodeType.EPHEMERAL, CLAIM.model_copy(update=rented))
    assert (await handle.result()).status == "archived"
    assert stage.world.cloud.machines == {}
    assert "could not be remembered" in stage.world.told["nod-1"]["node.host-distrusted"]


async def test_a_node_taken_up_again_gives_back_the_machine_that_it_has(stage: Stage) -> None:
    first = await leased(stage)
    await reaches(stage, NodeStatus.ACTIVE)
    await first.terminate("from outside")
    (lease_id,) = stage.world.leases
    resumed_from = NodeProgress(
        sequence=stage.world.rows["nod-1"].sequence,
        status=NodeStatus.ACTIVE,
        resume_status=NodeStatus.ACTIVE,
        host="10.0.0.1",
        port=22,
        user="root",
        root=None,
        minion_id="SHA256:key",
        lease_id=lease_id,
    )
    again = await stage.node(machine=CLAIM, minion_id="", host=None, resumed_from=resumed_from)
    await again.signal(NodeLifecycle.remove, Removal())
    assert (await again.result()).status == "archived"
    assert stage.world.cloud.machines == {}
    assert list(stage.world.leases) == [lease_id]


async def test_a_node_that_has_forgotten_its_lease_is_not_gone_before_its_machine(
    stage: Stage,
) -> None:
    stage.world.cloud.silent.add("zone-a")
    first = await leased(stage)
    await eventually(lambda: sum(stage.world.cloud.made.values()) == 1, "it is made")
    await first.terminate("from outside")
    sequence = stage.world.rows["nod-1"].sequence
    again = await stage.node(machine=CLAIM, minion_id="", host=None, sequence=sequence)
    await again.signal(NodeLifecycle.remove, Removal())
    assert (await again.result()).status == "archived"
    assert stage.world.cloud.machines == {}
    assert len(stage.world.leases) == 1


async def test_a_machine_that_a_person_has_ended_is_made_again_when_a_person_asks(
    stage: Stage,
) -> None:
    handle = await leased(stage)
    await reaches(stage, NodeStatus.ACTIVE)
    (lease_id,) = stage.world.leases
    ended = LeaseRelease(reason="killed by ada", by_person=True)
    await stage.client.get_workflow_handle(f"lease/{lease_id}").signal("release", ended)
    await reaches(stage, NodeStatus.FAILED)
    assert stage.world.rows["nod-1"].status_reason == "killed by ada"
    await stage.want(handle, "active")
    await reaches(stage, NodeStatus.ACTIVE)
    assert len(stage.world.leases) == 2
    assert len(stage.world.cloud.machines) == 1


async def test_a_node_that_cannot_be_prepared_gives_its_machine_back(stage: Stage) -> None:
    async def refuse(_: Contract) -> None:
        raise ApplicationError("no room on its disk", type=errors.REFUSED)

    stage.world.faults["prepare_node"].append(refuse)
    await leased(stage)
    await reaches(stage, NodeStatus.FAILED)
    await eventually(lambda: stage.world.cloud.machines == {}, "its machine is gone")
    assert stage.world.rows["nod-1"].status_reason == "no room on its disk"


async def test_a_node_removed_while_its_machine_is_made_leaves_none(stage: Stage) -> None:
    stage.world.cloud.silent.add("zone-a")
    handle = await leased(stage)
    await eventually(lambda: sum(stage.world.cloud.made.values()) == 1, "it is made")
    await handle.signal(NodeLifecycle.remove, Removal())
    assert (await handle.result()).status == "archived"
    assert stage.world.withdrawn == ["the node is being removed"]
    assert stage.world.cloud.machines == {}
