"""The network of a provider's machines, and its firewall rules.

The platform reaches the machines over SSH, and the machines reach each other.
"""

from collections.abc import Callable
from typing import Any

from activities.providers.gcp.errors import (
    GoogleRefusedError,
    GoogleUnavailableError,
    must_be_ours,
    naming_request,
)
from activities.providers.gcp.names import NODE_TAG, ownership_label, shared_name
from activities.providers.gcp.operations import finish
from activities.providers.gcp.session import ANSWER_LIMIT_S, GoogleSession
from activities.settings import settings


def network_name(provider_id: str) -> str:
    return shared_name(provider_id)


def make_network(session: GoogleSession, provider_id: str) -> str:
    """Find or create the network, without subnetworks, because each region creates its own.

    Raises: the errors of `errors.py`.
    """
    from google.cloud import compute_v1  # noqa: PLC0415 - more than a second

    wanted = compute_v1.Network(
        name=network_name(provider_id),
        description=ownership_label(provider_id),
        auto_create_subnetworks=False,
        routing_config=compute_v1.NetworkRoutingConfig(routing_mode="REGIONAL"),
    )
    return _make(session, _networks(session), "network", wanted)


def remove_network(session: GoogleSession, provider_id: str) -> str:
    return _remove(session, _networks(session), "network", (network_name(provider_id), provider_id))


def make_ssh_firewall(session: GoogleSession, provider_id: str) -> str:
    """Find or create the rule that allows SSH to our machines from the platform's workers.

    Raises: the errors of `errors.py`.
    """
    ranges = [each.strip() for each in settings().gcp_ssh_source_ranges.split(",") if each.strip()]
    rule = {"source_ranges": ranges}
    return _make_firewall(session, provider_id, "ssh", rule, [("tcp", ["22"])])


def make_inner_firewall(session: GoogleSession, provider_id: str) -> str:
    """Find or create the rule that allows all traffic between our machines.

    The workers of a job reach each other, and the region's cache on its storage node. The cache
    cannot be reached from outside, because the only other rule allows SSH alone.
    Raises: the errors of `errors.py`.
    """
    rule = {"source_tags": [NODE_TAG]}
    allowed: list[tuple[str, list[str]]] = [("tcp", []), ("udp", []), ("icmp", [])]
    return _make_firewall(session, provider_id, "inner", rule, allowed)


def remove_ssh_firewall(session: GoogleSession, provider_id: str) -> str:
    return _remove_firewall(session, provider_id, "ssh")


def remove_inner_firewall(session: GoogleSession, provider_id: str) -> str:
    return _remove_firewall(session, provider_id, "inner")


def _make_firewall(
    session: GoogleSession,
    provider_id: str,
    what: str,
    rule: dict[str, list[str]],
    allowed: list[tuple[str, list[str]]],
) -> str:
    from google.cloud import compute_v1  # noqa: PLC0415 - more than a second

    wanted = compute_v1.Firewall(
        name=f"{shared_name(provider_id)}-{what}",
        description=ownership_label(provider_id),
        network=f"projects/{session.project_id}/global/networks/{network_name(provider_id)}",
        direction="INGRESS",
        allowed=[compute_v1.Allowed(I_p_protocol=name, ports=ports) for name, ports in allowed],
        target_tags=[NODE_TAG],
        **rule,
    )
    return _make(session, _firewalls(session), "firewall", wanted)


def _remove_firewall(session: GoogleSession, provider_id: str, what: str) -> str:
    name = f"{shared_name(provider_id)}-{what}"
    return _remove(session, _firewalls(session), "firewall", (name, provider_id))


def _networks(session: GoogleSession) -> Any:
    from google.cloud import compute_v1  # noqa: PLC0415

    return session.compute(compute_v1.NetworksClient)


def _firewalls(session: GoogleSession) -> Any:
    from google.cloud import compute_v1  # noqa: PLC0415

    return session.compute(compute_v1.FirewallsClient)


def _make(session: GoogleSession, client: Any, noun: str, wanted: Any) -> str:
    """Find the resource, or else create it.

    The insert has no request id: a name exists once, so Google refuses a second insert.
    """
    path = f"projects/{session.project_id}/global/{noun}s/{wanted.name}"
    found = _found(client, session, noun, wanted.name)
    if found is not None:
        must_be_ours(path, found.description, wanted.description)
        return path
    resource = {f"{noun}_resource": wanted}
    with naming_request(f"{noun} {wanted.name}"):
        try:
            operation = client.insert_unary(
                project=session.project_id, timeout=ANSWER_LIMIT_S, retry=None, **resource
            )
        except _conflict() as there:
            raise GoogleUnavailableError(f"{path}: is being made") from there
    finish(session, operation, f"{noun} {wanted.name}")
    return path


def _remove(session: GoogleSession, client: Any, noun: str, named: tuple[str, str]) -> str:
    name, provider_id = named
    path = f"projects/{session.project_id}/global/{noun}s/{name}"
    found = _found(client, session, noun, name)
    if found is None:
        return path
    must_be_ours(path, found.description, ownership_label(provider_id))
    try:
        with naming_request(f"{noun} {name}"):
            operation = client.delete_unary(
                project=session.project_id, timeout=ANSWER_LIMIT_S, retry=None, **{noun: name}
            )
        finish(session, operation, f"{noun} {name}")
    except GoogleRefusedError as refusal:
        if not refusal.is_missing:
            raise
    return path


def _found(client: Any, session: GoogleSession, noun: str, name: str) -> Any:
    try:
        with naming_request(f"{noun} {name}"):
            return client.get(
                project=session.project_id, timeout=ANSWER_LIMIT_S, retry=None, **{noun: name}
            )
    except GoogleRefusedError as refusal:
        if refusal.is_missing:
            return None
        raise


def _conflict() -> type[Exception]:
    from google.api_core.exceptions import Conflict  # noqa: PLC0415

    return Conflict


Part = Callable[[GoogleSession, str], str]
