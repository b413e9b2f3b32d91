"""Vast.ai as a provider kind, with all its capabilities."""

from activities.providers.base import CredentialsReader, Kind, RequestRefused
from activities.providers.vastai.catalogue import vastai_offer, vastai_offers
from activities.providers.vastai.driver import vastai_machines
from activities.providers.vastai.key import read_key
from activities.providers.vastai.session import vastai_session
from workflows.contracts.providers import Check
from workflows.contracts.statuses import ProviderKind

KEYS_PAGE = "https://cloud.vast.ai/manage-keys/"


def check_vastai(provider_id: str) -> tuple[Check, ...]:
    """Check the key of a provider. Raises: Unavailable, when Vast.ai does not answer."""
    try:
        vastai_session(provider_id).user()
    except RequestRefused as refusal:
        fix = f"make an API key that may read and write instances at {KEYS_PAGE} and give it"
        return (Check(name="key", status="failed", detail=str(refusal), fix=fix),)
    return (Check(name="key", status="passed", detail="Vast.ai accepts it"),)


KIND = Kind(
    kind=ProviderKind.VASTAI,
    checks=check_vastai,
    credentials=CredentialsReader(read_key, "an API key of Vast.ai"),
    driver=vastai_machines,
    offers=vastai_offers,
    offer=vastai_offer,
)
