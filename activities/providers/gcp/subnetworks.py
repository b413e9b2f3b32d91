"""The subnetwork of a provider in one cloud region, which contains the machines there."""

from typing import Any

from activities.providers.gcp.catalogue import gcp_catalogue
from activities.providers.gcp.errors import (
    GoogleRefusedError,
    GoogleUnavailableError,
    must_be_ours,
    naming_request,
)
from activities.providers.gcp.names import ownership_label, subnetwork_name
from activities.providers.gcp.network import network_name
from activities.providers.gcp.operations import finish
from activities.providers.gcp.session import ANSWER_LIMIT_S, GoogleSession


def make_subnetwork(session: GoogleSession, provider_id: str, cloud_region: str) -> str:
    """Find the subnetwork, or else create it, and return its path.

    Raises: the errors of `errors.py`, such as GoogleUnavailableError while it is being created.
    """
    from google.cloud import compute_v1  # noqa: PLC0415 - more than a second

    name = subnetwork_name(provider_id, cloud_region)
    path = f"projects/{session.project_id}/regions/{cloud_region}/subnetworks/{name}"
    found = _found(session, cloud_region, name)
    if found is not None:
        must_be_ours(path, found.description, ownership_label(provider_id))
        return path
    wanted = compute_v1.Subnetwork(
        name=name,
        description=ownership_label(provider_id),
        network=f"projects/{session.project_id}/global/networks/{network_name(provider_id)}",
        ip_cidr_range=range_of(cloud_region),
        private_ip_google_access=True,
    )
    try:
        with naming_request(f"subnetwork {name}"):
            operation = _client(session).insert_unary(
                project=session.project_id,
                region=cloud_region,
                subnetwork_resource=wanted,
                timeout=ANSWER_LIMIT_S,
                retry=None,
            )
    except GoogleRefusedError as refusal:
        if not refusal.is_there_already:
            raise
        raise GoogleUnavailableError(f"{path}: is being made") from refusal
    finish(session, operation, f"subnetwork {name}", region=cloud_region)
    return path


def remove_subnetwork(session: GoogleSession, provider_id: str, cloud_region: str) -> str:
    """Remove the subnetwork, silent when it does not exist, and return its path.

    Raises: the errors of `errors.py`, such as GoogleRefusedError when it is not ours.
    """
    name = subnetwork_name(provider_id, cloud_region)
    path = f"projects/{session.project_id}/regions/{cloud_region}/subnetworks/{name}"
    found = _found(session, cloud_region, name)
    if found is None:
        return path
    must_be_ours(path, found.description, ownership_label(provider_id))
    try:
        with naming_request(f"subnetwork {name}"):
            operation = _client(session).delete_unary(
                project=session.project_id,
                region=cloud_region,
                subnetwork=name,
                timeout=ANSWER_LIMIT_S,
                retry=None,
            )
        finish(session, operation, f"subnetwork {name}", region=cloud_region)
    except GoogleRefusedError as refusal:
        if not refusal.is_missing:
            raise
    return path


def is_subnetwork_there(session: GoogleSession, provider_id: str, cloud_region: str) -> bool:
    """Whether Google lists the subnetwork now. Raises: the errors of `errors.py`."""
    return _found(session, cloud_region, subnetwork_name(provider_id, cloud_region)) is not None


def range_of(cloud_region: str) -> str:
    """The range of 4,096 addresses of a cloud region, in the catalogue's order."""
    names = [region.name for region in gcp_catalogue().regions]
    return f"10.{64 + names.index(cloud_region)}.0.0/20"


def _client(session: GoogleSession) -> Any:
    from google.cloud import compute_v1  # noqa: PLC0415

    return session.compute(compute_v1.SubnetworksClient)


def _found(session: GoogleSession, cloud_region: str, name: str) -> Any:
    try:
        with naming_request(f"subnetwork {name}"):
            return _client(session).get(
                project=session.project_id,
                region=cloud_region,
                subnetwork=name,
                timeout=ANSWER_LIMIT_S,
                retry=None,
            )
    except GoogleRefusedError as refusal:
        if refusal.is_missing:
            return None
        raise
