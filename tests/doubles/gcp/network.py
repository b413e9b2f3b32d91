"""Networks, their subnetworks and firewalls; nothing that is used is deleted."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator
from functools import partial

from tests.doubles.gcp.calls import Call, Register
from tests.doubles.gcp.clock import compute_time
from tests.doubles.gcp.discovery import Json
from tests.doubles.gcp.errors import RefusedError
from tests.doubles.gcp.operations import OperationFailed, Work, nothing, repeated, start
from tests.doubles.gcp.places import compute_list, known_region, link
from tests.doubles.gcp.resources import check_name, path_of, qualified

serves = Register()
_PORTS = re.compile(r"\d{1,5}(-\d{1,5})?")
_PROTOCOLS = frozenset({"tcp", "udp", "icmp", "esp", "ah", "sctp", "ipip", "all"})


@serves("compute.networks.insert")
def insert_network(call: Call) -> Json:
    name = check_name(call.body.get("name"))
    scope = f"projects/{call.project.id}/global"
    path = f"{scope}/networks/{name}"
    body = {
        "autoCreateSubnetworks": False,
        "routingConfig": {"routingMode": "REGIONAL"},
        "networkFirewallPolicyEnforcementOrder": "AFTER_CLASSIC_FIREWALL",
        **call.body,
    }
    return _insert(call, scope, path, _made(call, "network", path, body))


@serves("compute.networks.get")
def get_network(call: Call) -> Json:
    path = f"projects/{call.project.id}/global/networks/{call['network']}"
    network = call.cloud.resources.get(path)
    subnets = [link(each) for each in _subnetworks(call, path)]
    return {**network, "subnetworks": subnets} if subnets else network


@serves("compute.networks.list")
def list_networks(call: Call) -> Json:
    folder = f"projects/{call.project.id}/global/networks"
    return compute_list(call, "network", folder, call.cloud.resources.listed(folder))


@serves("compute.networks.delete")
def delete_network(call: Call) -> Json:
    """What uses it is found out by the operation, as on the real one."""
    scope = f"projects/{call.project.id}/global"
    path = f"{scope}/networks/{call['network']}"

    def unused() -> None:
        for user in _users_of_network(call, path):
            message = f"The network resource '{path}' is already being used by '{user}'"
            raise OperationFailed("RESOURCE_IN_USE_BY_ANOTHER_RESOURCE", message)

    return _delete(call, scope, path, unused)


@serves("compute.subnetworks.insert")
def insert_subnetwork(call: Call) -> Json:
    name = check_name(call.body.get("name"))
    region = known_region(call)
    scope = f"projects/{call.project.id}/regions/{region}"
    path = f"{scope}/subnetworks/{name}"
    network = _network_of(call)
    wanted = _range_of(call.body)
    for other in _subnetworks(call, network):
        taken = ipaddress.ip_network(call.cloud.resources.get(other)["ipCidrRange"])
        if other != path and taken.overlaps(wanted):
            message = f"Invalid IPCidrRange: {wanted} conflicts with existing subnetwork '{other}'"
            raise RefusedError.invalid(message)
    body = {
        "privateIpGoogleAccess": False,
        "purpose": "PRIVATE",
        "stackType": "IPV4_ONLY",
        **call.body,
        "network": link(network),
        "gatewayAddress": str(next(iter(wanted.hosts()))),
        "region": link(scope),
    }
    return _insert(call, scope, path, _made(call, "subnetwork", path, body))


@serves("compute.subnetworks.get")
def get_subnetwork(call: Call) -> Json:
    region = f"projects/{call.project.id}/regions/{known_region(call)}"
    return call.cloud.resources.get(f"{region}/subnetworks/{call['subnetwork']}")


@serves("compute.subnetworks.list")
def list_subnetworks(call: Call) -> Json:
    folder = f"projects/{call.project.id}/regions/{known_region(call)}/subnetworks"
    return compute_list(call, "subnetwork", folder, call.cloud.resources.listed(folder))


@serves("compute.subnetworks.delete")
def delete_subnetwork(call: Call) -> Json:
    scope = f"projects/{call.project.id}/regions/{known_region(call)}"
    path = f"{scope}/subnetworks/{call['subnetwork']}"
    call.cloud.resources.get(path)
    for user in _instances(call, "subnetwork", path):
        raise RefusedError.in_use(f"subnetwork '{path}'", user)
    return _delete(call, scope, path)


@serves("compute.firewalls.insert")
def insert_firewall(call: Call) -> Json:
    name = check_name(call.body.get("name"))
    scope = f"projects/{call.project.id}/global"
    path = f"{scope}/firewalls/{name}"
    network = _network_of(call)
    _check_rules(call.body)
    body = {"direction": "INGRESS", "priority": 1000, "disabled": False, **call.body}
    has_source = any(body.get(each) for each in ("sourceRanges", "sourceTags"))
    if body["direction"] == "INGRESS" and not has_source:
        body["sourceRanges"] = ["0.0.0.0/0"]
    made = _made(call, "firewall", path, {**body, "network": link(network)})
    return _insert(call, scope, path, made)


@serves("compute.firewalls.get")
def get_firewall(call: Call) -> Json:
    path = f"projects/{call.project.id}/global/firewalls/{call['firewall']}"
    return call.cloud.resources.get(path)


@serves("compute.firewalls.list")
def list_firewalls(call: Call) -> Json:
    folder = f"projects/{call.project.id}/global/firewalls"
    return compute_list(call, "firewall", folder, call.cloud.resources.listed(folder))


@serves("compute.firewalls.patch", "compute.firewalls.update")
def change_firewall(call: Call) -> Json:
    scope = f"projects/{call.project.id}/global"
    path = f"{scope}/firewalls/{call['firewall']}"
    firewall = call.cloud.resources.usable(path)
    if known := repeated(call):
        return known
    changed = {name: call.body[name] for name in call.body if name not in ("name", "network")}
    _check_rules({**firewall, **changed})

    def change() -> None:
        firewall.update(changed)

    lasts_s = call.cloud.durations.network_s
    return start(call, Work(scope, call.method.id.rsplit(".", 1)[1], path, lasts_s, change))


@serves("compute.firewalls.delete")
def delete_firewall(call: Call) -> Json:
    scope = f"projects/{call.project.id}/global"
    return _delete(call, scope, f"{scope}/firewalls/{call['firewall']}")


def _insert(call: Call, scope: str, path: str, body: Json) -> Json:
    if known := repeated(call):
        return known
    resources = call.cloud.resources
    resources.add(path, body)
    lasts_s = call.cloud.durations.network_s
    undo = partial(resources.remove, path)
    return start(call, Work(scope, "insert", path, lasts_s, nothing, undo))


def _delete(call: Call, scope: str, path: str, check: Callable[[], None] = nothing) -> Json:
    if known := repeated(call):
        return known
    resources = call.cloud.resources
    resources.usable(path)

    def end() -> None:
        check()
        resources.remove(path)

    return start(call, Work(scope, "delete", path, call.cloud.durations.network_s, end))


def _made(call: Call, kind: str, path: str, body: Json) -> Json:
    return {
        **body,
        "kind": f"compute#{kind}",
        "id": call.cloud.new_id(),
        "creationTimestamp": compute_time(call.cloud.clock.now()),
        "selfLink": link(path),
    }


def _network_of(call: Call) -> str:
    """The path of the network that the body names. Raises: RefusedError."""
    named = call.body.get("network", "")
    path = qualified(call.project.id, named)
    if not named or call.cloud.resources.find(path) is None:
        why = "The referenced network resource cannot be found."
        raise RefusedError.invalid_field("resource.network", named, why)
    call.cloud.resources.usable(path)
    return path


def _range_of(body: Json) -> ipaddress.IPv4Network:
    given = body.get("ipCidrRange", "")
    try:
        found = ipaddress.IPv4Network(given)
    except ValueError as error:
        raise RefusedError.invalid_field("resource.ipCidrRange", given, str(error)) from error
    if found.prefixlen > 29 or not found.is_private or found.is_loopback:
        why = "It must be a private range of at least eight addresses."
        raise RefusedError.invalid_field("resource.ipCidrRange", given, why)
    return found


def _check_rules(body: Json) -> None:
    rules = body.get("allowed", []) + body.get("denied", [])
    if not rules:
        raise RefusedError.invalid("Invalid value: firewall must have allowed or denied rules.")
    for rule in rules:
        protocol = rule.get("IPProtocol", "")
        if protocol not in _PROTOCOLS and not protocol.isdigit():
            raise RefusedError.invalid_field("resource.allowed[0].IPProtocol", protocol, "Unknown.")
        for ports in rule.get("ports", []):
            if not _PORTS.fullmatch(ports):
                raise RefusedError.invalid_field("resource.allowed[0].ports[0]", ports, "Bad range")
    for given in body.get("sourceRanges", []):
        try:
            ipaddress.ip_network(given)
        except ValueError as error:
            raise RefusedError.invalid_field(
                "resource.sourceRanges[0]", given, str(error)
            ) from error


def _subnetworks(call: Call, network: str) -> Iterator[str]:
    resources = call.cloud.resources
    for path in resources.paths(rf"projects/{call.project.id}/regions/[^/]+/subnetworks/[^/]+"):
        if path_of(resources.get(path)["network"]) == network:
            yield path


def _users_of_network(call: Call, network: str) -> Iterator[str]:
    resources = call.cloud.resources
    yield from _instances(call, "network", network)
    yield from _subnetworks(call, network)
    for path in resources.paths(rf"projects/{call.project.id}/global/firewalls/[^/]+"):
        if path_of(resources.get(path)["network"]) == network:
            yield path


def _instances(call: Call, field: str, path: str) -> Iterator[str]:
    """The instances whose interfaces name that network or subnetwork."""
    resources = call.cloud.resources
    for instance in resources.paths(rf"projects/{call.project.id}/zones/[^/]+/instances/[^/]+"):
        for interface in resources.get(instance).get("networkInterfaces", []):
            if path_of(interface.get(field, "")) == path:
                yield instance
