"""A fresh installation: one administrator, keys for their owner alone, whoever starts first."""

import hashlib
import json
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncssh
import pytest
from sqlalchemy import text
from sqlmodel import select

from activities.accounts.bootstrap import bootstrap
from activities.db import tables
from activities.db.session import Database
from activities.secrets.platform_key import make_platform_key
from activities.secrets.sealing import make_master_key, master_key
from activities.settings import settings

CHECKOUT = Path(__file__).parents[3]
STARTS = """
import json, os, sys, tempfile
from sqlalchemy.orm import configure_mappers
from activities.accounts.bootstrap import bootstrap
from activities.db import tables

configure_mappers()

def start(home, url, told):
    if (pid := os.fork()) == 0:
        os.dup2(told.fileno(), 1)
        os.dup2(told.fileno(), 2)
        os.environ |= {"BASELOAD_HOME": home, "BASELOAD_DATABASE_URL": url}
        bootstrap()
        sys.exit(0)
    return pid

def end(pid, told):
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    told.seek(0)
    return status, told.read()

for line in sys.stdin:
    url, homes = json.loads(line)
    files = [tempfile.TemporaryFile("w+") for _ in homes]
    pids = [start(home, url, told) for home, told in zip(homes, files)]
    print(json.dumps([end(pid, told) for pid, told in zip(pids, files)]), flush=True)
"""
"""Processes of one interpreter, which imports once for all of them."""


class Starts:
    """Starts processes at once, each with a home on the same database."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", STARTS],
            cwd=CHECKOUT,
            env={},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, url: str, *homes: Path) -> list[tuple[int, str]]:
        """The exit status of each process, and what it has printed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([url, [str(home) for home in homes]]) + "\n")
        self._process.stdin.flush()
        return [(status, told) for status, told in json.loads(self._process.stdout.readline())]

    def close(self) -> None:
        self._process.communicate(timeout=60)


@pytest.fixture(scope="module")
def starts() -> Iterator[Starts]:
    found = Starts()
    yield found
    found.close()


def test_the_first_start_makes_an_administrator_who_can_do_all(migrated: Database) -> None:
    bootstrap()
    secret = settings().administrator_key_path.read_text().strip()
    with migrated.read() as session:
        account = session.exec(select(tables.Account)).one()
        key = session.exec(select(tables.ApiKey)).one()
        project = session.exec(select(tables.Project)).one()
        user = session.exec(select(tables.User)).one()
    assert (account.name, account.plan) == ("administrator", "enterprise")
    assert account.is_administrator
    assert secret.startswith("bl_")
    assert key.secret_sha256 == hashlib.sha256(secret.encode()).hexdigest()
    assert (key.scopes, user.email) == (["*"], "admin@localhost")
    assert (project.id, project.personal) == (account.personal_project_id, True)


def test_keys_are_their_owners_alone(migrated: Database) -> None:
    bootstrap()
    chosen = settings()
    for path in (chosen.administrator_key_path, chosen.master_key_path, chosen.platform_key_path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert asyncssh.read_private_key(chosen.platform_key_path).get_algorithm() == "ssh-ed25519"
    assert len(master_key()) == 32


def test_a_second_start_changes_nothing(migrated: Database) -> None:
    bootstrap()
    chosen = settings()
    paths = (chosen.administrator_key_path, chosen.master_key_path, chosen.platform_key_path)
    before = [path.read_bytes() for path in paths]
    bootstrap()
    assert [path.read_bytes() for path in paths] == before


def test_an_administrators_key_that_was_put_away_is_not_made_again(migrated: Database) -> None:
    bootstrap()
    settings().administrator_key_path.unlink()
    bootstrap()
    assert not settings().administrator_key_path.exists()


def test_a_crash_before_the_commit_leaves_a_key_that_works(migrated: Database) -> None:
    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("activities.accounts.bootstrap.add_account", crash)
        with pytest.raises(KeyboardInterrupt):
            bootstrap()
    test_the_first_start_makes_an_administrator_who_can_do_all(migrated)


def test_processes_that_start_at_once_make_one_administrator(
    migrated: Database, home: Path, database_url: str, starts: Starts
) -> None:
    assert [status for status, _ in starts(database_url, home, home, home)] == [0, 0, 0]
    secret = (home / "admin.key").read_text().strip()
    with migrated.read() as session:
        assert session.connection().execute(text("SELECT count(*) FROM accounts")).scalar() == 1
        key = session.exec(select(tables.ApiKey)).one()
    assert key.secret_sha256 == hashlib.sha256(secret.encode()).hexdigest()


def test_a_second_host_without_the_keys_does_not_start_and_makes_none(
    migrated: Database, database_url: str, tmp_path: Path
) -> None:
    bootstrap()
    second = tmp_path / "second"
    refused = subprocess.run(
        [sys.executable, "-m", "workers", "planning"],
        cwd=CHECKOUT,
        env={"BASELOAD_HOME": str(second), "BASELOAD_DATABASE_URL": database_url},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert refused.returncode == 1
    said = refused.stderr
    assert "master key" in said
    assert f"found none at {second}/keys/master.key" in said
    assert "copy keys/master.key" in said
    assert "Traceback" not in said
    assert not (second / "keys").exists()
    assert not (second / "admin.key").exists()


@pytest.mark.parametrize("name", ["master.key", "platform_ed25519"])
def test_a_second_host_with_another_key_is_told_which_key_differs(
    migrated: Database, database_url: str, tmp_path: Path, starts: Starts, name: str
) -> None:
    bootstrap()
    keys = settings().master_key_path.parent
    second = tmp_path / "second"
    shutil.copytree(keys, second / "keys")
    assert [status for status, _ in starts(database_url, second)] == [0]
    other = second / "keys" / name
    other.unlink()
    (make_master_key if name == "master.key" else make_platform_key)(other)
    mine = other.read_bytes()
    ((status, said),) = starts(database_url, second)
    assert status == 1
    assert f"at {other}" in said
    assert "belongs to an installation" in said
    assert other.read_bytes() == mine


def test_of_two_hosts_that_start_at_once_one_makes_the_keys_and_the_other_refuses(
    migrated: Database, database_url: str, tmp_path: Path, starts: Starts
) -> None:
    homes = [tmp_path / "first", tmp_path / "second"]
    ends = starts(database_url, *homes, *homes, *homes)
    assert sorted({(home, status) for home, (status, _) in zip(homes * 3, ends, strict=True)}) in (
        [(homes[0], 0), (homes[1], 1)],
        [(homes[0], 1), (homes[1], 0)],
    )
    assert "belongs to an installation" in "".join(said for _, said in ends)
    made = [home for home in homes if (home / "keys" / "master.key").exists()]
    assert [home / "admin.key" for home in made] == [
        home / "admin.key" for home in homes if (home / "admin.key").exists()
    ]
    assert len(made) == 1


def test_a_fingerprint_does_not_show_the_key(migrated: Database) -> None:
    bootstrap()
    with migrated.read() as session:
        rows = session.exec(select(tables.KeyFingerprint)).all()
    names = ["earliest master key", "master key", "platform key"]
    assert sorted(row.name for row in rows) == names
    shown = "".join(row.fingerprint for row in rows)
    assert master_key().hex() not in shown
    assert hashlib.sha256(master_key()).hexdigest()[:32] not in shown
