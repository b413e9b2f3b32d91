"""The rules of leases, burst nodes, storage nodes and shortages, as a person would state them."""

from datetime import timedelta

import pytest
from temporalio.exceptions import ApplicationError

from tests.simulation.contracts import Refused, Verb
from tests.simulation.rows_model import ModelRows
from tests.simulation.rows_model.scripted import Scripted, submission
from workflows.contracts.leases import MachineLost
from workflows.contracts.lifecycles import LeaseChanges, NodeChanges
from workflows.contracts.machines import MachineClaim
from workflows.effects.leases import AcquireLease, NotifyHolder, ReleaseLease
from workflows.effects.machines import FindShortages, RememberShortage
from workflows.effects.placement import WithdrawAllocations
from workflows.effects.regions import AddStorageNode, FindStorage, FindStorageClaim


@pytest.fixture
def region_id(script: Scripted, rows: ModelRows) -> str:
    """A healthy region in a cloud."""
    provider_id = rows.add_provider(script.account, "gcp")
    script.dispatch()
    script.step(provider_id, "ready")
    region_id = rows.add_region(provider_id, zone="us-central1-a")
    script.dispatch()
    script.step(region_id, "healthy")
    return region_id


def burst(script: Scripted, rows: ModelRows) -> tuple[str, str]:
    """A job that waits for a machine in the cloud, and its node."""
    asked = {"gpus": "T4:1", "memory_gib": 1}
    job_id = script.submit(submission(resources=asked, placement={"providers": ["gcp"]}))
    assert script.plan() == 1
    script.dispatch()
    return job_id, next(node.node_id for node in rows.nodes() if node.ephemeral)


def acquire(script: Scripted, rows: ModelRows, node_id: str, lease_id: str) -> AcquireLease:
    node = rows.tables.nodes[node_id]
    assert node.machine is not None
    return AcquireLease(
        lease_id=lease_id,
        node_id=node_id,
        region_id=node.region_id,
        machine=node.machine,
        at=script.temporal.now(),
    )


def test_a_node_is_made_for_a_job_and_leaves_with_it(
    script: Scripted, rows: ModelRows, region_id: str
) -> None:
    job_id, node_id = burst(script, rows)
    assert "placed" not in script.temporal.signals(f"job/{job_id}"), "its machine is being made"
    script.step(node_id, "active", NodeChanges(host="10.1.0.1", minion_id="SHA256:c"))
    script.plan()
    assert script.placement(job_id).assignments[0].ephemeral
    script.run(job_id)
    script.finish(job_id)
    script.dispatch()
    assert script.temporal.signals(f"node/{node_id}") == ["remove"]


def test_a_machine_that_fails_is_not_asked_for_again_at_once(
    script: Scripted, rows: ModelRows, region_id: str
) -> None:
    job_id, node_id = burst(script, rows)
    first = rows.tables.nodes[node_id].machine
    command = WithdrawAllocations(node_id=node_id, reason="no boot", at=script.temporal.now())
    assert script.call("withdraw_allocations", command).job_ids == (job_id,)
    assert script.plan() == 1
    second = list(rows.tables.nodes.values())[-1].machine
    assert first is not None
    assert second is not None
    scopes = {offer.scope for offer in first.offers}
    assert scopes.isdisjoint(offer.scope for offer in second.offers)


def test_a_node_has_one_live_lease_which_is_started_with_its_row(
    script: Scripted, rows: ModelRows, region_id: str
) -> None:
    _, node_id = burst(script, rows)
    for lease_id in ("lea-01", "lea-01", "lea-02"):
        command = acquire(script, rows, node_id, lease_id)
        assert script.call("acquire_lease", command).lease_id == "lea-01"
    script.dispatch()
    assert script.temporal.workflows["lease/lea-01"].execution.status == "running"
    script.step("lea-01", "refused", LeaseChanges())
    assert script.call("acquire_lease", acquire(script, rows, node_id, "lea-02")).lease_id == (
        "lea-02"
    )
    script.step(node_id, "removing")
    script.step("lea-02", "released", LeaseChanges())
    with pytest.raises(ApplicationError) as refusal:
        script.call("acquire_lease", acquire(script, rows, node_id, "lea-03"))
    assert refusal.value.type == "Refused"


def test_a_release_reaches_a_lease_whose_workflow_has_not_started_and_none_for_a_stale_node(
    script: Scripted, rows: ModelRows, region_id: str
) -> None:
    _, node_id = burst(script, rows)
    script.call("acquire_lease", acquire(script, rows, node_id, "lea-01"))
    script.step(node_id, "connecting")
    for sequence, waiting in ((0, 1), (1, 2), (1, 2)):
        command = ReleaseLease(
            node_id=node_id, reason="", at=script.temporal.now(), sequence=sequence
        )
        assert script.call("release_lease", command).left == ("lea-01",)
        assert rows.waiting_requests() == waiting
    script.dispatch()
    assert script.temporal.signals("lease/lea-01") == ["release"]


def test_a_holder_that_is_lost_is_to_be_notified_later(
    script: Scripted, rows: ModelRows, region_id: str
) -> None:
    _, node_id = burst(script, rows)
    script.call("acquire_lease", acquire(script, rows, node_id, "lea-01"))
    command = NotifyHolder(holder_id=node_id, lost=MachineLost(lease_id="lea-01", reason=""))
    assert script.call("notify_holder", command).is_there
    script.temporal.end(f"node/{node_id}")
    answer = script.call("notify_holder", command)
    assert (answer.is_there, answer.is_notified) == (True, False)
    script.step(node_id, "archived")
    assert script.call("notify_holder", command).is_notified


def test_a_shortage_is_remembered_for_ten_minutes(
    script: Scripted, rows: ModelRows, region_id: str
) -> None:
    provider_id = rows.tables.regions[region_id].provider_id
    command = RememberShortage(provider_id=provider_id, scope="zone/type/spot", reason="none")
    script.call("remember_shortage", command)
    asked = FindShortages(provider_id=provider_id)
    assert len(script.call("find_shortages", asked).shortages) == 1
    script.temporal.play(timedelta(minutes=11).total_seconds())
    assert script.call("find_shortages", asked).shortages == ()


def test_a_region_adds_one_storage_node_that_only_its_replacement_replaces(
    script: Scripted, rows: ModelRows, region_id: str
) -> None:
    claim: MachineClaim = script.call("find_storage_claim", FindStorageClaim(region_id=region_id))
    for node_id, replaces, expected in (
        ("nod-1", (), "nod-1"),
        ("nod-2", (), "nod-1"),
        ("nod-2", ("nod-1",), "nod-2"),
    ):
        command = AddStorageNode(
            region_id=region_id,
            node_id=node_id,
            machine=claim,
            replaces=replaces,
            at=script.temporal.now(),
        )
        assert script.call("add_storage_node", command).node_id == expected
    found = script.call("find_storage", FindStorage(region_id=region_id))
    assert [node.node_id for node in found.nodes] == ["nod-1", "nod-2"]
    with pytest.raises(Refused, match="is its region's storage"):
        rows.ask("nod-1", Verb.FORCE_REMOVE)
