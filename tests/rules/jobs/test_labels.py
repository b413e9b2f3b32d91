"""Labels of a submission: what is taken, what is refused, and what a filter asks for."""

from typing import Any

import pytest

from tests.rules.jobs.submissions import document
from workflows.rules.jobs.labels import MAX_LABELS, asked_label
from workflows.rules.jobs.submission import read_submission


def test_labels_are_texts_as_yaml_writes_them() -> None:
    read = read_submission(document(labels={"team": "vision", "run": 7, "good": True})).submission
    assert read is not None
    assert read.labels == {"team": "vision", "run": "7", "good": "true"}


def test_a_job_without_labels_has_none() -> None:
    read = read_submission(document()).submission
    assert read is not None
    assert read.labels == {}


@pytest.mark.parametrize(
    ("labels", "field"),
    [
        ({f"key-{number}": "x" for number in range(MAX_LABELS + 1)}, "labels"),
        ({"": "x"}, "labels"),
        ({"-team": "x"}, "labels"),
        ({"team=": "x"}, "labels"),
        ({"k" * 64: "x"}, "labels"),
        ({"team": ""}, "labels.team"),
        ({"team": " vision"}, "labels.team"),
        ({"team": "a\nb"}, "labels.team"),
        ({"team": "x" * 101}, "labels.team"),
        ({"team": ["a"]}, "labels.team"),
        ({"team": None}, "labels.team"),
        (["team"], "labels"),
    ],
)
def test_a_label_that_cannot_be_is_refused(labels: Any, field: str) -> None:
    mistakes = read_submission(document(labels=labels)).mistakes
    assert [mistake.field for mistake in mistakes] == [field]


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("team=vision", ("team", "vision")),
        ("team", ("team", None)),
        ("example.org/run=a=b", ("example.org/run", "a=b")),
    ],
)
def test_a_filter_asks_for_a_key_and_perhaps_a_value(
    text: str, asked: tuple[str, str | None]
) -> None:
    assert asked_label(text) == asked


@pytest.mark.parametrize("text", ["", "=x", "team=", "a b=x", "team= x"])
def test_a_filter_that_no_label_can_match_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is KEY=VALUE, or KEY for any value"):
        asked_label(text)
