"""The API key of RunPod as a person gives it."""

from activities.providers.api_keys import ApiKey, read_api_key

WHAT = "an API key of RunPod, such as rpa_…"


def read_key(text: str) -> ApiKey:
    """The key in `{"api_key": "…"}`, or the key alone. Raises: KeyMistakeError."""
    return read_api_key(text, WHAT)
