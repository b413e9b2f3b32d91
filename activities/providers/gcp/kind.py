"""Google Cloud as a provider kind, with all its capabilities."""

from activities.providers.base import CredentialsReader, Kind
from activities.providers.gcp.billing_catalog import google_prices
from activities.providers.gcp.catalogue import gcp_catalogue, gcp_storage
from activities.providers.gcp.driver import google_machines
from activities.providers.gcp.key import read_key
from activities.providers.gcp.notifications import google_notifications
from activities.providers.gcp.project import GcpProject
from activities.providers.gcp.quotas import google_quotas
from activities.providers.gcp.region_resources import GcpRegion
from workflows.contracts.providers import Check
from workflows.contracts.statuses import ProviderKind


def check_google(provider_id: str) -> tuple[Check, ...]:
    """Run every check of a provider's project."""
    return GcpProject(provider_id).check()


KIND = Kind(
    kind=ProviderKind.GCP,
    checks=check_google,
    modules=("google.auth", "google.cloud.compute_v1", "google.pubsub_v1"),
    credentials=CredentialsReader(
        read_key, "the JSON of a service-account key", "service_account_key"
    ),
    project=GcpProject,
    region=GcpRegion,
    driver=google_machines,
    notifications=google_notifications,
    quotas=google_quotas,
    catalogue=gcp_catalogue,
    storage_classes=gcp_storage,
    prices=google_prices,
)
