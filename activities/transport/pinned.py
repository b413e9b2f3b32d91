"""SSH connections to a machine whose host key is known beforehand, and to no other machine."""

import asyncio
import logging

import asyncssh

from activities.transport.endpoint import NodeEndpoint
from activities.transport.errors import HostKeyMismatch, LoginRefused, NodeUnreachable
from activities.transport.node_networks import permitted_address

log = logging.getLogger("transport")
CONNECT_S = 10
KEEPALIVE_S = 5
KEEPALIVE_COUNT = 3
DEVICE_KEEPALIVE_S = 15
"""A device that is away is known after three times so long; ten thousand are asked for ever."""
NO_TRUSTED_KEYS: tuple[list[str], list[str], list[str]] = ([], [], [])
"""No trusted host keys, so that asyncssh asks `PinnedClient` about each key."""
HOST_KEY_FAMILIES = (
    ("ssh-ed25519",),
    ("ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521"),
    ("rsa-sha2-256", "rsa-sha2-512"),
)
"""The families of host keys. A machine has several keys and presents the one that both sides
prefer, so each family is tried in turn."""
CIPHERS = (
    "aes128-gcm@openssh.com",
    "aes256-gcm@openssh.com",
    "chacha20-poly1305@openssh.com",
    "aes256-ctr",
    "aes128-ctr",
)


class PinnedClient(asyncssh.SSHClient):
    """The SSH client that accepts one host key, by its fingerprint, and keeps the presented one."""

    def __init__(self, minion_id: str) -> None:
        self.minion_id = minion_id
        self.found = ""

    def validate_host_public_key(
        self, host: str, addr: str, port: int, key: asyncssh.SSHKey
    ) -> bool:
        """Whether the host key is the node's; asyncssh asks for every key, as none is trusted."""
        del host, addr, port  # An address proves nothing.
        self.found = key.get_fingerprint("sha256")
        return self.found == self.minion_id


async def connect(
    endpoint: NodeEndpoint, client_key: asyncssh.SSHKey
) -> asyncssh.SSHClientConnection:
    """Connect and log in.

    Raises: HostKeyMismatch, LoginRefused, NodeUnreachable.
    """
    shown = []
    host = await _checked_host(endpoint)
    for algorithms in (None, *HOST_KEY_FAMILIES):
        client = PinnedClient(endpoint.minion_id)
        try:
            return await _connect(endpoint, host, client_key, client, algorithms)
        except asyncssh.HostKeyNotVerifiable:
            shown.append(client.found)
        except (asyncssh.KeyExchangeFailed, asyncssh.ConnectionLost, ConnectionResetError) as error:
            # After a first key, this is the outcome for a key family that the machine lacks.
            if not shown:
                raise _unreachable(endpoint, error) from error
        except asyncssh.PermissionDenied as error:
            raise LoginRefused(
                f"node {endpoint}: the machine does not accept the region's key"
                f" for user {endpoint.user}"
            ) from error
        except (OSError, TimeoutError, asyncssh.Error) as error:
            raise _unreachable(endpoint, error) from error
    found = ", ".join(dict.fromkeys(shown))
    log.info("node %s: expected the host key %s, found %s", endpoint, endpoint.minion_id, found)
    raise HostKeyMismatch(str(endpoint), endpoint.minion_id, found)


async def _checked_host(endpoint: NodeEndpoint) -> str:
    """The host to connect: where a person gave it, an address that has been checked."""
    if not endpoint.is_given:
        return endpoint.host
    try:
        async with asyncio.timeout(CONNECT_S):
            return await permitted_address(endpoint.host, endpoint.port)
    except (OSError, TimeoutError, UnicodeError, ValueError) as error:
        raise _unreachable(endpoint, error) from error


def _unreachable(endpoint: NodeEndpoint, error: Exception) -> NodeUnreachable:
    words = str(error) or f"no answer within {CONNECT_S} s"
    log.info("node %s: unreachable: %r", endpoint, words)
    return NodeUnreachable(endpoint.host, endpoint.port, words)


async def _connect(
    endpoint: NodeEndpoint,
    host: str,
    client_key: asyncssh.SSHKey,
    client: PinnedClient,
    algorithms: tuple[str, ...] | None,
) -> asyncssh.SSHClientConnection:
    connection, _ = await asyncssh.create_connection(
        lambda: client,
        host,
        endpoint.port,
        username=endpoint.user,
        client_keys=[client_key],
        known_hosts=NO_TRUSTED_KEYS,
        server_host_key_algs=algorithms or (),
        encryption_algs=CIPHERS,
        compression_algs=None,
        preferred_auth=["publickey"],
        config=None,
        agent_path=None,
        connect_timeout=CONNECT_S,
        login_timeout=CONNECT_S,
        keepalive_interval=DEVICE_KEEPALIVE_S if endpoint.is_device else KEEPALIVE_S,
        keepalive_count_max=KEEPALIVE_COUNT,
    )
    return connection
