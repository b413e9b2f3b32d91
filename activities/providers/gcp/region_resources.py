"""A region of Google's as one of ours: what it has there beside its machines."""

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
    """Blocking, and safe to be done again. Raises, all of it: Unavailable, RequestRefused."""

    def __init__(self, provider_id: str, cloud_region: str) -> None:
        self._provider_id = provider_id
        self._cloud_region = cloud_region

    def make(self, resource: str) -> CloudResource:
        with translated_errors():
            session = google_session(self._provider_id)
            path = make_subnetwork(session, self._provider_id, self._cloud_region)
        return CloudResource(name=resource, path=path)

    def remove(self, resource: str) -> CloudResource:
        """Answered when it is seen to be gone."""
        with translated_errors():
            session = google_session(self._provider_id)
            path = remove_subnetwork(session, self._provider_id, self._cloud_region)
            is_left = is_subnetwork_there(session, self._provider_id, self._cloud_region)
        if is_left:
            raise Unavailable(f"{path}: is still there")
        return CloudResource(name=resource, path=path)
