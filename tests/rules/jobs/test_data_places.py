"""The types of sources and destinations, of which each is named in all places."""

from typing import Any, get_args

import pytest

from workflows.contracts.artifacts import Source
from workflows.contracts.deliveries import Destination, KeyedDestination
from workflows.contracts.job_submission import InputSource, OutputDestination
from workflows.contracts.third_party_keys import KeyType
from workflows.rules.jobs.data_places import DESTINATIONS, SOURCES

NOT_OF_INPUTS = {"empty", "upload", "artifact", "regional"}
"""The sources of artifacts alone: a job names an upload, an artifact or a datastore itself."""


def types_of(model: Any) -> tuple[str, ...]:
    return get_args(model.model_fields["type"].annotation)


MODELS = get_args(get_args(Destination)[0])
SOURCE_MODELS = get_args(get_args(Source)[0])


def test_every_destination_is_one_that_jobs_may_name() -> None:
    assert {kind for model in MODELS for kind in types_of(model)} == set(DESTINATIONS)


def test_every_source_is_one_that_inputs_may_name_or_of_artifacts_alone() -> None:
    named = {kind for model in SOURCE_MODELS for kind in types_of(model)}
    assert named == {*SOURCES, *NOT_OF_INPUTS}


def test_every_destination_with_a_key_has_its_type_of_key() -> None:
    keyed = [model for model in MODELS if issubclass(model, KeyedDestination)]
    assert len(keyed) > 1
    assert {kind for model in keyed for kind in types_of(model)} <= set(KeyType)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_an_output_has_every_field_of_its_destination(model: Any) -> None:
    assert set(model.model_fields) <= set(OutputDestination.model_fields)


@pytest.mark.parametrize(
    "model",
    [model for model in SOURCE_MODELS if not NOT_OF_INPUTS & {*types_of(model)}],
    ids=lambda model: model.__name__,
)
def test_an_input_has_every_field_of_its_source(model: Any) -> None:
    assert set(model.model_fields) <= set(InputSource.model_fields)
