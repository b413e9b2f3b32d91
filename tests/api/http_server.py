"""The API over HTTP with a database behind it, and rows that workflows would have written."""

import base64
import hashlib
import io
import secrets
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx
from fastapi import FastAPI
from sqlmodel import select, update

from activities.accounts.accounts import add_account
from activities.db import tables
from activities.db.ids import new_id
from activities.db.session import Database
from api.authorization import hash_of

JOB: dict[str, Any] = {
    "name": "digits",
    "type": "training",
    "resources": {"gpus": "cpu", "cpu_count": 1},
    "workers": [{"command": "python train.py"}],
}


@dataclass
class Site:
    """The application, its database, and what it has handed over to workflows."""

    database: Database
    app: FastAPI
    handed_over: list[str] = field(default_factory=list)
    temporal_is_up: bool = True

    async def relay(self, request_ids: Sequence[str]) -> None:
        if not self.temporal_is_up:
            raise ConnectionError("Temporal does not answer")
        self.handed_over.extend(request_ids)

    async def check_temporal(self) -> None:
        if not self.temporal_is_up:
            raise ConnectionError("Temporal does not answer")

    async def settled(self) -> None:
        """Until every hand-over under way has ended."""
        await self.app.state.outbox_dispatcher.settled(5)

    def account(self, name: str, *, administrator: bool = False) -> "Person":
        """A new account with a key that may do everything."""
        now = datetime.now(UTC)
        with self.database.write() as session:
            account, owner = add_account(session, name, f"{name}@example.test", now)
            account.is_administrator = administrator
            person = Person(self, account.id, owner.id, account.personal_project_id, "")
        return person.with_key()

    def write(self, *rows: Any) -> None:
        with self.database.write() as session:
            session.add_all(rows)

    def set(self, table: type[Any], row_id: str, **values: Any) -> None:
        """What a workflow would record."""
        with self.database.write() as session:
            session.execute(update(table).where(table.id == row_id).values(**values))

    def rows(self, table: type[Any], **values: Any) -> list[Any]:
        with self.database.read() as session:
            return list(session.exec(select(table).filter_by(**values)).all())

    def asked_of(self, resource_id: str) -> list[tuple[str, Any]]:
        """Verbs and arguments that workflows were asked, in order."""
        rows = sorted(self.rows(tables.OutboxRow, resource_id=resource_id), key=lambda r: r.id)
        return [(row.verb, row.argument) for row in rows]

    @property
    def transport(self) -> httpx.ASGITransport:
        return httpx.ASGITransport(self.app, raise_app_exceptions=False)

    async def announce(
        self, token: str, key: str, minion_id: str, **changes: Any
    ) -> httpx.Response:
        """Announce a machine, as join.sh does there."""
        told = {"token": token, "minion_id": minion_id, "host_public_key": key}
        async with self.client() as machine:
            body = {"address": "10.1.2.3", "port": 2222, **told, **changes}
            return await machine.post("/v1/announcements", json=body)

    def client(self, headers: dict[str, str] | None = None) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            transport=self.transport, base_url="http://api.test", headers=headers, trust_env=False
        )


@dataclass(frozen=True)
class Person:
    """Someone with a key, and short ways to do what most tests begin with."""

    site: Site
    account_id: str
    user_id: str
    project_id: str
    secret: str

    def with_key(self, scopes: Sequence[str] = ("*",), **values: Any) -> "Person":
        secret = f"bl_{secrets.token_urlsafe(32)}"
        self.site.write(
            tables.ApiKey(
                id=new_id("key"),
                account_id=self.account_id,
                user_id=self.user_id,
                name="test",
                secret_sha256=hash_of(secret),
                scopes=list(scopes),
                created_at=datetime.now(UTC),
                **values,
            )
        )
        return Person(self.site, self.account_id, self.user_id, self.project_id, secret)

    async def call(
        self, method: str, path: str, headers: dict[str, str] | None = None, **kwargs: Any
    ) -> httpx.Response:
        bearer = {"Authorization": f"Bearer {self.secret}"} | (headers or {})
        async with self.site.client(bearer) as client:
            return await client.request(method, path, **kwargs)

    async def get(self, path: str, **kwargs: Any) -> httpx.Response:
        return await self.call("GET", path, **kwargs)

    async def post(self, path: str, body: Any = None, **kwargs: Any) -> httpx.Response:
        return await self.call("POST", path, json=body, **kwargs)

    async def patch(self, path: str, body: Any, **kwargs: Any) -> httpx.Response:
        return await self.call("PATCH", path, json=body, **kwargs)

    async def made(self, path: str, body: Any) -> dict[str, Any]:
        """What a POST that must succeed has made."""
        response = await self.post(path, body)
        assert response.status_code in (201, 202), response.text
        made: dict[str, Any] = response.json()
        return made

    async def provider(self) -> str:
        """A provider that is ready."""
        provider_id: str = (await self.made("/v1/providers", {"kind": "physical"}))["id"]
        self.site.set(tables.Provider, provider_id, status="ready")
        return provider_id

    async def region(self, name: str = "home", **values: Any) -> str:
        """A region that is healthy."""
        body = {"provider_id": await self.provider(), "name": name, **values}
        region_id: str = (await self.made("/v1/regions", body))["id"]
        self.site.set(tables.Region, region_id, status="healthy")
        return region_id

    async def node(self, region_id: str, name: str = "n1", **values: Any) -> str:
        """A node that is active, with one CPU and one GPU for each of `gpus`."""
        _, minion_id = host_key()
        body = {"region_id": region_id, "name": name, "minion_id": minion_id}
        node_id: str = (await self.made("/v1/nodes", body))["id"]
        self.site.set(tables.Node, node_id, status="active", host="10.0.0.1", **values)
        return node_id

    async def join_token(self, region_id: str, **changes: Any) -> str:
        """A new join token of a region."""
        made = await self.made("/v1/join-tokens", {"region_id": region_id, **changes})
        return str(made["secret"])

    async def job(self, **changes: Any) -> str:
        job_id: str = (await self.made("/v1/jobs", JOB | changes))["id"]
        return job_id

    async def upload(self, content: bytes | None = None) -> httpx.Response:
        archive = content if content is not None else tar_gz({"train.py": b"print(1)"})
        return await self.call("POST", "/v1/uploads", content=archive)


def host_key() -> tuple[str, str]:
    """A new public host key as OpenSSH writes it, and its fingerprint, the minion id."""
    name = b"ssh-ed25519"
    blob = len(name).to_bytes(4, "big") + name + (32).to_bytes(4, "big") + secrets.token_bytes(32)
    digest = base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
    return f"ssh-ed25519 {base64.b64encode(blob).decode()} host", f"SHA256:{digest}"


def tar_gz(files: dict[str, bytes], *members: tarfile.TarInfo) -> bytes:
    """An archive of files, and of members that have no content."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        for member in members:
            archive.addfile(member)
    return out.getvalue()
