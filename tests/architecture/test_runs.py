"""Runs of the tests: an agent knows a run's processes by its id, whatever test they belong to."""

import re
from collections import defaultdict

from tests.architecture.source import sources

RUN_ID = re.compile(r"\bjob-[a-z0-9-]*-[0-9]+-[0-9]+\b")


def test_no_two_modules_name_the_same_run() -> None:
    """They go on beside one another on one machine, and would end each other's processes."""
    modules = defaultdict(set)
    for source in sources("tests/activities", "tests/lab"):
        for run_id in RUN_ID.findall(source.text):
            modules[run_id].add(source.name)
    shared = [f"{run_id}: {sorted(names)}" for run_id, names in modules.items() if len(names) > 1]
    assert not shared, "\n".join(shared)
