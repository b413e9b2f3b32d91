"""Very many devices in rows, with deployments that have ended and one that is under way."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import Any

from sqlalchemy import insert
from sqlmodel import Session, SQLModel

from activities.db import tables
from activities.db.session import Database
from api.authorization import Caller
from tests.activities.devices.rows import add_configuration, add_deployment, add_device
from tests.activities.rows import NOW

ROWS_AT_ONCE = 1000
LONG_AGO = NOW - timedelta(days=30)


@dataclass(frozen=True)
class Fleet:
    """Devices of one configuration, oldest first; all of them follow their assignment."""

    configuration: tables.DeviceConfiguration
    device_ids: list[str]
    deployment_ids: list[str]
    """Of deployments to all devices, which have ended."""

    @property
    def caller(self) -> Caller:
        """Somebody of the account that has the configuration."""
        account_id = self.configuration.account_id
        return Caller(
            account_id=account_id, user_id="ada", key_id="", scopes=frozenset(),
            is_administrator=False, home_account_id="",
        )  # fmt: skip

    def deploy(self, database: Database, count: int) -> str:
        """Begin a deployment of revision 2 to the first devices; its id."""
        with database.write() as session:
            row = add_deployment(session, self.configuration, (), 2)
            _fill(session, tables.DeploymentTarget, self._targets(row.id, "waiting", count))
        return row.id

    def _targets(self, deployment_id: str, state: str, count: int) -> Iterator[dict[str, Any]]:
        for device_id in self.device_ids[:count]:
            target = tables.DeploymentTarget(
                deployment_id=deployment_id, device_id=device_id, state=state, updated_at=NOW
            )
            yield target.model_dump() | {"assignment_number": 1 if state == "running" else None}


def add_fleet(database: Database, count: int, ended: int) -> Fleet:
    """So many active devices, and so many ended deployments to all of them.

    As many deployments as there are devices have ended long ago, and have no devices any more.
    """
    with database.write() as session:
        configuration = add_configuration(session)
        one = add_device(session, configuration, "shop")
        ids = [f"dev-{number:020}" for number in range(count)]
        _fill(session, tables.Device, _devices(one, ids))
        deployments = [add_deployment(session, configuration, ()) for _ in range(ended)]
        fleet = Fleet(configuration, ids, [row.id for row in deployments])
        for row in deployments:
            row.status = "finished"
            session.add(row)
            _fill(session, tables.DeploymentTarget, fleet._targets(row.id, "running", count))
        old = deployments[0].model_dump() | {"updated_at": LONG_AGO}
        others = ({**old, "id": f"dpl-{number:020}"} for number in range(count))
        _fill(session, tables.DeviceDeployment, others)
    return fleet


def _devices(one: tables.Device, ids: list[str]) -> Iterator[dict[str, Any]]:
    same = one.model_dump() | {
        "assignment_number": 1,
        "followed_number": 1,
        "assignment_configuration_id": one.configuration_id,
        "assignment_revision": 1,
        "run_number": 1,
        "running_configuration_id": one.configuration_id,
        "running_revision": 1,
        "inference_status": "running",
        "sequence": 9,
        "created_at": LONG_AGO,
        "updated_at": LONG_AGO,
    }
    for each in ids:
        yield {**same, "id": each, "name": each, "minion_id": f"SHA256:{each}"}


def _fill(session: Session, table: type[SQLModel], rows: Iterator[dict[str, Any]]) -> None:
    statement = insert(SQLModel.metadata.tables[str(table.__tablename__)])
    while some := list(islice(rows, ROWS_AT_ONCE)):
        session.execute(statement, some)
