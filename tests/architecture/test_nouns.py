"""A noun with a lifecycle is said once: whatever lists nouns follows from that."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from activities.lifecycles.kinds import KINDS
from tests.architecture.source import LAYERS, ROOT, sources
from workflows.contracts.lifecycles import LIFECYCLE_NOUNS, Record

SAID = (
    "workflows/contracts/",
    "activities/lifecycles/kinds.py",
    "activities/db/tables/__init__.py",  # It names every table again.
)
"""Where nouns are listed."""
ROUTERS = "api/app.py"
"""Where a new noun adds the file of its routes."""

SENSORS = '''
"""A noun that is here alone: sensors."""

from enum import StrEnum

from activities.db.tables import LifecycleRow
from activities.outbox.workflow_starts import LifecycleKind, workflow_start
from workflows.contracts import lifecycles


class SensorEvent(StrEnum):
    REQUESTED = "sensor.requested"


class Sensor(LifecycleRow):
    __tablename__ = "sensors"


def start_sensor(_, row):
    return workflow_start(row, lifecycles.Refresh(), {})


def resume_sensor(_, row, request):
    return request


SENSOR = lifecycles.LifecycleNoun(
    "sen", "sensor", "sensors", "SensorLifecycle", SensorEvent, frozenset({"broken"})
)
lifecycles.LIFECYCLE_NOUNS += (SENSOR,)
KIND = LifecycleKind(SENSOR, Sensor, start_sensor, resume_sensor)
'''

FOUND = '''
"""Every list of nouns that there is, as it is with the noun of this folder."""

import json
from datetime import UTC, datetime

import sensors
from activities.lifecycles import kinds

kinds.KINDS += (sensors.KIND,)
kinds.KIND_BY_NOUN["sensor"] = sensors.KIND

from activities.lifecycles import reconciliation, record, restarts
from activities.outbox.workflow_starts import kind_of, register
from api.authorization import SCOPES
from api.openapi import document
from api.services.ownership import lifecycle
from workflows.contracts.lifecycles import noun_of, workflow_id_of

now = datetime(2026, 1, 1, tzinfo=UTC)
row = sensors.Sensor(
    id="sen-1", account_id="acc-1", name="d", sequence=3, created_at=now, updated_at=now
)
register(kinds.KINDS)
restart = restarts.restart_of(None, row)
print(json.dumps({
    "event": noun_of(row.id).events("sensor.requested"),
    "workflow id": workflow_id_of(row.id),
    "relayed": kind_of(row.id).noun.name,
    "restarted": [restart.workflow, restart.id, restart.summary],
    "recorded in": record.KIND_BY_NOUN["sensor"].table.__tablename__,
    "swept": [kind.noun.name for kind in reconciliation.KINDS],
    "ended": sorted(restarts.KIND_BY_NOUN["sensor"].noun.final_statuses),
    "scopes": sorted(scope for scope in SCOPES if scope.startswith("sensors:")),
    "routes": [path for path in json.loads(document())["paths"] if "sensors" in path],
    "shown": lifecycle(row)["workflow_id"],
}))
'''


def test_a_new_noun_is_found_by_whatever_lists_nouns(tmp_path: Path) -> None:
    (tmp_path / "sensors.py").write_text(SENSORS)
    (tmp_path / "found.py").write_text(FOUND)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "found.py")],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{tmp_path}", "BASELOAD_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "event": "sensor.requested",
        "workflow id": "sensor/sen-1",
        "relayed": "sensor",
        "restarted": ["SensorLifecycle", "sensor/sen-1", "sensor d"],
        "recorded in": "sensors",
        "swept": [*(noun.name for noun in LIFECYCLE_NOUNS), "sensor"],
        "ended": ["broken"],
        "scopes": ["sensors:read", "sensors:write"],
        "routes": ["/v1/sensors/{resource_id}/events"],
        "shown": "sensor/sen-1",
    }


def test_every_noun_has_its_kind_its_changes_and_its_first_event() -> None:
    names = [noun.name for noun in LIFECYCLE_NOUNS]
    assert [kind.noun for kind in KINDS] == list(LIFECYCLE_NOUNS)
    changes = Record.model_json_schema()["properties"]["changes"]["discriminator"]["mapping"]
    assert sorted(changes) == sorted(names)
    for noun in LIFECYCLE_NOUNS:
        assert noun.events(f"{noun.name}.requested")
        assert all(event.startswith(f"{noun.name}.") for event in noun.events)


@pytest.mark.parametrize("layer", LAYERS)
def test_nouns_are_listed_nowhere_else(layer: str) -> None:
    wrong = [
        f"{source.name}:{getattr(node, 'lineno', 0)}: lists {', '.join(sorted(named))}"
        for source in sources(layer)
        if not source.name.startswith((*SAID, ROUTERS))
        for node in ast.walk(source.tree)
        for parts in lists_of(node)
        if len(named := {each for part in parts for each in nouns_in(part)}) > 2
    ]
    assert not wrong, "\n".join(wrong)


NAMED = {
    word: noun.name
    for noun in LIFECYCLE_NOUNS
    for word in (noun.name, noun.plural, noun.prefix, noun.workflow, noun.name.title())
}


def lists_of(node: ast.AST) -> list[list[ast.expr]]:
    """What a literal lists, a chain of `or` asks, or a chain of `if` looks at."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return [node.elts]
    if isinstance(node, ast.Dict):
        return [[key for key in node.keys if key is not None], node.values]
    if isinstance(node, ast.BoolOp):
        return [node.values]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return [[each.test for each in ast.walk(node) if isinstance(each, ast.If)]]
    return []


def nouns_in(part: ast.expr) -> set[str]:
    """The noun that a constant, a class or a module names, or that an `isinstance` asks for."""
    if isinstance(part, ast.Call) and ast.unparse(part.func) == "isinstance":
        return nouns_in(part.args[1])
    if isinstance(part, ast.BoolOp):
        return {found for value in part.values for found in nouns_in(value)}
    if isinstance(part, ast.Attribute) and ast.unparse(part.value).endswith("data"):
        return set()  # A field of a job's data, which is named like what it takes.
    if isinstance(part, ast.Compare):
        return {found for value in part.comparators for found in nouns_in(value)}
    word = part.value if isinstance(part, ast.Constant) else ast.unparse(part).rpartition(".")[2]
    return {NAMED[word]} if isinstance(word, str) and word in NAMED else set()


@pytest.mark.parametrize(
    "text",
    [
        'TABLES = {"prv": Provider, "reg": Region, "nod": Node}',
        "counted = (tables.Provider, tables.Region, tables.Node)",
        'NOUNS = ("users", "providers", "regions", "jobs")',
        "def f(row):\n if isinstance(row, Job): ...\n if row is Node: ...\n if row == Lease: ...",
    ],
)
def test_a_list_of_nouns_is_seen(text: str) -> None:
    lists = [parts for node in ast.walk(ast.parse(text)) for parts in lists_of(node)]
    assert any(len({each for part in parts for each in nouns_in(part)}) > 2 for parts in lists)
