"""The checks of an account at RunPod: the key works. They cost nothing and change nothing."""

from activities.providers.base import RequestRefused
from activities.providers.runpod.session import runpod_session
from workflows.contracts.providers import Check

KEYS_PAGE = "https://console.runpod.io/user/settings"


def check_runpod(provider_id: str) -> tuple[Check, ...]:
    """Check the key of a provider. Raises: Unavailable, when RunPod does not answer."""
    try:
        runpod_session(provider_id).ssh_keys()
    except RequestRefused as refusal:
        fix = f"make an API key with permission to read and write pods at {KEYS_PAGE} and give it"
        return (Check(name="key", status="failed", detail=str(refusal), fix=fix),)
    return (Check(name="key", status="passed", detail="RunPod accepts it"),)
