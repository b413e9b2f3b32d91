"""The stack that `make up` runs, as it is planned from the settings, and what its programs load."""

import subprocess
import sys
from pathlib import Path

import pytest

from workers import client
from workers.runner.programs import (
    LIST_SEARCH_ATTRIBUTES,
    SEARCH_ATTRIBUTES,
    default_stack,
    started_settings,
)
from workers.runner.settings import RunnerSettings

SQL = ("sqlalchemy", "sqlmodel", "psycopg", "alembic", "activities.db")
CLOUDS = ("google.cloud", "google.auth", "google.api_core", "googleapiclient", "grpc")


def _settings(home: Path, temporal_port: int = 7301) -> RunnerSettings:
    return RunnerSettings(home=home, api="127.0.0.1:8701", temporal_port=temporal_port)


def test_a_stack_keeps_the_addresses_that_it_was_started_with(tmp_path: Path) -> None:
    first = _settings(tmp_path)
    assert started_settings(first) == first
    default_stack(first)
    assert started_settings(_settings(tmp_path, temporal_port=7302)) == first


def test_planning_again_keeps_the_machines_keys_and_port(tmp_path: Path) -> None:
    before = default_stack(_settings(tmp_path))
    key = (tmp_path / "sshd" / "host_key").read_bytes()
    assert default_stack(_settings(tmp_path)) == before
    assert (tmp_path / "sshd" / "host_key").read_bytes() == key


def test_every_program_of_ours_is_told_the_same_home_and_addresses(tmp_path: Path) -> None:
    ours = [each for each in default_stack(_settings(tmp_path)).programs if each.environment]
    assert [each.name for each in ours] == ["api", "worker", "planning"]
    for program in ours:
        assert program.environment["BASELOAD_HOME"] == str(tmp_path)
        assert program.environment["BASELOAD_API"] == "127.0.0.1:8701"
        assert program.environment["BASELOAD_TEMPORAL_ADDRESS"] == "127.0.0.1:7301"


def test_the_server_knows_the_search_attributes_that_the_workers_register() -> None:
    assert SEARCH_ATTRIBUTES == client.SEARCH_ATTRIBUTES
    assert LIST_SEARCH_ATTRIBUTES == client.LIST_SEARCH_ATTRIBUTES


@pytest.fixture(scope="module")
def loaded_by_sites() -> frozenset[str]:
    """Names of the modules that `python -m workers sites` has loaded when it begins to serve."""
    code = "import sys, workers.__main__ as main; main.server_of('sites'); print(*sys.modules)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return frozenset(done.stdout.split())


@pytest.mark.parametrize("library", [*SQL, *CLOUDS, "activities.providers", "api"])
def test_the_process_of_a_site_loads_no_database_and_no_cloud(
    library: str, loaded_by_sites: frozenset[str]
) -> None:
    assert "activities.site.staging" in loaded_by_sites
    assert not [name for name in loaded_by_sites if f"{name}.".startswith(f"{library}.")]
