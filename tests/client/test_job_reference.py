"""The reference of job files: complete, the same everywhere, and at once in the terminal."""

import ast
import re
import subprocess
import sys
import time

import pytest
from baseload.job_reference import field_references, reference_text

from tests.architecture.source import ROOT
from workflows.contracts.statuses import JobStatus, JobType

DOCUMENT = (ROOT / "docs" / "job.md").read_text()
SET_BY = (
    "activities/agent/host/spawn.py",
    "activities/jobs/run_specs.py",
    "activities/jobs/worker_addresses.py",
    "workflows/rules/jobs/arrays.py",
)
"""What puts variables into a command's environment."""
LIMIT_S = 0.15


def _help(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "baseload", "help", "job", *arguments],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def _variables() -> set[str]:
    """The names that begin with BASELOAD_ in what sets them, as texts and as arguments."""
    found = set()
    for name in SET_BY:
        for node in ast.walk(ast.parse((ROOT / name).read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
            elif isinstance(node, ast.keyword) and node.arg:
                found.add(node.arg)
    return {name for name in found if re.fullmatch(r"BASELOAD_[A-Z_]+", name)}


def test_every_field_has_a_meaning_an_example_and_its_default() -> None:
    fields = field_references()
    assert {"name", "resources.gpus", "workers[].command", "code.path", "code.upload_id"} <= {
        each.name for each in fields
    }
    for each in fields:
        assert each.meaning.endswith("."), each.name
        assert each.default, each.name
        assert not each.example.endswith('""'), each.name


@pytest.mark.parametrize("each", field_references(), ids=lambda each: each.name)
def test_the_document_has_every_field(each) -> None:  # type: ignore[no-untyped-def]
    assert f"| `{each.name}` | " in DOCUMENT
    assert each.meaning in DOCUMENT


def test_the_document_has_every_status_every_type_and_every_variable() -> None:
    assert {"BASELOAD_OUTPUT", "BASELOAD_RUN_ID", "BASELOAD_PORT"} <= _variables()
    rows = set(re.findall(r"^\| `(\w+)` \|", DOCUMENT, re.MULTILINE))
    missing = {*JobStatus, *JobType, *_variables()} - rows
    assert not missing


def test_help_prints_one_field_with_those_below_it() -> None:
    gpus = _help("resources.gpus")
    assert (gpus.returncode, gpus.stdout.count("\n\n")) == (0, 0)
    assert "A100:4" in gpus.stdout
    assert _help("workers.0.command").stdout.startswith("workers[].command: text")
    assert "\n\nresources.disk_size_gb: whole number; default: 10\n" in _help("resources").stdout
    assert _help().stdout == f"{reference_text()}\n"


def test_help_of_a_field_that_is_not_there_names_the_nearest() -> None:
    ended = _help("resources.gpu")
    assert ended.returncode == 2
    assert "did you mean resources.gpus?" in ended.stderr


def test_help_of_fields_is_as_fast_as_help() -> None:
    def seconds() -> float:
        began = time.monotonic()
        _help()
        return time.monotonic() - began

    assert min(seconds() for _ in range(5)) < LIMIT_S
