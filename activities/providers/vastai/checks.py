"""The checks of an account at Vast.ai: the key works. They cost nothing and change nothing."""

from activities.providers.base import RequestRefused
from activities.providers.vastai.session import vastai_session
from workflows.contracts.providers import Check

KEYS_PAGE = "https://cloud.vast.ai/manage-keys/"


def check_vastai(provider_id: str) -> tuple[Check, ...]:
    """Check the key of a provider. Raises: Unavailable, when Vast.ai does not answer."""
    try:
        vastai_session(provider_id).user()
    except RequestRefused as refusal:
        fix = f"make an API key that may read and write instances at {KEYS_PAGE} and give it"
        return (Check(name="key", status="failed", detail=str(refusal), fix=fix),)
    return (Check(name="key", status="passed", detail="Vast.ai accepts it"),)
