"""An API key of RunPod as a person gives it."""

import json

import pytest

from activities.providers.base import KeyMistakeError
from activities.providers.runpod.key import read_key

KEY = "rpa_0123456789ABCDEFabcdef"


@pytest.mark.parametrize("text", [KEY, f" {KEY}\n", json.dumps({"api_key": KEY})])
def test_a_key_is_read_alone_or_out_of_its_json(text: str) -> None:
    key = read_key(text)
    assert key.api_key == KEY
    assert key.project_id == ""
    assert KEY not in repr(key)
    assert key.shown == {"project_id": "", "service_account": "", "key": "…cdef"}


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("", "credentials.api_key"),
        ("short", "credentials.api_key"),
        ("rpa_0123456789\nX-Header: 1", "credentials.api_key"),
        ("{", "credentials"),
        ('{"api_key": 7}', "credentials.api_key"),
        (json.dumps({"api_key": KEY, "more": 1}), "credentials"),
    ],
)
def test_a_malformed_key_is_refused_without_being_quoted(text: str, field: str) -> None:
    with pytest.raises(KeyMistakeError) as caught:
        read_key(text)
    assert caught.value.field == field
    assert "rpa_0" not in str(caught.value)
