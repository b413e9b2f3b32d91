"""The reservation of a submission: who may name one, and what it needs beside it."""

from typing import Any

import pytest

from workflows.rules.jobs.submission import read_submission

RESERVED: dict[str, Any] = {"reservation_id": "rsv-1"}


def mistakes(kind: str, workers: int = 1, **more: Any) -> dict[str, str]:
    document = {
        "name": "web",
        "type": kind,
        "resources": {"gpus": "cpu", "cpu_count": 1},
        "workers": [{"command": "true"}] * workers,
        **more,
    }
    return {found.field: found.rule for found in read_submission(document).mistakes}


@pytest.mark.parametrize("kind", ["notebook", "endpoint"])
def test_a_notebook_or_endpoint_has_the_port_of_its_reservation(kind: str) -> None:
    assert mistakes(kind, **RESERVED) == {}
    assert mistakes(kind, port=8888, **RESERVED) == {}


@pytest.mark.parametrize("kind", ["training", "inference"])
def test_another_job_says_that_it_listens_on_a_port(kind: str) -> None:
    assert mistakes(kind, port=8888, **RESERVED) == {}
    rule = f"is needed beside reservation_id: {kind} listens on none by itself"
    assert mistakes(kind, **RESERVED) == {"port": rule}


def test_a_job_on_several_machines_has_no_hostname() -> None:
    rule = "is for a job with one worker, since one machine has the hostname"
    assert mistakes("training", 2, port=8888, **RESERVED) == {"reservation_id": rule}


def test_a_reservation_is_named_by_its_id() -> None:
    wrong = mistakes("endpoint", reservation_id="web")
    assert wrong == {"reservation_id": "is the id of a reservation, rsv-…"}
