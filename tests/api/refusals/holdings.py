"""One thing of each kind that an account may hold, and the sound requests of every route."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from sqlalchemy import select
from sqlmodel import SQLModel

from activities.db import tables
from activities.db.session import Database
from activities.secrets.credentials import own_place, seal_credentials
from tests.activities.providers.fake_driver import RentedDriver
from tests.activities.providers.kinds import kind_with
from tests.api.device_rows import edge_things
from tests.api.federated_rows import federated_job
from tests.api.http_server import JOB, Person, Site, host_key, tar_gz
from tests.api.refusals.document import (
    Place,
    filled,
    named_places,
    operation,
    put,
)
from tests.api.running_jobs import running_job
from tests.api.test_access import Route
from tests.api.test_boot_drive_requests import DECISIONS, boot_drive_request
from tests.api.test_datastores import datastore
from tests.api.test_leases import BEGAN, lease_row
from tests.api.test_reservations import reservation
from workflows.contracts.lifecycles import ARTIFACT_NOUNS

ARCHIVE = tar_gz({"train.py": b"print(1)"})
PART = b"a part of a tar"
FEDERATED = JOB | {"type": "inference", "data": {"model": {"id": "mod-1"}, "output": None}}
DATASTORE = {"name": "another", "type": "nfs", "address": "nas", "root_path": "/srv/another"}
CREDENTIAL = {"kind": "gcp", "field": "service_account_key"}
SOUND: dict[str, dict[str, Any]] = {
    "create_account": {"name": "another"},
    "change_account": {"plan": "enterprise"},
    "grant_credits": {"amount_microcredits": 1},
    "record_purchase": {"amount_microcredits": 25_000_000, "reference": "another"},
    "change_own_account": {"wallet_address": "another"},
    "reverse_transaction": {"reason": "another"},
    "reconcile": {"end": True},
    "create_user": {"email": "another@example.test"},
    "create_api_key": {"name": "another"},
    "change_user": {"role": "owner"},
    "create_invitation": {"email": "third@example.test", "permissions": {"job": "read"}},
    "accept_invitation": {},
    "change_member": {"permissions": {"job": "all"}},
    "create_project": {"name": "another"},
    "change_project": {"on_quota_exhausted": "fail"},
    "store_project_secret": {"name": "another", "value": "hidden"},
    "set_third_party_key": {"type": "kaggle", "value": "ada:hidden-key"},
    "set_credential": {"value": "another"},
    "enable_provider": {"kind": "gcp"},
    "change_provider": {"credentials": {}},
    "create_region": {"name": "another"},
    "change_region": {"own_worker": True, "allows_apt_packages": True, "guest_policy": {}},
    "create_datastore": DATASTORE,
    "create_reservation": {"name": "another", "hostname": "another", "port": 8888},
    "change_node": {"mining": False},
    "create_boot_drive_request": {"count": 1, "ship_to": ["another", "place"]},
    **{f"{verb}_boot_drive_request": body or {} for verb, body in DECISIONS.items()},
    "add_node": {"name": "another", "minion_id": f"SHA256:{'A' * 43}"},
    "replace_node": {"name": "another", "minion_id": f"SHA256:{'B' * 43}"},
    "create_join_token": {},
    "add_device": {"name": "another", "minion_id": f"SHA256:{'D' * 43}"},
    "change_device": {"configuration_id": None},
    "create_device_configuration": {"name": "another", "command": "serve"},
    "change_device_configuration": {"command": "another"},
    "create_deployment": {},
    "submit_job": JOB,
    "preview_job": JOB,
    "create_federated_job": FEDERATED,
    "submit_job_array": {**JOB, "array": [{}, {}]},
    **{
        f"create_{noun.name}": {"name": "another", "source": {"type": "upload"}}
        for noun in ARTIFACT_NOUNS
    },
    **{f"complete_{noun.name}": {"part_count": 1} for noun in ARTIFACT_NOUNS},
}
"""The bodies of the routes that take one, without what names things."""
NEEDED = {
    "enable_provider": ("credentials",),
    "create_region": ("provider_id",),
    "add_node": ("region_id",),
    "create_datastore": ("region_id",),
    "create_reservation": ("region_id",),
    "create_boot_drive_request": ("region_id",),
    "create_join_token": ("region_id",),
    "add_device": ("region_id",),
    "create_device_configuration": ("region_id",),
    "create_deployment": ("configuration_id",),
    "list_quotas": ("provider_id",),
    "create_invitation": ("project_id",),
    "create_federated_job": ("project_id", "data.model.id"),
    "accept_invitation": ("token",),
}
"""The fields that name things and without which a request is not sound."""
QUERIES: dict[str, dict[str, str]] = {
    "list_quotas": {"cloud_region": "us-central1"},
    "end_provider_machine": {"zone": "us-central1-a"},
    "diff_device_revisions": {"from": "1", "to": "1"},
}


@dataclass(frozen=True)
class Holdings:
    """Somebody's things, by kind, and the word that stands in their names and texts."""

    person: Person
    word: str
    named: dict[str, str]

    def request(self, route: Route, others: dict[Place, str] | None = None) -> dict[str, Any]:
        """A sound request about the holder's own things, but for others' at these places.

        Raises: LookupError, when nobody has said what is sound.
        """
        given = self._needed(route) | (others or {})
        path = {place.field: text for place, text in given.items() if place.where == "path"}
        path = {"index": "0", "revision": "1", **CREDENTIAL} | path
        query = {place.field: text for place, text in given.items() if place.where == "query"}
        asked: dict[str, Any] = {
            "method": route.method,
            "path": filled(route.path, path),
            "params": QUERIES.get(route.name, {}) | query,
        }
        if "requestBody" not in operation(route):
            return asked
        if route.name == "create_upload":
            return asked | {"content": ARCHIVE}
        if route.method == "PUT" and route.name not in SOUND:
            return asked | {"content": PART, "params": {"sha256": sha256(PART).hexdigest()}}
        if route.name not in SOUND:
            raise LookupError(f"{route.name}: nobody has said which body is sound")
        body = SOUND[route.name]
        for place, text in given.items():
            body = put(body, place.field, text) if place.where == "body" else body
        return asked | {"json": body}

    def set_member(self) -> None:
        """Make the member of the project one again."""
        join(self.person, self.named["member"])

    async def set_key(self) -> None:
        """Set the third-party key of the holder's project again."""
        await _set_key(self.person, self.word, self.named["key type"])

    def _needed(self, route: Route) -> dict[Place, str]:
        wanted = NEEDED.get(route.name, ())
        return {
            place: self.named[kind]
            for place, kind in named_places(route).items()
            if place.where == "path" or place.field in wanted
        }

    @property
    def marks(self) -> set[str]:
        """What no answer to another account may show."""
        return {self.word, *self.named.values()}


async def _set_key(person: Person, word: str, key_type: str) -> None:
    of_service = {"type": key_type, "value": f"{word}-key:hidden-hidden"}
    await person.made(f"/v1/projects/{person.project_id}/credentials", of_service)


def _member(site: Site, person: Person, word: str) -> str:
    """A user of a third account, who is a member of the person's project."""
    third = site.account(f"guest of {word}")
    join(person, third.user_id)
    return third.user_id


def join(person: Person, user_id: str) -> None:
    """Make a user of another account a member of the person's project."""
    member = tables.ProjectMember(
        project_id=person.project_id, user_id=user_id, permissions={"job": "read"},
        created_at=BEGAN,
    )  # fmt: skip
    with person.site.database.write() as session:
        session.merge(member)


def _transaction(person: Person, word: str, job_id: str) -> None:
    """A usage fee of the job, as billing posts it."""
    site = person.site
    site.write(
        tables.LedgerTransaction(
            id=f"trx-{word}", business_key=word, kind="usage-fee", account_id=person.account_id,
            job_id=job_id, description=f"{word} usage", details={}, at=BEGAN,
        )
    )  # fmt: skip
    accounts = [f"account/{person.account_id}/{name}" for name in ("credits", word)]
    site.write(*(tables.LedgerAccount(name=name) for name in accounts))
    site.write(
        *(
            tables.LedgerPosting(
                transaction_id=f"trx-{word}", leg=leg, ledger_account=name,
                amount_microcredits=2 * leg - 1, balance_after_microcredits=2 * leg - 1,
            )
            for leg, name in enumerate(accounts)
        )
    )  # fmt: skip


def _sealed(person: Person, word: str, cloud_id: str) -> str:
    """The credentials of the cloud, as its provider keeps them."""
    site = person.site
    place = own_place("gcp", cloud_id)
    with site.database.write() as session:
        credentials = seal_credentials(session, person.account_id, place, f"{word} hidden", BEGAN)
    site.set(tables.Provider, cloud_id, kind="gcp", name=f"{word} cloud", credentials=credentials)
    return credentials


async def holdings(person: Person, word: str) -> Holdings:
    """One thing of each kind, as the API and the workflows of this person have made it."""
    site = person.site
    site.set(tables.Account, person.account_id, wallet_address=f"{word} wallet", plan="enterprise")
    region_id = await person.region(f"{word} region", public=False)
    (region,) = site.rows(tables.Region, id=region_id)
    node_id = await person.node(region_id, f"{word} node", gpu_type="A100", gpu_count=1)
    site.set(tables.Node, node_id, status="active")
    site.set(tables.Region, region_id, storage_mode="central")  # So that it takes configurations.
    storage = {"region_id": region_id, "name": f"{word} store", "services": ["storage"]}
    store = await person.made("/v1/nodes", storage | {"minion_id": host_key()[1]})
    site.set(tables.Node, store["id"], status="offline", host="10.0.0.9")
    (node,) = site.rows(tables.Node, id=node_id)
    site.write(lease_row(region, f"lea-{word}", name=f"baseload-{word}"))
    key = await person.made("/v1/api-keys", {"name": f"{word} key"})
    cloud_id = await person.provider()
    credentials = _sealed(person, word, cloud_id)
    secrets = f"/v1/projects/{person.project_id}/secrets"
    await person.made(secrets, {"name": f"{word}-secret", "value": f"{word} hidden"})
    key_type = "aws" if word == "ada-lovelace" else "ngc"
    await _set_key(person, word, key_type)
    job_id = await running_job(person, node_id, name=f"{word} job", port=8888)
    _transaction(person, word, job_id)
    asked = {"name": f"{word} files", "source": {"type": "upload"}}
    artifacts = {
        noun.name: (await person.made(f"/v1/{noun.plural}", asked))["id"] for noun in ARTIFACT_NOUNS
    }
    invitation = await person.made(
        "/v1/invitations", {"email": f"guest@{word}.test", "role": "member"}
    )
    named = {
        **artifacts,
        "invitation": invitation["id"],
        "invitation token": invitation["secret"],
        "member": _member(site, person, word),
        "account": person.account_id,
        "user": person.user_id,
        "key": key["id"],
        "project": person.project_id,
        "secret": f"{word}-secret",
        "key type": key_type,
        "secret reference": f"store://projects/{person.project_id}/{word}-secret",
        "provider": region.provider_id,
        "cloud": cloud_id,
        "credentials": credentials,
        "region": region_id,
        "node": node_id,
        "minion": node.minion_id,
        "lease": f"lea-{word}",
        "machine": f"baseload-{word}",
        "transaction": f"trx-{word}",
        "upload": (await person.upload(tar_gz({f"{word}.py": b"1"}))).json()["id"],
        "job": job_id,
        "datastore": datastore(site, person, region_id, name=f"{word} share"),
        "reservation": reservation(site, person, region_id, name=f"{word} name"),
        "boot-drive-request": boot_drive_request(
            site, person, region_id, ship_to=[f"{word} house", "London"]
        ),
        "token": await person.join_token(region_id),
        "federated-job": federated_job(person, model_id=artifacts["model"]),
        **await edge_things(person, region_id, word),
    }
    return Holdings(person, word, named)


def all_rows(database: Database) -> set[str]:
    """Every row of the database, as text; when a key was last used does not count."""
    return {text for text, _ in _rows(database)}


def rows_of_others(database: Database, holder: Holdings) -> set[str]:
    """Every row of the database but the holder's own."""
    account_id = holder.person.account_id
    found = list(_rows(database))
    own = {row["id"] for _, row in found if row.get("account_id") == account_id and "id" in row}
    own |= {account_id}
    return {text for text, row in found if not own & _ids(row)}


def _rows(database: Database) -> Iterator[tuple[str, dict[str, Any]]]:
    with database.read() as session:
        for table in SQLModel.metadata.sorted_tables:
            for each in session.execute(select(table)):
                row = dict(each._mapping)
                yield f"{table.name} {row | {'last_used_at': None}}", row


def _ids(row: dict[str, Any]) -> set[str]:
    """What a row says of whose it is, or whose thing it is about."""
    names = ["id", "account_id", "resource_id", "job_id", "payer_id"]
    if "account_id" not in row:  # It is a part of another row.
        names += ["configuration_id", "deployment_id"]
    return {row[name] for name in names if isinstance(row.get(name), str)}


@contextmanager
def listed_machines() -> Iterator[None]:
    """The cloud of everybody lists no machine meanwhile."""
    with kind_with(driver=lambda _: RentedDriver()):
        yield
