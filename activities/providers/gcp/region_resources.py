"""The cloud resources of one of our regions in Google Cloud, other than its machines."""

from activities.providers.base import Unavailable
from activities.providers.gcp.project import translated_errors
from activities.providers.gcp.session import google_session
from activities.providers.gcp.subnetworks import (
    is_subnetwork_there,
    make_subnetwork,
    remove_subnetwork,
)
from workflows.contracts.providers import CloudResource


class GcpRegion:
    """The `CloudRegionDriver` of one cloud region. Every method blocks and may be repeated.

    Raises: every method Unavailable, RequestRefused.
    """

    def __init__(self, provider_id: str, cloud_region: str) -> None:
        self._provider_id = provider_id
        self._cloud_region = cloud_region

    def make(self, resource: str) -> CloudResource:
        with translated_errors():
            session = google_session(self._provider_id)
            path = make_subnetwork(session, self._provider_id, self._cloud_region)
        return CloudResource(name=resource, path=path)

    def remove(self, resource: str) -> CloudResource:
        """Remove the resource, and return when Google does not list it any more.

        Raises: Unavailable, also while Google still lists the resource; RequestRefused.
        """
        with translated_errors():
            session = google_session(self._provider_id)
            path = remove_subnetwork(session, self._provider_id, self._cloud_region)
            is_left = is_subnetwork_there(session, self._provider_id, self._cloud_region)
        if is_left:
            raise Unavailable(f"{path}: still exists")
        return CloudResource(name=resource, path=path)
