"""A fresh installation: one administrator, keys for their owner alone, whoever starts first."""

import hashlib
import shutil
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
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
START = """
import os, sys
from activities.accounts.bootstrap import bootstrap

started = []
for _ in range(3):
    started.append(os.fork())
    if started[-1] == 0:
        bootstrap()
        sys.exit(0)
ended = [os.waitpid(pid, 0)[1] for pid in started]
sys.exit(0 if ended == [0, 0, 0] else f"statuses {ended}")
"""
"""Processes of one interpreter, which imports once for all of them."""


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
    migrated: Database, home: Path, database_url: str
) -> None:
    environment = {"BASELOAD_HOME": str(home), "BASELOAD_DATABASE_URL": database_url}
    subprocess.run(
        [sys.executable, "-c", START], cwd=CHECKOUT, env=environment, timeout=60, check=True
    )
    secret = (home / "admin.key").read_text().strip()
    with migrated.read() as session:
        assert session.connection().execute(text("SELECT count(*) FROM accounts")).scalar() == 1
        key = session.exec(select(tables.ApiKey)).one()
    assert key.secret_sha256 == hashlib.sha256(secret.encode()).hexdigest()


def on_another_host(url: str, home: Path, *program: str) -> subprocess.CompletedProcess[str]:
    """A process with a home of its own and the same database."""
    environment = {"BASELOAD_HOME": str(home), "BASELOAD_DATABASE_URL": url, "PYTHONPATH": "."}
    return subprocess.run(
        [sys.executable, *program],
        cwd=CHECKOUT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_second_host_without_the_keys_does_not_start_and_makes_none(
    migrated: Database, database_url: str, tmp_path: Path
) -> None:
    bootstrap()
    second = tmp_path / "second"
    refused = on_another_host(database_url, second, "-m", "workers", "planning")
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
    migrated: Database, database_url: str, tmp_path: Path, name: str
) -> None:
    bootstrap()
    keys = settings().master_key_path.parent
    second = tmp_path / "second"
    shutil.copytree(keys, second / "keys")
    assert on_another_host(database_url, second, "-c", START).returncode == 0
    other = second / "keys" / name
    other.unlink()
    (make_master_key if name == "master.key" else make_platform_key)(other)
    mine = other.read_bytes()
    refused = on_another_host(database_url, second, "-c", START)
    assert refused.returncode == 1
    assert f"at {other}" in refused.stderr
    assert "belongs to an installation" in refused.stderr
    assert other.read_bytes() == mine


def test_of_two_hosts_that_start_at_once_one_makes_the_keys_and_the_other_refuses(
    migrated: Database, database_url: str, tmp_path: Path
) -> None:
    homes = [tmp_path / "first", tmp_path / "second"]
    with ThreadPoolExecutor(2) as hosts:
        ends = list(hosts.map(lambda home: on_another_host(database_url, home, "-c", START), homes))
    assert sorted(end.returncode for end in ends) == [0, 1]
    assert "belongs to an installation" in "".join(end.stderr for end in ends)
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
