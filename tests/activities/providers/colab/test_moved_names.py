"""A notebook's host name that leads into the platform's own networks after its announcement."""

import asyncio

import asyncssh
import pytest

from activities.db.session import Database
from activities.nodes.addresses import address_of
from activities.settings import settings
from activities.transport.endpoint import NodeEndpoint
from activities.transport.errors import NodeUnreachable
from activities.transport.pinned import connect
from tests.activities.providers.colab.rows import add_colab
from tests.activities.rows import add_node, add_payer
from tests.workflows.hosts.test_location import location
from tests.workflows.leases.test_machine import REQUEST, seen
from workflows.contracts.machines import MachineClaim, MachineSpec
from workflows.contracts.nodes import NodeAddress
from workflows.contracts.statuses import ProviderKind
from workflows.leases.machine import Machine

STATED = {
    ProviderKind.GCP: False,
    ProviderKind.LOCAL: False,
    ProviderKind.RUNPOD: True,
    ProviderKind.VASTAI: True,
    ProviderKind.COLAB: True,
}


@pytest.fixture
def dialect() -> str:
    return "sqlite"


def claim(kind: ProviderKind) -> MachineClaim:
    return MachineClaim(
        provider_id="prv-1", provider_kind=kind, offers=(), spec=MachineSpec(lifetime_s=60)
    )


async def test_a_name_that_leads_to_the_loopback_by_now_is_not_connected(
    migrated: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BASELOAD_NODE_NETWORKS", raising=False)
    settings.cache_clear()
    met: list[str] = []

    def meet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        met.append("somebody")
        writer.close()

    server = await asyncio.start_server(meet, "127.0.0.1", 0)
    with migrated.write() as session:
        region = add_colab(session, add_payer(session))
        node = add_node(session, region)
        node.host, node.port = "localhost", server.sockets[0].getsockname()[1]
        node.machine = claim(ProviderKind.COLAB).model_dump(mode="json")
        address = address_of(node, region)
    async with server:
        with pytest.raises(NodeUnreachable) as refused:
            await connect(NodeEndpoint.of(address), asyncssh.generate_private_key("ssh-ed25519"))
        await asyncio.sleep(0)
    assert met == []
    assert "127.0.0.1" not in str(refused.value)


@pytest.mark.parametrize(("kind", "is_stated"), STATED.items())
def test_addresses_that_users_and_hosts_state_are_checked_by_leases_and_nodes(
    kind: ProviderKind, is_stated: bool
) -> None:
    machine = Machine(REQUEST.model_copy(update={"provider_kind": kind}), None)
    addresses: list[NodeAddress] = [
        machine.address(seen()),
        location(machine=claim(kind)).address(),
    ]
    assert [each.is_stated for each in addresses] == [is_stated, is_stated]
    assert [NodeEndpoint.of(each).is_given for each in addresses] == [is_stated, is_stated]
