"""RunPod as a provider kind, with all its capabilities."""

from activities.providers.base import CredentialsReader, Kind, RequestRefused
from activities.providers.runpod.catalogue import runpod_offer, runpod_offers
from activities.providers.runpod.driver import runpod_machines
from activities.providers.runpod.key import read_key
from activities.providers.runpod.session import runpod_session
from workflows.contracts.providers import Check
from workflows.contracts.statuses import ProviderKind

KEYS_PAGE = "https://console.runpod.io/user/settings"


def check_runpod(provider_id: str) -> tuple[Check, ...]:
    """Check the key of a provider, which costs nothing and changes nothing.

    Raises: Unavailable, when RunPod does not answer.
    """
    try:
        runpod_session(provider_id).ssh_keys()
    except RequestRefused as refusal:
        fix = f"make an API key with permission to read and write pods at {KEYS_PAGE} and give it"
        return (Check(name="key", status="failed", detail=str(refusal), fix=fix),)
    return (Check(name="key", status="passed", detail="RunPod accepts it"),)


KIND = Kind(
    kind=ProviderKind.RUNPOD,
    checks=check_runpod,
    credentials=CredentialsReader(read_key, "an API key of RunPod"),
    driver=runpod_machines,
    offers=runpod_offers,
    offer=runpod_offer,
)
