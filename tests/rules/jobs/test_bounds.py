"""The bounds of a submission: the worst document of one MiB is refused by its size alone."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.rules.jobs.submissions import document
from workflows.contracts.job_submission import JobSubmission
from workflows.rules.jobs import formats
from workflows.rules.jobs.bounds import ANY, MAX_VALUES, out_of_bounds
from workflows.rules.jobs.submission import read_submission

MIB = 1024**2
_SCHEMA = JobSubmission.model_json_schema()


def _fields(schema: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of every part of a submission, with `*` for any item or name."""
    if "$ref" in schema:
        schema = _SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]]
    if path:
        yield path
    for one in schema.get("anyOf", ()):
        yield from _fields(one, path)
    for name, below in schema.get("properties", {}).items():
        yield from _fields(below, (*path, name))
    for below in (schema.get("items"), schema.get("additionalProperties")):
        if isinstance(below, dict):
            yield from _fields(below, (*path, ANY))


FIELDS = sorted(set(_fields(_SCHEMA)))
WORST = {
    "text": "a" + " " * (MIB - 2) + "!",
    "texts": ["a" + " " * 196 + "!"] * (MIB // 203),
    "items": [0] * (MIB // 2),
    "names": {f"A{number}": "" for number in range(MIB // 12)},
    "name": {"A" * MIB: ""},
    "number": 10**4000,
    "wide": [[[0] * 60] * 60] * 60,
}


def _with(path: tuple[str, ...], value: Any) -> dict[str, Any]:
    """A sound job with this value at the path; the value may be where no item has been yet."""
    for step in reversed(path):
        value = [value] if step == ANY and path[0] == "workers" else {step: value}
    return document(**value)


@pytest.mark.parametrize("worst", WORST)
@pytest.mark.parametrize("path", FIELDS, ids=".".join)
def test_every_field_is_refused_by_its_bound(path: tuple[str, ...], worst: str) -> None:
    mistakes = out_of_bounds(_with(path, WORST[worst]))
    assert mistakes
    assert all(len(mistake.field) < 300 and mistake.value is None for mistake in mistakes)


class _Recorder:
    """An expression that notes the lengths of the texts it is matched with."""

    def __init__(self, expression: Any, lengths: list[int]) -> None:
        self._expression = expression
        self._lengths = lengths

    def fullmatch(self, text: str) -> Any:
        self._lengths.append(len(text))
        return self._expression.fullmatch(text)


def test_no_expression_sees_a_long_text_or_many(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths: list[int] = []
    expressions = [name for name, value in vars(formats).items() if hasattr(value, "fullmatch")]
    assert len(expressions) >= 5
    for name in expressions:
        monkeypatch.setattr(formats, name, _Recorder(getattr(formats, name), lengths))
    worst = "a" + " " * 98 + "!"
    names = {f"A{number}": "x" for number in range(256)}
    read_submission(
        document(
            environment={
                "image": "a-" * 127,
                "python_packages": [worst] * 64,
                "apt_packages": [worst] * 64,
                "variables": names,
                "secrets": {f"B{name}": "store://" + "x" * 190 for name in names},
            }
        )
    )
    assert len(lengths) <= 4 * 256 + 2 * 64 + 1
    assert max(lengths) <= 255
    for path in FIELDS:
        lengths.clear()
        read_submission(_with(path, WORST["texts"]))
        assert not lengths, path


@pytest.mark.parametrize(
    "text",
    [
        "a" + " " * 50_000 + "!",
        "a[" + " " * 50_000,
        "a>=1" + ",>=1" * 10_000 + "(",
        "a-" * 50_000,
        "a" * 50_000 + "!",
    ],
    ids=["blanks", "extras", "versions", "name", "letters"],
)
def test_a_requirement_is_matched_in_linear_time(text: str) -> None:
    # In cubic time this test would not end.
    assert formats._PYTHON_REQUIREMENT.fullmatch(text) is None


def test_the_values_that_are_looked_at_are_counted() -> None:
    looked_at = 0

    class Counted(list[Any]):
        def __iter__(self) -> Iterator[Any]:
            nonlocal looked_at
            for item in super().__iter__():
                looked_at += 1
                yield item

    inner = Counted([0] * 60)
    assert out_of_bounds(document(data=Counted([Counted([inner] * 60)] * 60)))
    assert looked_at <= MAX_VALUES + 1


@pytest.mark.parametrize(
    "requirement",
    [
        *("torch", "torch >= 2.4, < 3", "torch[a,b]>=2", "torch (>=2.4)", "a.b-c_d===1.0+local"),
        *('torch>=2; python_version < "3.12"', "torch ~= 2.4 ", "x!=1.*"),
    ],
)
def test_a_requirement_by_name_is_accepted(requirement: str) -> None:
    assert formats.is_python_requirement(requirement)


def test_the_largest_sound_job_is_within_bounds() -> None:
    largest = document(
        workers=[{"command": "true"}] * 256,
        environment={
            "python_packages": ["a"] * 64,
            "variables": {f"A{number}": "x" for number in range(256)},
        },
        resources={"gpu_types": ["A100"] * 16, "gpu_count": 1},
    )
    assert read_submission(largest).mistakes == ()
