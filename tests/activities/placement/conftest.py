"""An account with credits and a region, for tests of placement."""

import pytest

from activities.billing.ledger import add_credits
from activities.db import tables
from activities.db.session import Database
from tests.activities.placement.rows import Public, add_gpu_node
from tests.activities.rows import NOW, add_payer, add_region
from workflows.contracts.billing import MICROCREDITS
from workflows.contracts.nodes import Hardware, Preparation


@pytest.fixture
def place(migrated: Database) -> tuple[tables.Account, tables.Region]:
    """An account with credits and a region that has no nodes yet."""
    with migrated.write() as session:
        account = add_payer(session)
        add_credits(session, account, 1, "first", NOW)
        return account, add_region(session, account)


@pytest.fixture
def public(migrated: Database, place: tuple[tables.Account, tables.Region]) -> Public:
    """A public region whose node has two A100 and holds guests off."""
    owner, region = place
    with migrated.write() as session:
        session.get_one(tables.Region, region.id).public = True
        node = add_gpu_node(session, region, gpus=2)
        hardware = Hardware.model_validate(node.hardware)
        with_podman = hardware.model_copy(update={"runtimes": ("process", "podman")})
        node.hardware = with_podman.model_dump(mode="json")
        node.preparation = Preparation(job_user="baseload").model_dump(mode="json")
        customer = add_payer(session, "umbrella")
        add_credits(session, customer, 10 * MICROCREDITS, "umbrella", NOW)
        return Public(owner, region, node, customer)
