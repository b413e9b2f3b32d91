"""The one law: imports go one way, and the pure half stays pure."""

from __future__ import annotations

import ast
import sys

import pytest

from tests.architecture.source import LAYERS, Source, sources, within
from workers.registry import WORKFLOWS

# Standard modules that neither read a clock, nor the world, nor chance.
PURE = frozenset(
    {
        "__future__",
        "abc",
        "asyncio",
        "base64",
        "binascii",
        "bisect",
        "calendar",
        "collections",
        "contextlib",
        "copy",
        "dataclasses",
        "datetime",
        "decimal",
        "difflib",
        "enum",
        "fractions",
        "functools",
        "graphlib",
        "hashlib",
        "heapq",
        "ipaddress",
        "itertools",
        "json",
        "math",
        "numbers",
        "operator",
        "posixpath",
        "re",
        "shlex",
        "statistics",
        "string",
        "textwrap",
        "types",
        "typing",
        "unicodedata",
        "urllib.parse",
        "uuid",
    }
)
PURE_OUTSIDE = (
    "pydantic",
    "temporalio.workflow",
    "temporalio.activity",
    "temporalio.common",
    "temporalio.exceptions",
)
IMPURE_CALLS = frozenset(
    {
        "open",
        "input",
        "print",
        "datetime.now",
        "datetime.utcnow",
        "datetime.today",
        "date.today",
        "datetime.datetime.now",
        "datetime.datetime.utcnow",
        "datetime.date.today",
        "uuid.uuid1",
        "uuid.uuid4",
        "uuid4",
        "uuid1",
        "asyncio.run",
        "asyncio.to_thread",
        "asyncio.open_connection",
        "asyncio.create_subprocess_exec",
    }
)
# Where each of the outside's libraries may be imported.
ALLOWED = {
    "asyncssh": ("activities/transport/", "workers/embedded_sshd.py"),
    "sqlalchemy": ("activities/", "api/"),
    "sqlmodel": ("activities/", "api/"),
    "alembic": ("activities/db/",),
    "psycopg": ("activities/db/",),
    "fsspec": ("activities/storage/", "activities/artifacts/sources/object_stores.py"),
    "s3fs": ("activities/artifacts/sources/object_stores.py",),
    "botocore": (
        "activities/artifacts/sources/object_stores.py",
        "activities/artifacts/destinations/object_stores.py",
    ),
    "azure": (
        "activities/artifacts/sources/azure.py",
        "activities/artifacts/destinations/azure.py",
    ),
    "huggingface_hub": (
        "activities/artifacts/sources/huggingface.py",
        "activities/artifacts/destinations/huggingface.py",
    ),
    "fastapi": ("api/",),
    "starlette": ("api/",),
    "uvicorn": ("api/", "workers/"),
    "cryptography": ("activities/", "workers/"),
    "google": ("activities/providers/gcp/", "activities/artifacts/sources/google_storage.py"),
    "grpc": ("activities/providers/gcp/",),
    "requests": ("activities/providers/gcp/",),
}
# What is shared by all lifecycles, and what of it the layers above may use.
SHARED = ("contracts", "rules", "effects", "primitives", "hosts")
OPEN_TO_ALL = ("workflows.contracts", "workflows.rules", "workflows.effects")
# The SSH server of ours plays a machine: it hands its environment on to the commands it runs. The
# cell of a notebook runs there, without our settings.
ENVIRONMENT_READERS = (
    "activities/settings.py",
    "activities/agent/",
    "activities/providers/colab/bootstrap_cell.py",
    "workers/runner",
    "workers/embedded_sshd.py",
)


def told(source: Source, line: int, what: str) -> str:
    return f"{source.name}:{line}: {what}"


def test_there_is_something_to_check() -> None:
    for layer in LAYERS:
        assert sources(layer), layer


@pytest.mark.parametrize("layer", LAYERS)
def test_imports_go_down_the_ladder_only(layer: str) -> None:
    forbidden = (*LAYERS[LAYERS.index(layer) + 1 :], "tests")
    wrong = [
        told(source, line, f"{layer} imports {name}")
        for source in sources(layer)
        for line, name in source.imports()
        if within(name, *forbidden)
    ]
    assert not wrong, "\n".join(wrong)


def test_workflows_import_only_what_has_no_side_effects() -> None:
    wrong = [
        told(source, line, f"imports {name}")
        for source in sources("workflows")
        for line, name in source.imports()
        if not within(name, "workflows", *PURE, *PURE_OUTSIDE)
    ]
    assert not wrong, "\n".join(wrong)


def test_workflows_read_no_clock_no_chance_and_no_file() -> None:
    wrong = [
        told(source, node.lineno, f"calls {ast.unparse(node.func)}")
        for source in sources("workflows")
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in IMPURE_CALLS
    ]
    assert not wrong, "\n".join(wrong)


def test_the_layers_above_import_contracts_rules_and_effects_and_no_lifecycle() -> None:
    wrong = [
        told(source, line, f"imports {name}")
        for source in sources(*LAYERS[1:])
        if source.name != "workers/registry.py"
        for line, name in source.imports()
        if within(name, "workflows") and not within(name, *OPEN_TO_ALL)
    ]
    assert not wrong, "\n".join(wrong)


def test_a_lifecycle_imports_its_own_package_and_what_all_share() -> None:
    wrong = [
        told(source, line, f"imports {name}")
        for source in sources("workflows")
        for line, name in source.imports()
        if within(name, "workflows")
        and name.split(".")[1] not in (source.name.split("/")[1], *SHARED)
    ]
    assert not wrong, "\n".join(wrong)


def test_no_module_imports_a_definition_of_a_workflow_but_the_registry() -> None:
    defining = {
        source.name.removesuffix(".py").replace("/", ".")
        for source in sources("workflows")
        if "workflow.defn" in (name for _, name in source.dotted_names())
    }
    registered = {workflow.__module__ for workflow in WORKFLOWS}
    wrong = [
        told(source, line, f"imports {name}")
        for source in sources(*LAYERS)
        if source.name != "workers/registry.py"
        for line, name in source.imports()
        if within(name, *defining)
    ]
    assert registered == defining
    assert not wrong, "\n".join(wrong)


def test_workflows_name_no_activity_by_string() -> None:
    callers = (
        "execute_activity",
        "start_activity",
        "execute_local_activity",
        "start_local_activity",
    )
    wrong = [
        told(source, node.lineno, ast.unparse(node)[:80])
        for source in sources("workflows")
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).rpartition(".")[2] in callers
        and node.args
        and isinstance(node.args[0], ast.Constant | ast.JoinedStr)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("library", sorted(ALLOWED))
def test_a_library_of_the_outside_is_imported_only_where_it_belongs(library: str) -> None:
    wrong = [
        told(source, line, f"imports {name}")
        for source in sources(*LAYERS)
        if not source.name.startswith(ALLOWED[library])
        for line, name in source.imports()
        if within(name, library)
    ]
    assert not wrong, "\n".join(wrong)


def test_only_the_settings_read_the_environment() -> None:
    names = ("os.environ", "os.getenv", "environ")
    wrong = [
        told(source, line, name)
        for source in sources(*LAYERS)
        if not source.name.startswith(ENVIRONMENT_READERS)
        for line, name in source.dotted_names()
        if within(name, *names)
    ]
    assert not wrong, "\n".join(wrong)


def test_a_process_is_left_in_one_place_only() -> None:
    wrong = [
        told(source, line, name)
        for source in sources(*LAYERS)
        if not source.name.startswith(("workers/process.py", "activities/agent/"))
        for line, name in source.dotted_names()
        if within(name, "os._exit")
    ]
    assert not wrong, "\n".join(wrong)


def test_the_agent_needs_nothing_but_python() -> None:
    wrong = [
        told(source, line, f"imports {name}")
        for source in sources("activities/agent")
        for line, name in source.imports()
        if not within(name, "activities.agent", "agent")
        and name.split(".")[0] not in sys.stdlib_module_names
    ]
    assert not wrong, "\n".join(wrong)


def test_the_client_knows_nothing_of_the_server() -> None:
    wrong = [
        told(source, line, f"imports {name}")
        for source in sources("client/src")
        for line, name in source.imports()
        if within(name, *LAYERS, "temporalio", "asyncssh", "sqlmodel")
    ]
    assert not wrong, "\n".join(wrong)


def test_nobody_turns_the_sandbox_off() -> None:
    wrong = [
        told(source, node.value.lineno, f"{node.arg}={node.value.value}")
        for source in sources(*LAYERS, "tests")
        for node in ast.walk(source.tree)
        if isinstance(node, ast.keyword)
        and node.arg == "sandboxed"
        and isinstance(node.value, ast.Constant)
        and node.value.value is False
    ]
    assert not wrong, "\n".join(wrong)
