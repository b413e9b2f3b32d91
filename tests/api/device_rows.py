"""Devices over HTTP: a region that takes them, and devices that are active."""

from datetime import UTC, datetime
from typing import Any

from activities.db import tables
from activities.db.ids import new_id
from activities.devices.revisions import add_revision
from tests.api.http_server import Person, Site, host_key
from workflows.contracts.device_configurations import DeviceDocument


async def edge_region(site: Site, person: Person, name: str = "home") -> str:
    """A region with central storage, whose storage node is active."""
    region_id = await person.region(name, storage_mode="central")
    body = {"region_id": region_id, "name": "store", "services": ["storage"]}
    made = await person.made("/v1/nodes", body | {"minion_id": host_key()[1]})
    site.set(tables.Node, made["id"], status="active", host="10.0.0.1")
    return region_id


async def device(
    site: Site, person: Person, region_id: str, name: str = "shop-1", **values: Any
) -> str:
    """A device that is active."""
    body = {"region_id": region_id, "name": name, "minion_id": host_key()[1]}
    device_id: str = (await person.made("/v1/devices", body))["id"]
    site.set(tables.Device, device_id, **{"status": "active", "host": "10.0.0.2", **values})
    return device_id


async def configuration(person: Person, region_id: str, **more: Any) -> str:
    """A configuration with one revision."""
    body = {"region_id": region_id, "name": "detector", "command": "python serve.py", **more}
    configuration_id: str = (await person.made("/v1/device-configurations", body))["id"]
    return configuration_id


async def set_to(person: Person, configuration_id: str, *device_ids: str) -> None:
    """Let devices have a configuration."""
    for each in device_ids:
        response = await person.patch(f"/v1/devices/{each}", {"configuration_id": configuration_id})
        assert response.status_code == 200, response.text


def follows(site: Site, device_id: str, configuration_id: str | None, revision: int | None) -> None:
    """What a device's lifecycle records when it runs what was asked of it."""
    (row,) = site.rows(tables.Device, id=device_id)
    site.set(
        tables.Device,
        device_id,
        running_configuration_id=configuration_id,
        running_revision=revision,
        inference_status="running" if configuration_id else "stopped",
        followed_number=row.assignment_number,
    )


def _configuration_row(person: Person, region_id: str, name: str) -> str:
    """A configuration with one revision, as a row, in any region."""
    now, configuration_id = datetime.now(UTC), new_id("dcf")
    row = tables.DeviceConfiguration(
        id=configuration_id, account_id=person.account_id, region_id=region_id,
        project_id=person.project_id, name=name, created_at=now, updated_at=now,
    )  # fmt: skip
    with person.site.database.write() as session:
        session.add(row)
        session.flush()
        add_revision(session, row, DeviceDocument(command="python serve.py"), person.user_id)
    return configuration_id


async def edge_things(person: Person, region_id: str, word: str) -> dict[str, str]:
    """By kind: a configuration, a device that is set to it, and a deployment of it, in any region.

    word: stands in their names.
    """
    now = datetime.now(UTC)
    configuration_id = _configuration_row(person, region_id, f"{word} model")
    own: dict[str, Any] = {
        "account_id": person.account_id,
        "region_id": region_id,
        "created_at": now,
    }
    device_id, deployment_id = new_id("dev"), new_id("dpl")
    person.site.write(
        tables.Device(
            id=device_id, name=f"{word} device", minion_id=host_key()[1], status="active",
            host="10.0.0.3", hardware=None, requirements=[], preparation=None, updated_at=now,
            configuration_id=configuration_id, **own,
        ),
        tables.DeviceDeployment(
            id=deployment_id, name=f"{word} deployment", status="rolling_out", policy={},
            configuration_id=configuration_id, revision=1, counts={}, updated_at=now, **own,
        ),
    )  # fmt: skip
    person.site.write(
        tables.DeploymentTarget(deployment_id=deployment_id, device_id=device_id, updated_at=now)
    )
    return {
        "device": device_id,
        "device configuration": configuration_id,
        "device-deployment": deployment_id,
    }
