"""The real API over HTTP, an account in it, and the `baseload` command beside it."""

import asyncio
import contextlib
import io
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from baseload import Client
from baseload.commands.app import run
from fastapi import FastAPI

from activities.db.session import Database
from activities.outbox.dispatcher import OutboxDispatcher
from api.app import create_app
from tests.api.conftest import stores
from tests.api.http_server import Person, Site
from tests.client.served import Ended, served

__all__ = ["stores"]


@pytest.fixture
def dialect() -> str:
    return "sqlite"


@dataclass
class Desk:
    """Where someone sits: the platform, their account, their working directory, the command."""

    site: Site
    person: Person
    url: str
    folder: Path

    def baseload(self, *arguments: str) -> Ended:
        """Run the command as `main` does, with its output taken instead of printed."""
        out, err = io.StringIO(), io.StringIO()
        sys.argv = ["baseload", *arguments]
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                run()
                code = 0
            except SystemExit as leaving:
                code = int(leaving.code or 0)
        return Ended(code, out.getvalue(), err.getvalue())

    def json(self, *arguments: str) -> Any:
        """What a command that must succeed says with --json."""
        ended = self.baseload(*arguments, "--json")
        assert ended.code == 0, ended.err
        return json.loads(ended.out)

    def client(self) -> Client:
        return Client()


@pytest.fixture(scope="session")
def app() -> FastAPI:
    """One application for all tests: making it takes longer than most of them."""
    return create_app(OutboxDispatcher(_never), _never)


async def _never(*_: object) -> None:
    raise AssertionError("each test brings its own")


@pytest.fixture
def desk(
    app: FastAPI, migrated: Database, stores: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Desk]:
    site = Site(migrated, app)
    app.state.outbox_dispatcher.relay = site.relay
    app.state.check_temporal = site.check_temporal
    app.state.stop = asyncio.Event()
    person = site.account("ada", administrator=True)
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["baseload"])
    with served(site.app) as url:
        monkeypatch.setenv("BASELOAD_API", url)
        monkeypatch.setenv("BASELOAD_API_KEY", person.secret)
        yield Desk(site, person, url, folder)
