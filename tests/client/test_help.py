"""The command's help: at once, complete, and the same from every way in."""

import os
import subprocess
import sys

import pytest
from baseload.commands.app import run
from baseload.commands.command_index import EXIT_CODES, entries, help_text

from tests.client.served import Ended


def _python(*arguments: str) -> Ended:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    return Ended(done.returncode, done.stdout, done.stderr)


def test_help_imports_nothing_that_takes_its_time() -> None:
    ended = _python("-X", "importtime", "-m", "baseload", "--help")
    imported = {line.rsplit("|", 1)[-1].strip() for line in ended.err.splitlines()}
    assert ended.code == 0
    assert not imported & {"typer", "httpx", "pydantic", "rich", "yaml", "asyncio", "click"}


def test_help_names_every_command_and_every_exit_code() -> None:
    said = _python("-m", "baseload", "--help").out
    assert said == help_text() + "\n"
    assert all(f"\n  {name} " in said for name in entries())
    assert all(f"  {code}" in said for code, _ in EXIT_CODES)


def test_the_commands_of_accounts_and_money_are_there() -> None:
    groups = ("account", "user", "project", "member", "invite", "key", "secret", "credit")
    assert {*groups, "audit", "admin"} <= {
        name for name, each in entries().items() if each.is_group
    }
    assert {"statement", "usage", "costs", "tco"} <= {*entries()}
    assert "credits" not in entries()


def test_nothing_asked_is_a_mistake_and_shows_help() -> None:
    ended = _python("-m", "baseload")
    assert (ended.code, ended.out) == (2, help_text() + "\n")


@pytest.mark.parametrize("name", list(entries()))
def test_every_command_has_help(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["baseload", name, "--help"])
    with pytest.raises(SystemExit) as leaving:
        run()
    said = capsys.readouterr().out
    assert leaving.value.code == 0
    assert f"Usage: baseload {name}" in said
    assert ("--json" in said) is not entries()[name].is_group


def test_a_command_that_is_nearly_right_is_suggested() -> None:
    ended = _python("-m", "baseload", "submitt")
    assert ended.code == 2
    assert "'submit'" in ended.err
    assert ended.err.count("--help") + ended.err.count("-h'") == 1, "help is named once"


def test_the_help_of_a_group_begins_with_what_it_is_about() -> None:
    lines = _python("-m", "baseload", "key", "--help").out.splitlines()
    assert lines[2].strip() == "Keys to the API."


def test_help_is_there_at_once() -> None:
    taken_s = []
    for _ in range(3):
        begun = os.times()
        assert _python("-m", "baseload", "--help").code == 0
        ended = os.times()
        user_s, system_s = (
            ended.children_user - begun.children_user,
            ended.children_system - begun.children_system,
        )
        taken_s.append(user_s + system_s)
    assert min(taken_s) < 0.15, "seconds of a processor, which others do not lengthen"
