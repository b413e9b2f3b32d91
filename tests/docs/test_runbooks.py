"""The runbooks of devices do what they say, at a device and at a deployment that are stuck.

The API, the rows, Temporal with its UI, the lifecycles and the programs that are typed are real;
the devices are those of the tests' world.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import pytest
from temporalio.client import Client
from temporalio.exceptions import ApplicationError

import activities.temporal.client as temporal_client
from activities.db import tables
from activities.devices import assignments, rollouts
from activities.lifecycles import record as lifecycle_records
from activities.lifecycles.kinds import KINDS
from activities.outbox.relay import relay
from activities.outbox.workflow_starts import register
from tests.api.device_rows import configuration, device, edge_region, set_to
from tests.api.http_server import Person, Site
from tests.api.test_deployments import credit
from tests.client.served import served as api_served
from tests.docs.runbooks import RunbookReader, TemporalUi, pages_of, programs_in, reader_of
from tests.temporal_server import TemporalServer, tctl_binary
from tests.waiting import eventually
from tests.workflows.conftest import Stage, at_work, end_open_workflows
from tests.workflows.fake_devices import JETSON
from tests.workflows.fake_machines import Machine
from tests.workflows.fake_world import World
from workflows.contracts.base import Contract
from workflows.contracts.devices import DeviceAssignment, DeviceRun, InferenceStatus
from workflows.contracts.lifecycles import Record, Recorded
from workflows.devices.deployment_lifecycle import DeploymentLifecycle
from workflows.devices.device_lifecycle import DeviceLifecycle
from workflows.effects import deployments, devices

DEVICE, DEPLOYMENT = "deploy/runbooks/device-not-up.md", "deploy/runbooks/deployment-hangs.md"
NAME, ADDRESS = "shop-7", "10.0.0.1"
LAST_WORDS = "CUDA error: out of memory"


@dataclass
class Shops(World):
    """The tests' world, whose devices and deployments have their rows in a real database."""

    def record(self, step: Record) -> Recorded:
        super().record(step)
        return lifecycle_records.record(step)

    def find_assignment(self, asked: devices.FindAssignment) -> devices.AssignmentFound:
        return assignments.find_assignment(asked)

    def advance_rollout(self, asked: deployments.AdvanceRollout) -> deployments.RolloutState:
        return rollouts.advance_rollout(asked)

    def end_rollout(self, asked: deployments.EndRollout) -> deployments.RolloutState:
        return rollouts.end_rollout(asked)

    def roll_back(self, asked: deployments.RollBack) -> deployments.RolloutState:
        return rollouts.roll_back(asked)


@dataclass
class Scene:
    """A region with devices, its platform, and somebody who follows a runbook there."""

    site: Site
    person: Person
    region_id: str
    stage: Stage
    ui: TemporalUi
    url: str
    stuck: asyncio.Event = field(default_factory=asyncio.Event)
    """Until it is set, what is stuck stays stuck."""

    @property
    def world(self) -> World:
        return self.stage.world

    def reader(self, document: str, programs: Path, **names: str) -> RunbookReader:
        address = self.stage.client.service_client.config.target_host
        environment = {
            "TEMPORAL_CLI_ADDRESS": address,
            "BASELOAD_API": self.url,
            "BASELOAD_API_KEY": self.person.secret,
        }
        given = {f"{noun}-…": name for noun, name in names.items()}
        return reader_of(document, programs, environment, given)

    async def relay(self, request_ids: Sequence[str]) -> None:
        """Deliver outbox rows on the loop of the Temporal client, wherever the API runs."""
        loop = temporal_client.client_loop()
        assert loop is not None
        sent = asyncio.run_coroutine_threadsafe(relay(self.stage.client, request_ids), loop)
        await asyncio.wrap_future(sent)

    async def device(self) -> str:
        """A device whose workflow runs, and which nobody reaches yet. Its id."""
        minion_id = "SHA256:" + "A" * 43
        body = {"region_id": self.region_id, "name": NAME, "minion_id": minion_id}
        made = await self.person.made("/v1/devices", body | {"address": ADDRESS})
        device_id = str(made["id"])
        self.world.machines[device_id] = Machine(
            reachable=False, hardware=JETSON, minion_id=minion_id
        )
        await self.relay([row.id for row in self.rows(tables.OutboxRow, resource_id=device_id)])
        return device_id

    async def unserved(self, name: str, status: str) -> str:
        """A device whose workflow does not run. Its id."""
        values = {"status": status, "sequence": 1}
        device_id = await device(self.site, self.person, self.region_id, name, **values)
        for row in self.rows(tables.OutboxRow, resource_id=device_id):
            self.site.set(tables.OutboxRow, row.id, delivered_at=datetime.now(UTC))
        return device_id

    def rows(self, table: type[Any], **values: Any) -> list[Any]:
        return self.site.rows(table, **values)

    def row(self, table: type[Any], row_id: str) -> Any:
        [found] = self.rows(table, id=row_id)
        return found

    def hangs(self, effect: str, message: str) -> None:
        """Let the next attempt of an effect fail so, and the one after it hang until `stuck`."""

        async def fail(_: Contract) -> None:
            raise ApplicationError(message)

        async def hang(_: Contract) -> None:
            await self.stuck.wait()

        self.stuck.clear()
        self.world.faults[effect] = [fail, hang]

    async def until(self, table: type[Any], row_id: str, **values: Any) -> None:
        """Wait until a row has these values."""

        def has() -> bool:
            row = self.row(table, row_id)
            return all(getattr(row, name) == value for name, value in values.items())

        await eventually(has, f"{row_id} has {values}")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporalServer]:
    """A Temporal server with its UI."""
    found = TemporalServer(tmp_path_factory.mktemp("temporal"), durable=False, ui=True)
    try:
        found.start()
    except FileNotFoundError as cause:
        _skip(cause)
    yield found
    found.stop()


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder with `tctl` and `baseload`."""
    try:
        return programs_in(tmp_path / "bin", tctl_binary())
    except FileNotFoundError as cause:
        _skip(cause)


def _skip(cause: FileNotFoundError) -> NoReturn:
    if os.environ.get("CI") == "true":
        raise cause
    pytest.skip(str(cause))


@pytest.fixture(scope="module")
async def temporal(server: TemporalServer) -> Client:
    return await server.connect()


@pytest.fixture
async def scene(
    site: Site, temporal: Client, server: TemporalServer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Scene]:
    register(KINDS)
    monkeypatch.setattr(temporal_client, "_client", temporal)
    monkeypatch.setattr(temporal_client, "_loop", asyncio.get_running_loop())
    person = site.account("ada", administrator=True)
    credit(site, person, 10)
    region_id = await edge_region(site, person)
    world = Shops(client=temporal)
    with closing(TemporalUi(server.ui_port)) as ui, api_served(site.app) as url:
        stage = Stage(temporal, world)
        found = Scene(site, person, region_id, stage, ui, url)
        async with at_work(temporal, world, (DeviceLifecycle, DeploymentLifecycle)):
            yield found
            found.stuck.set()
            await end_open_workflows(temporal)


async def shows(condition: Callable[[], bool], what: str) -> None:
    """Wait until the UI shows it; visibility follows later."""
    await eventually(lambda: asyncio.to_thread(condition), what)


def answer_of(printed: str) -> Any:
    """What a query of tctl has answered."""
    [answer] = json.loads(printed.partition("Query result:")[2])
    return answer


async def pages_are_there(scene: Scene, reader: RunbookReader, workflow_id: str) -> str:
    """The page of a runbook that lists workflows; all that it names are served."""
    names = {"RUN": scene.ui.run_of(workflow_id)}
    listing, *others = pages_of(reader.document)
    for page in (listing, *others):
        path = reader.named(page).replace("RUN", names["RUN"])
        assert await asyncio.to_thread(scene.ui.has_page, path), path
    assert all(workflow_id.replace("/", "%2F") in reader.named(page) for page in others)
    return listing


async def test_the_runbook_of_a_device_that_does_not_come_up(scene: Scene, programs: Path) -> None:
    device_id = await scene.device()
    reader = scene.reader(DEVICE, programs, dev=device_id)
    workflow_id = f"device/{device_id}"
    why = f"{device_id}: no route"
    await scene.until(tables.Device, device_id, status_reason=why)
    shown = await reader.types("baseload device show")
    assert "connecting" in shown
    assert why in shown
    assert "device.not-reached" in await reader.types("baseload events")
    asked = answer_of(await reader.types("tctl workflow query"))
    assert (asked["status"], asked["status_reason"]) == ("connecting", why)
    listing = await pages_are_there(scene, reader, workflow_id)
    await shows(
        lambda: scene.ui.listed(listing) == {workflow_id: "connecting"}, "it is listed with status"
    )
    details = await asyncio.to_thread(scene.ui.current_details, workflow_id)
    assert details.startswith("**connecting** since step ")
    assert why in details

    scene.world.machines[device_id].reachable = True
    await reader.types("tctl workflow signal")
    await scene.until(tables.Device, device_id, status="active")
    await shows(lambda: "watch_device" in scene.ui.pending(workflow_id), "its watch is pending")

    scene.hangs("stage_on_device", "ghcr.io does not answer")
    configuration_id = await configuration(scene.person, scene.region_id)
    asks_without_a_wake(scene, device_id, configuration_id)
    await reader.types("tctl workflow signal")
    staging = {"stage_on_device": (2, "ghcr.io does not answer")}
    await shows(lambda: scene.ui.pending(workflow_id) == staging, "the UI names what is missing")
    described = json.loads(await reader.types("tctl workflow describe"))
    [pending] = described["pendingActivities"]
    assert (pending["activityType"]["name"], pending["attempt"]) == ("stage_on_device", 2)
    assert "ghcr.io does not answer" in json.dumps(pending["lastFailure"])

    scene.stuck.set()
    await scene.until(tables.Device, device_id, inference_status="running", running_revision=1)
    history = await reader.types("tctl workflow show")
    for event in ("stage_on_device", "switch_device", "SignalName:wake"):
        assert event in history
    summary = f"revision 1 of {configuration_id}"
    assert summary in await asyncio.to_thread(scene.ui.summaries, workflow_id)
    assert summary not in history, "tctl shows no summaries"

    exits(scene, device_id)
    await scene.until(tables.Device, device_id, inference_status="failed")
    shown = await reader.types("baseload device show")
    assert LAST_WORDS in shown
    assert "exit code" in shown
    assert reader.untyped == set()


def asks_without_a_wake(scene: Scene, device_id: str, configuration_id: str) -> None:
    """Write an assignment into the row of a device, whose wake is lost."""
    with scene.site.database.write() as session:
        row = session.get_one(tables.Device, device_id)
        assignment = DeviceAssignment(number=0, configuration_id=configuration_id, revision=1)
        assignments.ask(session, row, assignment, datetime.now(UTC))


def exits(scene: Scene, device_id: str) -> None:
    """The command of the device ends by itself."""
    here = scene.world.on_devices[device_id]
    here.run = DeviceRun(
        number=here.run.number, status=InferenceStatus.FAILED, exit_code=7, reason=LAST_WORDS
    )
    scene.world.machines[device_id].changed.set()


async def shows_what_hangs(scene: Scene, reader: RunbookReader) -> None:
    """The command, tctl and the UI say how far each device of the deployment is."""
    deployment_id = reader.names["dpl-…"]
    workflow_id = f"deployment/{deployment_id}"
    asked = answer_of(await reader.types("tctl workflow query"))
    assert (asked["status"], asked["counts"]["asked"], asked["counts"]["away"]) == (
        "rolling_out", 1, 1
    )  # fmt: skip
    listed = await reader.types("baseload deployment ls")
    assert deployment_id in listed
    assert "rolling out" in listed
    shown = await reader.types("baseload deployment show")
    lines = {line.split()[0]: line for line in shown.splitlines() if line.startswith("shop-")}
    states = {name: line.split()[2] for name, line in lines.items()}
    assert states == {"shop-7": "asked", "shop-8": "waiting", "shop-9": "waiting"}
    listing = await pages_are_there(scene, reader, workflow_id)
    await shows(
        lambda: scene.ui.listed(listing) == {workflow_id: "rolling_out"}, "it is listed with status"
    )
    details = await asyncio.to_thread(scene.ui.current_details, workflow_id)
    assert "**rolling_out** since step " in details
    assert "0 of 3 devices run it, 1 under way, 1 away, 1 not asked yet" in details


@dataclass
class ThreeShops:
    """Three devices of one configuration, and its deployments to them.

    One brings a revision to itself, one is away, and one has still to be asked.
    """

    scene: Scene
    configuration_id: str
    device_id: str
    away: str
    next_one: str
    deployment_id: str = ""

    async def deploy(self) -> str:
        body = {"configuration_id": self.configuration_id, "max_unavailable": 1}
        made = await self.scene.person.made("/v1/device-deployments", body)
        self.deployment_id = str(made["id"])
        return self.deployment_id

    async def counted(self, **expected: int) -> None:
        def are() -> bool:
            counts = self.scene.row(tables.DeviceDeployment, self.deployment_id).counts
            return {name: number for name, number in counts.items() if number} == expected

        await eventually(are, f"the deployment counts {expected}")

    async def until(self, status: str) -> None:
        await self.scene.until(tables.DeviceDeployment, self.deployment_id, status=status)


@pytest.fixture
async def shops(scene: Scene) -> ThreeShops:
    device_id = await scene.device()
    scene.world.machines[device_id].reachable = True
    away = await scene.unserved("shop-8", status="offline")
    next_one = await scene.unserved("shop-9", status="active")
    await scene.until(tables.Device, device_id, status="active")
    configuration_id = await configuration(scene.person, scene.region_id)
    await set_to(scene.person, configuration_id, device_id, away, next_one)
    scene.site.app.state.outbox_dispatcher.relay = scene.relay
    return ThreeShops(scene, configuration_id, device_id, away, next_one)


async def test_the_runbook_of_a_deployment_that_hangs(
    scene: Scene, shops: ThreeShops, programs: Path
) -> None:
    scene.hangs("stage_on_device", "ghcr.io does not answer")
    deployment_id = await shops.deploy()
    reader = scene.reader(DEPLOYMENT, programs, dpl=deployment_id)
    await shops.counted(asked=1, away=1, waiting=2)
    await shows_what_hangs(scene, reader)

    # A device that is back is counted at once, where somebody asks for it.
    scene.site.set(tables.Device, shops.away, status="active")
    await reader.types("tctl workflow signal")
    await shops.counted(asked=1, waiting=2)

    # Paused, it counts and asks nobody; resumed, it goes on.
    await reader.types("baseload deployment pause")
    await shops.until("paused")
    scene.stuck.set()
    await shops.counted(running=1, waiting=2)
    scene.site.set(tables.Device, shops.away, status="offline")
    await reader.types("baseload deployment resume")
    await shops.until("rolling_out")
    await shops.counted(asked=1, away=1, running=1, waiting=1)

    scene.hangs("advance_rollout", "the database does not answer")
    await reader.types("tctl workflow signal")
    advancing = {"advance_rollout": (2, "the database does not answer")}
    workflow_id = f"deployment/{deployment_id}"
    await shows(lambda: scene.ui.pending(workflow_id) == advancing, "the UI says what is away")
    scene.stuck.set()

    await reader.types("baseload deployment roll-back")
    await shops.until("rolled_back")
    assigned = {each.name: each.assignment_revision for each in scene.rows(tables.Device)}
    assert assigned == {"shop-7": None, "shop-8": None, "shop-9": None}
    await scene.until(tables.Device, shops.device_id, inference_status="stopped")

    await stops(shops, reader)
    assert reader.untyped == set()


async def stops(shops: ThreeShops, reader: RunbookReader) -> None:
    """Stop another deployment: what was asked stays asked, and nobody else is asked."""
    scene = shops.scene
    scene.hangs("stage_on_device", "ghcr.io does not answer")
    reader.names["dpl-…"] = second = await shops.deploy()
    await shops.counted(asked=1, away=1, waiting=2)
    await reader.types("baseload deployment stop")
    await shops.until("stopped")
    targets = scene.rows(tables.DeploymentTarget, deployment_id=second)
    states = {each.device_id: each.state for each in targets}
    assert states[shops.device_id] == "left"
    assert states[shops.away] == states[shops.next_one] == "withdrawn"
    assert scene.row(tables.Device, shops.device_id).assignment_deployment_id == second
