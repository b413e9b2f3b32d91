"""Offers are remembered from one look to the next, and never longer than they are true."""

from sqlmodel import Session

from activities.db import tables
from activities.db.session import Database
from activities.placement.allocations import release_allocations
from activities.placement.inventory import inventory, node_offers
from tests.activities.placement.rows import add_gpu_node
from tests.activities.rows import NOW, add_job, add_payer, add_region, allocate
from workflows.contracts.placement import NodeOffer


def offer_of(session: Session, node_id: str) -> NodeOffer:
    return next(offer for offer in node_offers(session, NOW) if offer.node_id == node_id)


def test_an_offer_follows_all_that_changes_without_a_step_of_its_node(migrated: Database) -> None:
    with migrated.write() as session:
        account = add_payer(session)
        region = add_region(session, account)
        node_id = add_gpu_node(session, region).id
        quiet = add_gpu_node(session, region, "n2").id
        before, unchanged = offer_of(session, node_id), offer_of(session, quiet)

        job = add_job(session, account)
        allocate(session, job, session.get_one(tables.Node, node_id), gpu=1)
        session.flush()
        held = offer_of(session, node_id)
        assert [slot.index for slot in held.gpus if not slot.free] == [1]
        assert held.free_cpu_count == before.free_cpu_count - 2
        assert offer_of(session, quiet) is unchanged

        release_allocations(session, job.id, NOW)
        session.flush()
        assert offer_of(session, node_id) == before

        region.allows_apt_packages = True
        session.flush()
        assert offer_of(session, node_id).allows_apt_packages
        assert not before.allows_apt_packages

        node = session.get_one(tables.Node, node_id)
        node.preparation = {
            "no_run_root_reason": "overlay: no such device",
            "no_confinement_reason": "no tmpfs",
            "no_attestation_reason": "is no SEV-SNP",
        }
        node.sequence += 1
        session.flush()
        assert not offer_of(session, node_id).has_run_roots
        assert before.has_run_roots
        assert offer_of(session, node_id).no_confinement_reason == "no tmpfs"
        assert offer_of(session, node_id).no_attestation_reason == "is no SEV-SNP"
        assert (before.no_confinement_reason, before.no_attestation_reason) == (None, None)

        region.status = "offline"
        session.flush()
        assert not offer_of(session, node_id).active
        assert not offer_of(session, quiet).active


def test_an_offer_follows_each_step_of_its_node(migrated: Database) -> None:
    with migrated.write() as session:
        region = add_region(session, add_payer(session))
        node = add_gpu_node(session, region)
        assert len(offer_of(session, node.id).gpus) == 4
        node.sequence += 1
        node.hardware = {**(node.hardware or {}), "gpus": []}
        session.flush()
        assert offer_of(session, node.id).gpus == ()
        node.status = "archived"
        session.flush()
        assert node.id not in {offer.node_id for offer in node_offers(session, NOW)}


def test_what_the_rules_look_at_is_made_anew_only_when_something_has_changed(
    migrated: Database,
) -> None:
    with migrated.write() as session:
        region = add_region(session, add_payer(session))
        add_gpu_node(session, region)
        before = inventory(session, NOW)
        assert inventory(session, NOW) is before
        add_gpu_node(session, region, "n2")
        assert len(list(inventory(session, NOW).regions[0].machines())) == 2
