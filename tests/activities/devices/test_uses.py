"""What devices use stays: artifacts and datastores of revisions, and their region."""

import pytest
from sqlmodel import Session

from activities.db import tables
from activities.db.session import Database
from activities.devices.revisions import configurations_using
from activities.lifecycles.dependents import dependents_of, own_dependents_of
from activities.lifecycles.record import record
from tests.activities.devices.rows import add_configuration, add_deployment, add_device
from tests.activities.rows import NOW
from workflows.contracts.lifecycles import Record, RegionChanges

MODEL = "mod-1"
LATEST, EARLIER = 2, 1


def used(session: Session, revision: int) -> tables.DeviceConfiguration:
    """A configuration of which this revision alone uses the model."""
    configuration = add_configuration(session)
    session.add(
        tables.DeviceRevisionUse(
            configuration_id=configuration.id, revision=revision, resource_id=MODEL
        )
    )
    session.flush()
    return configuration


def users(database: Database) -> list[str]:
    with database.read() as session:
        return [row.id for row in configurations_using(session, MODEL)]


def test_what_the_latest_revision_uses_stays_until_its_configuration_is_removed(
    migrated: Database,
) -> None:
    with migrated.write() as session:
        row = used(session, LATEST)
        configuration_id = row.id
    assert users(migrated) == [configuration_id]
    with migrated.read() as session:
        assert dependents_of(session, MODEL) == [configuration_id]
        assert dependents_of(session, "dst-1") == []
    with migrated.write() as session:
        session.get_one(tables.DeviceConfiguration, configuration_id).removed_at = NOW
    assert users(migrated) == []


@pytest.mark.parametrize("column", ["running", "assignment"])
def test_what_an_earlier_revision_uses_stays_while_a_device_has_it_or_is_to(
    migrated: Database, column: str
) -> None:
    with migrated.write() as session:
        configuration = used(session, EARLIER)
        device = add_device(session, configuration, "shop")
        configuration_id, device_id = configuration.id, device.id
    assert users(migrated) == []
    with migrated.write() as session:
        row = session.get_one(tables.Device, device_id)
        setattr(row, f"{column}_configuration_id", configuration_id)
        setattr(row, f"{column}_revision", EARLIER)
    assert users(migrated) == [configuration_id]
    with migrated.write() as session:
        session.get_one(tables.Device, device_id).status = "archived"
    assert users(migrated) == []


def test_what_a_device_returns_to_stays_while_its_deployment_is_under_way(
    migrated: Database,
) -> None:
    with migrated.write() as session:
        configuration = used(session, EARLIER)
        device = add_device(session, configuration, "shop")
        deployment = add_deployment(session, configuration, [device], LATEST)
        configuration_id, key = configuration.id, (deployment.id, device.id)
    assert users(migrated) == []
    with migrated.write() as session:
        target = session.get_one(tables.DeploymentTarget, key)
        target.earlier_configuration_id, target.earlier_revision = configuration_id, EARLIER
    assert users(migrated) == [configuration_id]
    with migrated.write() as session:
        session.get_one(tables.DeviceDeployment, key[0]).status = "rolled_back"
    assert users(migrated) == []


def test_a_region_has_its_devices(migrated: Database) -> None:
    with migrated.write() as session:
        configuration = add_configuration(session)
        statuses = ("active", "removing", "archived")
        there, leaving, _ = (add_device(session, configuration, each, each).id for each in statuses)
        region_id = configuration.region_id
        assert set(dependents_of(session, region_id)) == {there, leaving}
        assert own_dependents_of(session, region_id) == {leaving}
        assert dependents_of(session, there) == []


def test_the_configurations_of_a_region_stay_until_it_is_gone(migrated: Database) -> None:
    with migrated.write() as session:
        configuration = add_configuration(session)
        configuration_id, region_id = configuration.id, configuration.region_id
        account_id = configuration.account_id
        sequence = session.get_one(tables.Region, region_id).sequence
    for number, status in enumerate(("removing", "archived"), sequence + 1):
        with migrated.read() as session:
            assert session.get_one(tables.DeviceConfiguration, configuration_id).removed_at is None
        step = Record(
            resource_id=region_id,
            account_id=account_id,
            sequence=number,
            at=NOW,
            status=status,
            changes=RegionChanges(),
        )
        assert record(step).applied
    with migrated.read() as session:
        assert session.get_one(tables.DeviceConfiguration, configuration_id).removed_at == NOW
