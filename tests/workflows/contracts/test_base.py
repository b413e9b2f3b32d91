"""What crosses a border is bounded, whoever says it."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.contrib.pydantic import pydantic_data_converter

from workflows.contracts.base import MOST_SECONDS
from workflows.contracts.jobs import Exit, RunReport, WorkerExit, WorkerIdle
from workflows.contracts.statuses import RunState

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOSTILE = (math.inf, -math.inf, math.nan, 1e15, 1e308, 10**400, -1, -1e300)


def through(value: Any) -> Any:
    """As it comes out of Temporal's history on the other side."""
    converter = pydantic_data_converter.payload_converter
    return converter.from_payloads(converter.to_payloads([value]), [type(value)])[0]


@pytest.mark.parametrize("seconds", HOSTILE)
def test_every_duration_can_be_added_to_an_instant(seconds: float) -> None:
    ended = Exit(exit_code=0, elapsed_s=seconds)
    said = (
        through(ended).elapsed_s,
        through(WorkerExit(worker=0, attempt=1, exit=ended)).exit.elapsed_s,
        through(WorkerIdle(worker=0, attempt=1, idle_s=seconds)).idle_s,
        through(RunReport(run_id="r", state=RunState.RUNNING, elapsed_s=seconds)).elapsed_s,
    )
    for each in said:
        assert 0 <= each <= MOST_SECONDS
        assert NOW - timedelta(seconds=each) < NOW + timedelta(seconds=each + 1)


def test_what_an_older_release_has_written_as_no_number_is_read() -> None:
    raw = '{"run_id": "r", "state": "running", "elapsed_s": null, "idle_s": 1e999}'
    assert RunReport.model_validate_json(raw).elapsed_s == 0
