"""The API key of Vast.ai as a person gives it."""

from activities.providers.api_keys import ApiKey, read_api_key

WHAT = "an API key of Vast.ai"


def read_key(text: str) -> ApiKey:
    """The key in `{"api_key": "…"}`, or the key alone. Raises: KeyMistakeError."""
    return read_api_key(text, WHAT)
