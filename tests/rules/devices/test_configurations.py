"""The rules of device configurations: documents, changes of them, and what differs."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.contracts.device_configurations import DeviceDocument
from workflows.rules.devices.configurations import differences, document_mistakes, merged

SOUND: dict[str, Any] = {
    "command": "python serve.py",
    "model": {"id": "mod-1"},
    "checkpoints": ["chk-1", "chk-2"],
    "output": {"type": "regional", "datastore_id": "dst-1", "path": "shop-7"},
    "environment": {
        "image": "ghcr.io/shop/detector:3",
        "variables": {"THRESHOLD": "0.6"},
        "secrets": {"TOKEN": "camera_token"},
        "credentials": ["aws"],
        "image_credentials": "docker",
    },
    "output_buffer": {"policy": "drop_newest", "limit_bytes": 20_000_000_000},
    "health": {"up_s": 5, "http_port": 8080, "http_path": "/ready", "log_line": "serving"},
    "disk_size_gb": 20,
}
BROKEN: dict[str, dict[str, Any]] = {
    "command": {"command": "  "},
    "model.id": {"model": {"id": "dat-1"}},
    "checkpoints.1": {"checkpoints": ["chk-1", "chk-1"]},
    "output.type": {"output": {"type": "local"}},
    "output.path": {"output": {"path": "../other"}},
    "output.datastore_id": {"output": {"datastore_id": "nas"}},
    "output_buffer": {"output": None},
    "output_buffer.limit_bytes": {"output_buffer": {"limit_bytes": 20_000_000_001}},
    "environment.image": {"environment": {"image": "no image"}},
    "environment.variables": {"environment": {"variables": {"BASELOAD_X": "1"}}},
    "environment.secrets": {"environment": {"secrets": {"THRESHOLD": "x"}}},
    "environment.credentials.0": {"environment": {"credentials": ["hunter2"]}},
    "environment.image_credentials": {"environment": {"image_credentials": "aws"}},
    "health.up_s": {"health": {"up_s": 20, "limit_s": 10}},
    "health.http_port": {"health": {"http_port": None}},
    "health.http_path": {"health": {"http_path": "ready"}},
    "health.log_line": {"health": {"log_line": "two\nlines"}},
}


def mistakes(change: dict[str, Any]) -> list[str]:
    """The fields that a sound document breaks with a change."""
    document = DeviceDocument.model_validate(merged(SOUND, change))
    return [each.field for each in document_mistakes(document, "detector")]


def test_a_sound_document_breaks_no_rule() -> None:
    assert mistakes({}) == []
    assert document_mistakes(DeviceDocument(command="true"), "detector") == ()


@pytest.mark.parametrize("field", list(BROKEN))
def test_a_mistake_is_named_by_the_field_of_the_configuration(field: str) -> None:
    assert field in mistakes(BROKEN[field])


def test_what_may_be_a_key_or_a_secret_is_not_sent_back() -> None:
    change = {"environment": {"credentials": ["hunter2"], "secrets": {"TOKEN": "hunter2 !"}}}
    document = DeviceDocument.model_validate(merged(SOUND, change))
    found = document_mistakes(document, "detector")
    assert len(found) >= 2
    assert "hunter2" not in str(found)


def test_a_document_beyond_a_bound_gets_the_mistakes_of_bounds_alone() -> None:
    change = {
        "environment": {"variables": {f"V{index}": "1" for index in range(300)}},
        "command": "",
    }
    assert mistakes(change) == ["environment.variables"]


def test_a_change_leaves_all_else_and_null_takes_away() -> None:
    change = {"environment": {"image": None, "variables": {"THRESHOLD": None, "NEW": "1"}}}
    found = merged(SOUND, change)
    assert found["environment"]["variables"] == {"NEW": "1"}
    assert "image" not in found["environment"]
    assert found["environment"]["secrets"] == SOUND["environment"]["secrets"]
    assert {**found, "environment": 0} == {**SOUND, "environment": 0}
    assert SOUND["environment"]["variables"] == {"THRESHOLD": "0.6"}, "the document stays"


VALUES = st.recursive(
    st.none() | st.integers(0, 3) | st.text("ab", max_size=2),
    lambda below: st.dictionaries(st.sampled_from("xyz"), below, max_size=3),
    max_leaves=6,
)
DOCUMENTS = st.dictionaries(st.sampled_from("xyz"), VALUES, max_size=3)


@given(DOCUMENTS)
def test_a_document_does_not_differ_from_itself(document: dict[str, Any]) -> None:
    assert differences(document, document) == {}


@given(DOCUMENTS, DOCUMENTS)
def test_differences_are_the_same_from_both_sides(
    earlier: dict[str, Any], later: dict[str, Any]
) -> None:
    turned = {name: (new, old) for name, (old, new) in differences(later, earlier).items()}
    assert differences(earlier, later) == turned


@given(DOCUMENTS, DOCUMENTS)
def test_a_change_that_is_made_again_changes_nothing(
    document: dict[str, Any], change: dict[str, Any]
) -> None:
    once = merged(document, change)
    assert merged(once, change) == once


def test_a_difference_is_said_by_its_path_with_both_values() -> None:
    change = {"environment": {"image": "x:2"}, "model": None, "checkpoints": ["chk-3"]}
    assert differences(SOUND, merged(SOUND, change)) == {
        "checkpoints": (["chk-1", "chk-2"], ["chk-3"]),
        "environment.image": ("ghcr.io/shop/detector:3", "x:2"),
        "model.id": ("mod-1", None),
    }
