"""Transactions of many threads and processes: nothing is lost, nothing is found locked."""

import subprocess
import sys
import threading
from pathlib import Path

from sqlalchemy import text

from activities.db.session import Database, advisory_lock
from tests.activities.rows import add_payer

THREADS = 4
ROUNDS = 25
CHECKOUT = Path(__file__).parents[3]

COUNT = """
import os, sys, threading
from activities.db import tables
from activities.db.session import Database

other = os.fork()
database = Database(sys.argv[1])
def count():
    for _ in range(int(sys.argv[3])):
        with database.write("count") as session:
            row = session.get_one(tables.LedgerAccount, "counter")
            row.balance_microcredits += 1
        with database.read() as session:
            session.get_one(tables.LedgerAccount, "counter")
threads = [threading.Thread(target=count) for _ in range(int(sys.argv[2]))]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
database.close()
if other:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]))
"""
"""Two processes of one interpreter, which imports once for both."""


def test_two_processes_of_many_threads_lose_no_update(
    migrated: Database, database_url: str
) -> None:
    with migrated.write() as session:
        session.connection().execute(
            text("INSERT INTO ledger_accounts (name, balance_microcredits) VALUES ('counter', 0)")
        )
    command = [sys.executable, "-W", "error", "-c", COUNT, database_url, str(THREADS), str(ROUNDS)]
    done = subprocess.run(
        command, cwd=CHECKOUT, stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    with migrated.read() as session:
        counted = session.connection().execute(
            text("SELECT balance_microcredits FROM ledger_accounts")
        )
        assert counted.scalar_one() == 2 * THREADS * ROUNDS


def test_a_block_that_raises_leaves_nothing_behind(migrated: Database) -> None:
    try:
        with migrated.write() as session:
            add_payer(session)
            raise KeyError("a bug")  # noqa: TRY301 - the point of the test
    except KeyError:
        pass
    with migrated.read() as session:
        assert session.connection().execute(text("SELECT count(*) FROM accounts")).scalar() == 0


def test_rows_can_be_used_after_their_session(migrated: Database) -> None:
    with migrated.write() as session:
        account = add_payer(session)
    assert account.name == "acme"


def test_a_reader_does_not_wait_for_a_writer(migrated: Database) -> None:
    with migrated.write() as writing:
        add_payer(writing)
        with migrated.read() as session:
            found = session.connection().execute(text("SELECT count(*) FROM accounts")).scalar()
    assert found == 0


def test_turns_of_one_name_follow_one_another(migrated: Database) -> None:
    order: list[str] = []
    inside = threading.Event()

    def second() -> None:
        inside.wait(10)
        with migrated.write("name") as session:
            advisory_lock(session, "another")
            order.append("second")

    thread = threading.Thread(target=second)
    thread.start()
    with migrated.write("name"):
        inside.set()
        thread.join(0.2)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_postgresql_compiles_no_query(migrated: Database) -> None:
    if migrated.is_sqlite:
        return
    for opened in (migrated.read, migrated.write):
        with opened() as session:
            assert session.connection().execute(text("SHOW jit")).scalar_one() == "off"
