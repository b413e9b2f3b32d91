"""GPU names that the catalogue does not know: they pass to marketplaces, and are refused else."""

from typing import Any

import pytest

from tests.rules.jobs.submissions import document
from workflows.rules.catalogue.gpu_names import known_names
from workflows.rules.jobs.resources import resources_of
from workflows.rules.jobs.submission import read_submission

UNKNOWN = "RTX 9999 Super"


def asking(gpus: str, *providers: str) -> Any:
    return document(resources={"gpus": gpus}, placement={"providers": [*providers]})


@pytest.mark.parametrize("providers", [("runpod",), ("physical", "vastai"), ("local",), ("mine",)])
def test_an_unknown_name_passes_unchanged_where_a_marketplace_is_named(
    providers: tuple[str, ...],
) -> None:
    read = read_submission(asking(f"{UNKNOWN}:2", *providers)).submission
    assert read is not None
    asked = resources_of(read)
    assert (asked.gpu_types, asked.gpu_count) == ((UNKNOWN,), 2)


def test_a_known_name_becomes_the_catalogues_there_too() -> None:
    read = read_submission(asking("rtx 4090:1", "runpod")).submission
    assert read is not None
    assert resources_of(read).gpu_types == ("RTX4090",)


@pytest.mark.parametrize("providers", [("gcp",), ("physical", "gcp")])
def test_elsewhere_it_is_refused_with_the_nearest_names(providers: tuple[str, ...]) -> None:
    (mistake,) = read_submission(asking("RTX4091", *providers)).mistakes
    assert (mistake.field, mistake.value) == ("resources.gpus", "RTX4091")
    assert mistake.rule.startswith("no GPU type is called RTX4091; did you mean RTX4090")


def test_a_name_that_passes_is_one_line() -> None:
    (mistake,) = read_submission(asking("RTX\a9999", "runpod")).mistakes
    assert (mistake.field, mistake.rule) == ("resources.gpus", "is 1 to 100 characters on one line")


def test_one_model_is_found_however_each_marketplace_spells_it() -> None:
    sold = ["NVIDIA RTX 9999 Super", "RTX 9999 SUPER", "RTX 9998"]
    assert known_names("rtx9999-super", sold) == ("NVIDIA RTX 9999 Super", "RTX 9999 SUPER")
    assert known_names("A100-40GB", sold) == ("A100",)
    assert known_names("RTX 7777", sold) == ("RTX 7777",)
