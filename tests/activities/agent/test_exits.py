"""What a node says of a command that failed: words to act on, with nothing in them to hide."""

from __future__ import annotations

import pytest

from tests.activities.agent.agent_process import LocalAgent

pytestmark = pytest.mark.usefixtures("staged_before")

RUN = "job-why-0-1"
SECRET = "open-sesame-" + "7" * 200


def reason(agent: LocalAgent, command: str, **variables: str) -> str:
    agent.run(RUN, command, environment=variables)
    return str(agent.exit_of(RUN)["message"])


@pytest.mark.parametrize("name", ["python3-absent", "./absent.sh", "/usr/bin/absent"])
def test_a_command_that_is_not_there_is_named(agent: LocalAgent, name: str) -> None:
    told = reason(agent, f"echo first; {name} --now")
    assert name in told
    assert "was not found" in told


def test_a_file_that_cannot_be_executed_is_named(agent: LocalAgent) -> None:
    told = reason(agent, "echo echo >run.sh; ./run.sh")
    assert "./run.sh" in told
    assert "cannot be executed" in told


@pytest.mark.parametrize("value", [SECRET, f"-----BEGIN-----\n{SECRET}\n-----END-----"])
def test_the_reason_never_shows_the_value_of_a_variable(agent: LocalAgent, value: str) -> None:
    told = reason(agent, '"$TOKEN" login', TOKEN=value)
    assert "not found" in told
    assert "777" not in told
    assert b"777" in agent.path(RUN, "log").read_bytes(), "the log is its owner's alone"


def test_the_reason_is_text_that_every_database_takes(agent: LocalAgent) -> None:
    told = reason(agent, r"printf 'a\000\033[31mb not found'; exit 127")
    assert "b not found" in told
    assert told.isprintable()


def test_what_a_job_prints_counts_as_what_it_writes(agent: LocalAgent) -> None:
    agent.run(RUN, "head -c 3000000 /dev/zero; sleep 600", disk_size_gb=0.002, grace_s=0.1)
    found = agent.exit_of(RUN)
    assert found["reason"] == "disk-full"
    assert "disk_size_gb is 0.002" in found["message"]
