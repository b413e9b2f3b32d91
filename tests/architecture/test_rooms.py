"""The rooms of the house: what lies where, what is too small for a file, and who imports whom."""

from __future__ import annotations

import ast
import graphlib
from collections import defaultdict
from collections.abc import Iterator

from tests.architecture.source import LAYERS, ROOT, Source, sources

SMALL_FILE_LINES = 40
LOADED_BY_NAME = ("/__init__.py", "/__main__.py")
ONE_FOR_EACH_NOUN_OR_KIND = ("/starts.py", "/kind.py")
"""A noun's starts and a provider's record, by the same name in each room."""
SMALL_ON_PURPOSE = {
    "workflows/jobs/removal.py": "what comes long after the attempts, of which the lifecycle is",
    "activities/agent/host/ipc.py": "System V's objects, which is no part of an account",
    "activities/billing/machine_costs.py": "the bill's arithmetic, which placement only asks for",
    "activities/providers/gcp/identity.py": "imports Google's library, which its caller puts off",
    "activities/providers/gcp/project_resources.py": "the registry of what a project has",
    "activities/providers/gcp/region_resources.py": "GcpRegion, which the provider registry names",
    "activities/providers/checks.py": "calls nobody, while the room's other activities do",
    "activities/providers/quotas.py": "asks any kind of provider, which a service may not",
    "activities/regions/cache.py": "rows of regions, which lie in no other room",
    "api/openapi.py": "makes a document, which is no part of the command line",
    "api/rate_limits.py": "a token bucket, which knows nothing of the application",
    "workers/api.py": "a process's entry point",
    "workers/planning.py": "a process's entry point",
    "workers/runner/narration.py": "the demonstrations in tests/ use it too",
    "workers/runner/serve.py": "a process's entry point",
    "workflows/leases/holder.py": "the holder, a noun of its own beside the lease",
    "workflows/hosts/preparation.py": "the host's preparation, between inspection and connection",
    "workflows/rules/jobs/retries.py": "the pause before a retry, which users read of in numbers",
    "workflows/reconciliation/reconcilers.py": "workflows of their own, which the worker names",
    "workflows/providers/price_refresh.py": "a workflow of its own, which the worker names",
    "workflows/providers/offer_refresh.py": "a workflow of its own, which the worker names",
    "workflows/billing/device_fees.py": "a workflow of its own, which the worker names",
    "workflows/billing/balance_guard.py": "a workflow of its own, which the worker names",
    "workflows/billing/payouts.py": "a workflow of its own, which the worker names",
    "workflows/rules/billing/device_fees.py": "the exact rounding, which an audit repeats",
    "workflows/sessions/trunk_opening.py": "a workflow of its own, which the worker names",
}
FOLDERS_OF_ROUTINE_SIZE = (
    "activities/db/migrations/",  # Alembic loads them.
    "activities/db/tables/",  # A module for each noun.
    "activities/registry/",  # What each queue serves.
    "api/routes/", "api/schemas/", "api/services/",  # One file name per noun.
)  # fmt: skip
# Nouns of the API that lack a file of their name, and why.
PLUMBING_OF_SERVICES = {
    *("account_limits", "account_removals", "cloud_machines", "job_references", "lifecycles"),
    *("ownership", "region_quotas", "implied_regions"),
}
PLUMBING_OF_SCHEMAS = {"base"}
ROUTES_WITHOUT_SERVICE = {
    "health": "asks the process alone",
    "platform": "reads one setting and one key",
}
SERVICES_WITHOUT_ROUTE = {
    "guests": "jobs of other accounts on nodes that are removed",
    "api_keys": "are made and revoked under users",
    "artifact_datastores": "are named by the sources of artifacts",
    "job_datastores": "are named by jobs that are made under jobs",
    "plans": "are of accounts, and asked for by other nouns",
    "job_providers": "are named by jobs that are made under jobs",
    "job_deliveries": "are named by jobs that are made under jobs",
    "job_inputs": "are named by jobs that are made under jobs",
    "job_figures": "stand beside the rows of jobs",
    "job_outputs": "are read under job_logs and jobs",
    "job_responses": "are what jobs answer",
    "job_submissions": "are made under jobs",
    "people": "are named in reasons and events",
    "log_parts": "are read under job_logs",
    "measurements": "are read under jobs",
    "minions": "are asked for under nodes, devices and announcements",
    "storage_nodes": "are nodes, and asked for under nodes",
    "tco_figures": "are what tco answers",
}


def modules() -> dict[str, Source]:
    return {
        source.name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): source
        for source in sources(*LAYERS)
    }


def imported_by(source: Source, known: dict[str, Source]) -> set[str]:
    """Our modules that a file imports, also inside its functions, but not for its types alone."""
    found = set()
    for name in _imported_names(source):
        owner = name if name in known else name.rpartition(".")[0]
        if owner in known:
            found.add(owner)
    return found


def _imported_names(source: Source) -> Iterator[str]:
    for_types = {
        line
        for node in ast.walk(source.tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for part in node.body
        for line in range(part.lineno, (part.end_lineno or part.lineno) + 1)
    }
    yield from (name for line, name in source.imports() if line not in for_types)


def import_graph() -> dict[str, set[str]]:
    known = modules()
    return {name: imported_by(source, known) - {name} for name, source in known.items()}


def stems(folder: str) -> set[str]:
    return {path.stem for path in (ROOT / folder).glob("*.py")} - {"__init__"}


def test_no_file_lies_loose_at_the_top_of_the_lower_layers() -> None:
    assert stems("workflows") == set()
    assert stems("activities") == {"settings"}


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = import_graph()
    assert "activities.db.session" in graph["activities.db.migrate"]
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as circle:
        raise AssertionError(" → ".join(circle.args[1])) from None


def small_files_with_one_importer() -> set[str]:
    importers: dict[str, set[str]] = defaultdict(set)
    for name, imported in import_graph().items():
        for each in imported:
            importers[each].add(name)
    return {
        source.name
        for name, source in modules().items()
        if source.text.count("\n") < SMALL_FILE_LINES
        and len(importers[name]) <= 1
        and not source.name.endswith((*LOADED_BY_NAME, *ONE_FOR_EACH_NOUN_OR_KIND))
        and not source.name.startswith(FOLDERS_OF_ROUTINE_SIZE)
    }


def test_a_small_file_with_one_importer_lives_with_it() -> None:
    small = small_files_with_one_importer()
    assert small - SMALL_ON_PURPOSE.keys() == set()
    gone = {name for name in SMALL_ON_PURPOSE if not (ROOT / name).exists()}
    assert not gone, "no longer there"


def test_the_api_has_one_file_name_for_a_noun() -> None:
    routes, services = stems("api/routes"), stems("api/services") - PLUMBING_OF_SERVICES
    schemas = stems("api/schemas") - PLUMBING_OF_SCHEMAS
    assert routes - services - ROUTES_WITHOUT_SERVICE.keys() == set()
    assert services - routes - SERVICES_WITHOUT_ROUTE.keys() == set()
    assert schemas - routes == set()


OF_A_WHOLE_LAYER = {"tests/api/refusals": "every route of the API, and no part of it"}
"""Rooms of tests that test no room of their layer, and what they test instead."""


def test_tests_lie_in_rooms_of_the_layer_that_they_test() -> None:
    homes = {layer: layer for layer in LAYERS} | {"rules": "workflows/rules"}
    strangers = [
        folder.relative_to(ROOT).as_posix()
        for tests, layer in homes.items()
        for folder in sorted((ROOT / "tests" / tests).rglob("*"))
        if folder.is_dir()
        and folder.name != "__pycache__"
        and not (ROOT / layer / folder.relative_to(ROOT / "tests" / tests)).is_dir()
    ]
    assert set(strangers) == OF_A_WHOLE_LAYER.keys()
