"""Under which conditions this host may be lent: its administrator trusts what runs on it, its
loopback may be connected, and it is no node already."""

import socket
from ipaddress import ip_address, ip_network

from sqlmodel import col, select

from activities.db.session import database
from activities.db.tables import Node
from activities.settings import cidrs_of, settings
from workflows.contracts.providers import Check
from workflows.contracts.statuses import NodeStatus

LOOPBACK = ip_address("127.0.0.1")
_ANY_PORT = 9


def check_host(_: str) -> tuple[Check, ...]:
    """Check whether this host may be lent; changes nothing."""
    return (_trust(), _loopback(), _no_node())


def is_trusted() -> bool:
    return settings().trusted_local


def node_of_this_host() -> str | None:
    """The id of a node that an owner has added and that is this host; None: it is none."""
    query = (
        select(Node.id, Node.host)
        .where(col(Node.status) != NodeStatus.ARCHIVED, col(Node.machine).is_(None))
        .order_by(col(Node.id))
    )
    with database().read() as session:
        found = session.exec(query).all()
    return next((node_id for node_id, host in found if host and is_this_host(host)), None)


def is_this_host(host: str) -> bool:
    """Whether a name or an address is of this host."""
    if host in ("localhost", socket.gethostname()):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    if address.is_loopback:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, _ANY_PORT))  # Sends nothing.
            return ip_address(probe.getsockname()[0]) == address
        except OSError:  # There is no route to it.
            return False


def _trust() -> Check:
    if is_trusted():
        return Check(name="trusted-local", status="passed", detail="BASELOAD_TRUSTED_LOCAL is true")
    detail = "jobs would run on the host of the control plane, as the user of its worker"
    fix = "set BASELOAD_TRUSTED_LOCAL=true for the workers of this host if its jobs are trusted"
    return Check(name="trusted-local", status="failed", detail=detail, fix=fix)


def _loopback() -> Check:
    networks = settings().node_networks
    if any(LOOPBACK in ip_network(each) for each in cidrs_of(networks)):
        return Check(name="loopback", status="passed", detail=f"{LOOPBACK} may be a node")
    detail = f"BASELOAD_NODE_NETWORKS: asked {LOOPBACK}, found {networks or 'none'}"
    fix = f"add {LOOPBACK}/32 to BASELOAD_NODE_NETWORKS"
    return Check(name="loopback", status="failed", detail=detail, fix=fix)


def _no_node() -> Check:
    node_id = node_of_this_host()
    if node_id is None:
        return Check(name="no-node", status="passed", detail="this host is no node")
    detail = f"this host is node {node_id}, and would be lent twice"
    fix = f"remove the node (baseload node rm {node_id}), or run jobs on it as it is"
    return Check(name="no-node", status="failed", detail=detail, fix=fix)
