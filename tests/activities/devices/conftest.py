"""The tests of this room seal what devices are given, and deploy to a few of them."""

import pytest

from activities.db.session import Database
from tests.activities.devices.rollout import NAMES, Rollout
from tests.activities.devices.rows import add_configuration, add_deployment, add_device


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BASELOAD_SECRETS_KEY", "11" * 32)


@pytest.fixture
def rollout(migrated: Database) -> Rollout:
    with migrated.write() as session:
        configuration = add_configuration(session)
        devices = {
            name: add_device(session, configuration, name, "offline" if name == "d" else "active")
            for name in NAMES
        }
        deployment = add_deployment(session, configuration, list(devices.values()))
    return Rollout(migrated, configuration, devices, deployment)
