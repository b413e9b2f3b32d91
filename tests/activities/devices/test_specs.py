"""The sealed spec of an assignment: given to a device, for its site alone, and gone afterwards."""

import pytest
from temporalio.exceptions import ApplicationError

from activities.db import tables
from activities.db.session import Database
from activities.devices.specs import discard_device_specs, seal_device_spec
from activities.settings import settings
from activities.storage.blobs import blob_store
from activities.storage.run_specs import open_run_spec
from tests.activities.devices.rows import add_configuration, add_device
from workflows.contracts.devices import DeviceAssignment
from workflows.contracts.errors import WORK_REFUSED
from workflows.effects.devices import DiscardDeviceSpecs, SealDeviceSpec


@pytest.fixture
def device(migrated: Database) -> tables.Device:
    with migrated.write() as session:
        configuration = add_configuration(
            session,
            environment={"image": "shop/detector:3"},
            health={"up_s": 7, "log_line": "ready"},
        )
        return add_device(session, configuration, "shop-1")


def seal(device: tables.Device, number: int, revision: int = 1) -> str:
    assignment = DeviceAssignment(
        number=number, configuration_id=device.configuration_id, revision=revision
    )
    sealed = seal_device_spec(SealDeviceSpec(device_id=device.id, assignment=assignment))
    assert (sealed.health.up_s, sealed.health.log_line) == (7, "ready")
    return sealed.reference


def stored(device: tables.Device) -> list[str]:
    return blob_store(settings().storage).names(f"device-specs/{device.id}")


def test_it_has_command_image_and_variables_and_nobody_else_can_read_it(
    device: tables.Device,
) -> None:
    reference = seal(device, 1)
    spec = open_run_spec(reference, device.region_id)
    assert (spec.run_id, spec.command) == (f"{device.id}-0-1", "sh serve.sh")
    assert spec.image == "docker.io/shop/detector:3"
    assert spec.environment == {"A": "1", "BASELOAD_DEVICE_ID": device.id}
    assert spec.isolation is not None
    assert (spec.isolation.node_id, spec.isolation.owned) == (device.id, True)
    assert b"serve.sh" not in blob_store(settings().storage).get(reference)


def test_a_revision_that_is_not_there_is_refused(device: tables.Device) -> None:
    with pytest.raises(ApplicationError, match="there is no such revision") as refused:
        seal(device, 1, revision=9)
    assert refused.value.type == WORK_REFUSED


def test_those_of_ended_assignments_go_and_a_newer_one_stays(device: tables.Device) -> None:
    for number in (1, 2, 3):
        seal(device, number)
    discard_device_specs(DiscardDeviceSpecs(device_id=device.id, number=2))
    assert stored(device) == [f"device-specs/{device.id}/3"]
    for _ in range(2):
        discard_device_specs(DiscardDeviceSpecs(device_id=device.id))
    assert stored(device) == []
