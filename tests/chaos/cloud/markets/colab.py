"""A notebook as a market: its user runs the cell again whenever its runtime has gone.

The cell is the real one, with a real sshd behind a tunnel of ngrok's double. Nothing ends the
notebook for us, so a machine is there as long as a lease holds the notebook's endpoint, or a run
of ours is left in the notebook that no lease holds.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psycopg

from tests.activities.providers.colab.notebook import MarkedNotebook
from tests.chaos.cloud.database import ReadRows
from tests.chaos.cloud.markets.market import (
    HOST_DIES,
    HOST_STANDS_STILL,
    Charge,
    Enabled,
    Machine,
    Market,
)
from tests.e2e.platform import Platform, Refused
from tests.lab.waiting import wait_until

LOOK_S = 0.05
"""A lease holds the notebook for longer than that."""
ANNOUNCED_WITHIN_S = 120.0
LEFT = "left-in-the-notebook"
HELD = (
    "SELECT held_by, endpoint_id, held_at FROM colab_endpoints "
    "WHERE held_by IS NOT NULL AND endpoint_id IS NOT NULL"
)


class Hold(NamedTuple):
    """A lease has the notebook. number: what tells two holds of one name apart."""

    name: str
    number: str


class Colab(Market):
    """One notebook, free of charge; what it runs are processes of this host with a mark."""

    kind = "colab"
    kinds = (HOST_DIES, HOST_STANDS_STILL)
    most_at_once = 1

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="baseload-colab-market-"))
        self._folder.chmod(0o755)  # The accounts of jobs pass through.
        self.settings = {"node_networks": "127.0.0.0/8", "job_network_wall": "false"}
        self.environment: dict[str, str] = {}
        self.violations: list[str] = []
        self._rows: ReadRows = lambda query: []
        self._owner: Platform
        self._provider_id = ""
        self._sessions = 0
        self._notebook: MarkedNotebook | None = None
        self._charges: dict[Hold, Charge] = {}
        self._turn = threading.Lock()
        self._closing = threading.Event()
        self._meter = threading.Thread(target=self._watch, daemon=True)

    def close(self) -> None:
        self._closing.set()
        if self._meter.is_alive():
            self._meter.join()
        self._end_session()
        shutil.rmtree(self._folder, ignore_errors=True)

    def watch(self, rows: ReadRows) -> None:
        self._rows = rows

    def enable(self, owner: Platform) -> Enabled:
        self._owner = owner
        body = {"kind": "colab", "accept_terms": True}
        self._provider_id = owner.post("/v1/providers", body)["id"]
        owner.until_status(f"/v1/providers/{self._provider_id}", "ready")
        self._meter.start()
        self._open_session()
        return Enabled(self._provider_id)

    def job(self, enabled: Enabled) -> dict[str, Any]:
        return {
            "resources": {"gpus": "cpu", "cpu_count": 1, "memory_gib": 1},
            "placement": {"providers": [enabled.provider_id]},
        }

    def machines(self) -> list[Machine]:
        held = self._held()
        if held is not None:
            return [Machine(held.name, held.number, "held")]
        left = self._notebook.left() if self._notebook is not None else ()
        return [Machine(LEFT, str(self._sessions), each) for each in left]

    def charges(self) -> list[Charge]:
        return list(self._charges.values())

    def lose(self, name: str) -> bool:
        """The runtime is gone; its user opens another session, at another endpoint."""
        held = self._held()
        if held is None or held.name != name:
            return False
        self._end_session()
        self._charge_until_now(held)
        self._open_session()
        return True

    def stand_still(self, name: str) -> bool:
        held = self._held()
        if held is None or held.name != name or self._notebook is None:
            return False
        self._notebook.stand_still()
        return True

    def go_on(self, name: str) -> None:
        if self._notebook is not None:
            self._notebook.go_on()

    # ── the notebook ────────────────────────────────────────────────────────────────────────

    def _open_session(self) -> None:
        """A fresh runtime, in which new cells are run until one has announced it."""
        self._sessions += 1
        folder = self._folder / f"session-{self._sessions}"
        notebook = self._notebook = MarkedNotebook(folder)
        deadline = time.monotonic() + ANNOUNCED_WITHIN_S
        while time.monotonic() < deadline:
            with suppress(httpx.TransportError, Refused):
                query = {"provider_id": self._provider_id}
                cell = self._owner.get("/v1/colab/bootstrap", **query)["cell"]
                notebook.run(cell)
                wait_until(
                    lambda: "expires at" in notebook.printed or notebook.has_ended,
                    "the cell has announced the notebook",
                    ANNOUNCED_WITHIN_S,
                )
                if "expires at" in notebook.printed:
                    return
        raise TimeoutError(f"the notebook could not be announced: {notebook.printed}")

    def _end_session(self) -> None:
        notebook, self._notebook = self._notebook, None
        if notebook is not None:
            notebook.close()

    # ── the meter ───────────────────────────────────────────────────────────────────────────

    def _held(self) -> Hold | None:
        rows = self._rows(HELD)
        return Hold(rows[0][0], f"{rows[0][1]}/{rows[0][2]}") if rows else None

    def _watch(self) -> None:
        """Note by our own clock from when to when each lease has the notebook."""
        while not self._closing.wait(LOOK_S):
            try:
                held = self._held()
            except (sqlite3.OperationalError, psycopg.OperationalError):
                continue
            now = time.time()
            with self._turn:
                if held is not None:
                    self._charges.setdefault(held, Charge(*held, price=0, started_at=now))
            for key in list(self._charges):
                if key != held:
                    self._charge_until_now(key)

    def _charge_until_now(self, key: Hold) -> None:
        with self._turn:
            charge = self._charges.get(key)
            if charge is not None and charge.ended_at is None:
                self._charges[key] = replace(charge, ended_at=time.time())
