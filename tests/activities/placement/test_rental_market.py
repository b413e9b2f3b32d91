"""Jobs that a marketplace has a machine for, by the offers that were read last."""

from datetime import timedelta

from sqlmodel import Session, select

from activities.billing.usage import post_worker_usage
from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import Database
from activities.placement.cloud_market import market
from activities.providers.rental_offers import keep_offers
from tests.activities.cloud_rows import add_cloud_region, add_shortage, ephemeral_nodes
from tests.activities.placement.rows import add_waiting_job
from tests.activities.placement.test_burst_nodes import payer, refusals, round_of_planning
from tests.activities.rows import GIB, NOW, add_payer
from workflows.contracts.billing import UsageRates, WorkerUsage
from workflows.contracts.job_submission import SubmittedEnvironment, SubmittedPlacement
from workflows.contracts.machines import MachineClaim, MachineOffer, RentalOffer
from workflows.contracts.placement import SpotPolicy

PRICE = 1_190_000


def rental(zone: str = "community", price: int = PRICE, gpu_type: str = "A100-80GB") -> RentalOffer:
    return RentalOffer(
        machine=MachineOffer(
            zone=zone,
            machine_type=f"{zone}-1",
            gpu_type=gpu_type,
            gpu_count=1,
            microcredits_per_hour=price,
            provider_offer_id="NVIDIA A100 80GB PCIe",
        ),
        cpu_count=4,
        memory_bytes=80 * GIB,
        disk_microcredits_per_gb_month=100_000,
    )


def add_marketplace(
    session: Session,
    account: tables.Account,
    *offers: RentalOffer,
    name: str = "runpod",
    kind: str = "runpod",
) -> tables.Region:
    """The implied region of a ready provider with these offers."""
    provider = tables.Provider(
        id=new_id("prv"),
        account_id=account.id,
        name=name,
        status="ready",
        kind=kind,
        checks=[],
        created_at=NOW,
        updated_at=NOW,
    )
    session.add(provider)
    session.flush()
    region = tables.Region(
        id=new_id("reg"),
        account_id=account.id,
        name=name,
        status="healthy",
        provider_id=provider.id,
        provider_kind=kind,
        relaxed_requirements=[],
        options={},
        created_at=NOW,
        updated_at=NOW,
    )
    session.add(region)
    session.flush()
    keep_offers(session, provider.id, offers, NOW)
    return region


def test_a_job_gets_the_cheapest_machine_of_the_marketplace_which_is_its_image(
    migrated: Database,
) -> None:
    with migrated.write() as session:
        account = payer(session)
        add_marketplace(session, account, rental("secure", 2 * PRICE), rental())
        job = add_waiting_job(
            session, account, environment=SubmittedEnvironment(image="runpod/base:1.0")
        )
    assert round_of_planning() == 1
    with migrated.read() as session:
        (node,) = ephemeral_nodes(session)
        claim = MachineClaim.model_validate(node.machine)
        (offer,) = claim.offers
        assert (offer.zone, offer.provider_offer_id) == ("community", "NVIDIA A100 80GB PCIe")
        assert PRICE < offer.microcredits_per_hour < PRICE + 10_000, "with its disk"
        assert (claim.spec.image, claim.spec.containers) == ("runpod/base:1.0", False)
        assert claim.spec.disk_size_gb == 10
        assert claim.price_cap_microcredits_per_hour == 10_000_000
        rates = session.get_one(tables.Job, job.id).rates
        assert rates is not None
        assert UsageRates.model_validate(rates["0"]).microcredits_per_hour == 0
        assert UsageRates.model_validate(rates["0"]).gpu_count == 1


def test_each_worker_is_to_rent_a_machine_of_its_own_where_an_offer_is_one(
    migrated: Database,
) -> None:
    asks = [rental(price=PRICE + number) for number in range(3)]
    for number, ask in enumerate(asks):
        own = ask.machine.model_copy(update={"provider_offer_id": str(number)})
        asks[number] = ask.model_copy(update={"machine": own})
    with migrated.write() as session:
        account = payer(session)
        region = add_marketplace(session, account, *asks)
        region.provider_kind = "vastai"
        session.get_one(tables.Provider, region.provider_id).kind = "vastai"
        add_waiting_job(session, account, workers=2)
    round_of_planning()
    with migrated.read() as session:
        claims = [MachineClaim.model_validate(node.machine) for node in ephemeral_nodes(session)]
    assert sorted(each.provider_offer_id for claim in claims for each in claim.offers) == ["0", "1"]


def test_the_ledger_charges_no_usage_fee_for_a_rented_machine(migrated: Database) -> None:
    with migrated.write() as session:
        account = payer(session)
        add_marketplace(session, account, rental())
        job = add_waiting_job(session, account)
    assert round_of_planning() == 1
    with migrated.write() as session:
        (held,) = session.exec(select(tables.Allocation))
        held.created_at = NOW
        usage = WorkerUsage(
            job_id=job.id, worker=0, attempt=held.attempt, started_at=NOW, through_s=3600
        )
        post_worker_usage(session, usage)
    with migrated.read() as session:
        row = session.get_one(tables.Job, job.id)
        assert (row.gpu_seconds, row.charged_microcredits) == (3600, 0)
        of_job = select(tables.LedgerTransaction).where(tables.LedgerTransaction.job_id == job.id)
        assert session.exec(of_job).all() == []


def test_a_job_without_an_image_gets_a_machine_of_the_usual_one(migrated: Database) -> None:
    with migrated.write() as session:
        account = payer(session)
        add_marketplace(session, account, rental())
        add_waiting_job(session, account)
    assert round_of_planning() == 1
    with migrated.read() as session:
        (node,) = ephemeral_nodes(session)
        assert MachineClaim.model_validate(node.machine).spec.image == ""


def test_clouds_and_marketplaces_are_ranked_together_by_price(migrated: Database) -> None:
    with migrated.write() as session:
        account = payer(session)
        cloud = add_cloud_region(session, account)
        rented = add_marketplace(session, account, rental(price=100_000))
        add_waiting_job(session, account)
    assert round_of_planning() == 1
    with migrated.read() as session:
        (node,) = ephemeral_nodes(session)
        assert node.region_id == rented.id
    with migrated.write() as session:
        keep_offers(
            session, rented.provider_id, [rental(price=9_000_000)], NOW + timedelta(minutes=5)
        )
        add_waiting_job(session, account)
    assert round_of_planning() == 1
    with migrated.read() as session:
        assert cloud.id in {node.region_id for node in ephemeral_nodes(session)}


def test_only_the_providers_own_account_is_offered_its_machines(migrated: Database) -> None:
    with migrated.write() as session:
        add_marketplace(session, payer(session), rental())
        add_waiting_job(session, add_payer(session, "other"))
    assert round_of_planning() == 0


def test_a_machine_that_the_marketplace_has_none_of_is_not_asked_for_again_soon(
    migrated: Database,
) -> None:
    with migrated.write() as session:
        account = payer(session)
        region = add_marketplace(session, account, rental("secure", 2 * PRICE), rental())
        add_shortage(session, region, rental().machine.scope, "no instances available")
        add_waiting_job(session, account)
    assert round_of_planning() == 1
    with migrated.read() as session:
        (node,) = ephemeral_nodes(session)
        (offer,) = MachineClaim.model_validate(node.machine).offers
        assert offer.zone == "secure"


def test_a_marketplace_sells_no_spot_machines(migrated: Database) -> None:
    with migrated.write() as session:
        account = payer(session)
        add_marketplace(session, account, rental())
        placement = SubmittedPlacement(spot=SpotPolicy.REQUIRED)
        job = add_waiting_job(session, account, placement=placement)
    assert round_of_planning() == 0
    with migrated.read() as session:
        assert [refusal["code"] for refusal in refusals(session, job)] == ["spot"]


def test_what_is_not_offered_any_more_is_not_chosen(migrated: Database) -> None:
    with migrated.write() as session:
        account = payer(session)
        region = add_marketplace(session, account, rental())
        assert market(session, NOW).offer(f"{region.id}/{rental().offer_id}")
        keep_offers(session, region.provider_id, [], NOW + timedelta(minutes=5))
        add_waiting_job(session, account)
    assert round_of_planning() == 0


def test_of_two_offers_with_one_id_the_cheaper_one_is_kept(migrated: Database) -> None:
    with migrated.write() as session:
        region = add_marketplace(session, payer(session), rental(), rental(price=PRICE - 1))
        found = market(session, NOW).offer(f"{region.id}/{rental().offer_id}")
        assert found.microcredits_per_hour == PRICE - 1


def test_a_gpu_that_the_catalogue_does_not_know_is_rented_by_any_spelling_where_it_is_sold(
    migrated: Database,
) -> None:
    with migrated.write() as session:
        account = payer(session)
        add_marketplace(session, account, rental(gpu_type="NVIDIA RTX 9999"))
        placement = SubmittedPlacement(providers=("runpod",))
        add_waiting_job(session, account, placement=placement, gpu_type="rtx-9999")
    assert round_of_planning() == 1
    with migrated.read() as session:
        (node,) = ephemeral_nodes(session)
        (offer,) = MachineClaim.model_validate(node.machine).offers
        assert offer.gpu_type == "NVIDIA RTX 9999"


def test_of_two_keys_the_one_that_the_job_prefers_is_used_whatever_the_other_costs(
    migrated: Database,
) -> None:
    with migrated.write() as session:
        account = payer(session)
        dear = add_marketplace(session, account, rental(price=3 * PRICE))
        cheap = add_marketplace(session, account, rental(), name="cheap")
        names = (dear.provider_id, cheap.provider_id)
        add_waiting_job(session, account, placement=SubmittedPlacement(providers=names))
    assert round_of_planning() == 1
    with migrated.write() as session:
        (node,) = ephemeral_nodes(session)
        assert node.region_id == dear.id
        keep_offers(session, dear.provider_id, [], NOW + timedelta(minutes=5))
        add_waiting_job(session, account, placement=SubmittedPlacement(providers=names))
    assert round_of_planning() == 1
    with migrated.read() as session:
        assert cheap.id in {node.region_id for node in ephemeral_nodes(session)}


def test_an_offer_that_is_one_machine_is_for_one_job_until_its_node_is_gone(
    migrated: Database,
) -> None:
    def ask(number: int) -> RentalOffer:
        found = rental(price=PRICE + number)
        machine = found.machine.model_copy(update={"provider_offer_id": str(number)})
        return found.model_copy(update={"machine": machine})

    def asked() -> list[str]:
        with migrated.read() as session:
            nodes = ephemeral_nodes(session)
        claims = [MachineClaim.model_validate(node.machine) for node in nodes]
        return sorted(claim.offers[0].provider_offer_id for claim in claims)

    with migrated.write() as session:
        account = payer(session)
        add_marketplace(session, account, ask(1), ask(2), kind="vastai")
        for _ in range(2):
            add_waiting_job(session, account)
    assert round_of_planning() == 2
    assert asked() == ["1", "2"]
    with migrated.write() as session:
        waiting = add_waiting_job(session, account)
    assert round_of_planning() == 0
    with migrated.write() as session:
        assert [each["code"] for each in refusals(session, waiting)] == ["shortage"]
        first = min(ephemeral_nodes(session), key=lambda node: str(node.machine))
        first.status = "archived"
    assert round_of_planning() == 1
