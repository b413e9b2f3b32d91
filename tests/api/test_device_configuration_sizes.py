"""What a configuration may come to by many small changes."""

import pytest

from activities.db import tables
from activities.devices import revisions
from tests.api.device_rows import configuration, device, edge_region, set_to
from tests.api.http_server import Person, Site

MOST_BYTES = 1 << 20
"""As much as a single request may bring."""


async def test_changes_make_no_document_that_one_request_could_not_send(
    site: Site, ada: Person
) -> None:
    path = f"/v1/device-configurations/{await configuration(ada, await edge_region(site, ada))}"
    for turn in range(4):
        variables = {f"V_{turn}_{index}": "x" * 100_000 for index in range(4)}
        answer = await ada.patch(path, {"environment": {"variables": variables}})
        if answer.status_code != 200:
            break
    assert answer.json()["errors"][0]["field"] == "environment.variables"
    await ada.patch(path, {"command": "python serve.py --again"})
    rows = site.rows(tables.DeviceRevision)
    assert max(len(row.sealed_variables or b"") for row in rows) <= MOST_BYTES


async def test_variables_that_stay_the_same_are_stored_once(site: Site, ada: Person) -> None:
    variables = {"KEY": "x" * 1000}
    configuration_id = await configuration(
        ada, await edge_region(site, ada), environment={"variables": variables}
    )
    path = f"/v1/device-configurations/{configuration_id}"
    for turn in range(3):
        assert (await ada.patch(path, {"command": f"serve {turn}"})).status_code == 200
    rows = site.rows(tables.DeviceRevision)
    assert [row.revision for row in rows if row.sealed_variables] == [1]
    with site.database.read() as session:
        for row in rows:
            opened = revisions.opened(session, row)
            assert opened["environment"]["variables"] == variables
    await ada.patch(path, {"environment": {"variables": {"KEY": None}}})
    (last,) = site.rows(tables.DeviceRevision, revision=5)
    with site.database.read() as session:
        assert revisions.opened(session, last)["environment"]["variables"] == {}


async def test_old_revisions_go_that_nothing_uses(
    site: Site, ada: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revisions, "KEPT_REVISIONS", 2)
    region_id = await edge_region(site, ada)
    configuration_id = await configuration(
        ada, region_id, environment={"variables": {"KEY": "first"}}
    )
    path = f"/v1/device-configurations/{configuration_id}"
    await ada.patch(path, {"command": "serve 2"})
    device_id = await device(site, ada, region_id)
    await set_to(ada, configuration_id, device_id)
    site.set(
        tables.Device, device_id, running_configuration_id=configuration_id, running_revision=2
    )
    for turn in range(3, 7):
        change = {"command": f"serve {turn}", "environment": {"variables": {"KEY": f"{turn}"}}}
        assert (await ada.patch(path, change)).status_code == 200
    kept = sorted(row.revision for row in site.rows(tables.DeviceRevision))
    assert kept == [1, 2, 5, 6]  # The second has the variables of the first.
    assert (await ada.get(f"{path}/revisions/3")).status_code == 404
    site.set(tables.Device, device_id, status="archived")
    assert (await ada.call("DELETE", path)).status_code == 200
    assert site.rows(tables.DeviceRevision) == []


async def test_revisions_with_large_variables_are_kept_up_to_a_limit_of_bytes(
    site: Site, ada: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revisions, "KEPT_BYTES", 250_000)
    path = f"/v1/device-configurations/{await configuration(ada, await edge_region(site, ada))}"
    for turn in range(5):
        change = {"environment": {"variables": {"KEY": str(turn) * 100_000}}}
        assert (await ada.patch(path, change)).status_code == 200
    kept = sorted(row.revision for row in site.rows(tables.DeviceRevision))
    assert kept == [5, 6]
