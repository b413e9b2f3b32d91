"""The reason why a command does not run, which leaves the device."""

import json
from pathlib import Path

from activities.agent.devices import starting
from tests.activities.agent.devices.conftest import MakeRevision


def test_no_part_of_a_value_is_in_a_reason_whose_lines_begin_within_it(
    make_revision: MakeRevision,
) -> None:
    token = "sk-live-" + "0123456789abcdef" * 4
    revision = make_revision(environment={"TOKEN": token})
    Path(revision.log).write_text(f"{{'auth': '{token}', 'body': '{'y' * 1790}'}}\n")
    reason = starting.with_lines("the command ended with exit code 1", revision)
    assert token[-16:] not in reason


def test_a_value_that_is_longer_than_the_last_lines_leaves_no_part(
    make_revision: MakeRevision,
) -> None:
    token = "0123456789abcdef" * (1 << 15)
    revision = make_revision(environment={"TOKEN": token})
    Path(revision.log).write_text(f"first\nit is {token}\n")
    reason = starting.with_lines("it has ended", revision)
    assert reason == "it has ended\nfirst\nit is ********"


def test_no_line_of_a_key_file_is_in_a_reason(make_revision: MakeRevision) -> None:
    key = "-----BEGIN KEY-----\nQUJDREVGR0hJSktMTU5P\nUFFSU1RVVldYWVo=\n-----END KEY-----\n"
    files = {"key.json": json.dumps({"type": "account", "private_key": key}, indent=2)}
    revision = make_revision(keys={"files": files})
    Path(revision.log).write_text(f"cannot use:\n{key}\n")
    reason = starting.with_lines("it cannot use UFFSU1RVVldYWVo=", revision)
    assert reason.startswith("it cannot use ********\ncannot use:\n")
    assert not [line for line in key.splitlines() if line in reason]
