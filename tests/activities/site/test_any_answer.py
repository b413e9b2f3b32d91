"""Whatever a machine says to whichever verb, an activity ends as its workflow knows, and nothing
but the machine's own runs has changed."""

import asyncio
import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from temporalio.exceptions import ApplicationError

from activities.agent.__main__ import ANSWERS, STREAMS
from activities.settings import settings as process_settings
from activities.site.run_names import RunNames
from activities.storage.logs import log_store
from tests.activities.hostile_sites import (
    OWN_JOB,
    VICTIM,
    VICTIM_JOB,
    HostileSite,
    hostile_site,
    leaves,
    replaced,
)
from tests.failure.hostile_node import Words, frame
from workflows.contracts import errors

KNOWN = {value for name, value in vars(errors).items() if name.isupper() and type(value) is str}
FIELDS = (
    *("ok", "error", "code", "message", "runs", "boot_id", "state", "exit", "elapsed_s", "kept"),
    *("log_bytes", "hardware", "gpus", "ended", "alive", "found", "mark", "bytes", "job_user"),
)
NAMES = ("own", "own of another attempt", "victim", "victim without a tag", "path", "nobody")
NASTY = (
    *(
        "../../../../etc/cron.d/x",
        "/etc/x",
        "a\x1b[2J\u202e",
        "x" * 3000,
        "",
        "exited",
        "2026-01-01",
    ),
    *(10**30, -1, 1e300, -0.0, float("nan"), float("inf"), 1 << 63, True, None),
)
leaf = st.one_of(
    st.sampled_from(NASTY),
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=9),
)
document = st.recursive(
    leaf,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4)
    ),
    max_leaves=6,
)


@dataclass(frozen=True)
class Plan:
    """What a machine says to a verb: how it departs from what our agent would have said."""

    at: int = 0
    """Which value of the honest answer is another one."""
    value: Any = None
    name: str = "own"
    """Of which run it speaks."""
    instead: Any = None
    """What it says instead of any answer: bytes or a document; None: an answer."""
    status: int = 0
    headers: list[dict[str, Any]] = field(default_factory=list)
    """The frames of its watch."""


header = st.fixed_dictionaries(
    {"kind": st.sampled_from(("log", "exit", "lost", "idle", "beat", "utilisation"))},
    optional={
        "run_id": st.sampled_from(NAMES) | leaf,
        "offset": st.integers(0, 9) | leaf,
        "length": st.integers(0, 9) | leaf,
        "exit": st.fixed_dictionaries({}, optional={"elapsed_s": leaf, "exit_code": leaf}) | leaf,
        "log_bytes": st.integers(0, 9) | leaf,
        "elapsed_s": st.integers(0, 9) | leaf,
        "idle_s": st.integers(0, 9) | leaf,
        "runs": st.lists(st.fixed_dictionaries({}, optional={"run_id": leaf}), max_size=2) | leaf,
        "gpus": st.lists(st.fixed_dictionaries({}, optional={"uuid": leaf}), max_size=2) | leaf,
    },
)
plan = st.builds(
    Plan,
    at=st.integers(0, 60),
    value=leaf | document,
    name=st.sampled_from(NAMES),
    instead=st.none() | st.none() | st.none() | document | st.binary(max_size=60),
    status=st.sampled_from((0, 0, 0, 0, 1, 3)),
    headers=st.lists(header, max_size=4),
)


def name_of(site: HostileSite, name: str) -> str:
    """What the machine calls a run: it knows its own runs' names alone."""
    elsewhere = RunNames(site.node.model_copy(update={"node_id": "nod-other"}))
    return {
        "own": site.name,
        "own of another attempt": site.name.replace("-0-2-", "-0-1-"),
        "victim": elsewhere.of(VICTIM),
        "victim without a tag": VICTIM,
        "path": "../../../../../x-0-1",
    }.get(name, name)


def words_of(site: HostileSite, verb: str, said: Plan) -> Words:
    """What the machine says to a verb, by its plan."""
    if isinstance(said.instead, bytes):
        return Words(said.instead, err=said.instead, status=said.status)
    if verb == "watch":
        frames = (
            {**each, "run_id": name_of(site, str(each["run_id"]))} if "run_id" in each else each
            for each in said.headers
        )
        return Words(b"".join(frame(b"payload", **each) for each in frames))
    honest = {"ok": True, **site.honest().get(verb, {})}
    paths = list(leaves(honest))
    found = replaced(honest, paths[said.at % len(paths)], said.value)
    text = json.dumps(found if said.instead is None else said.instead)
    written = text.replace(site.name, name_of(site, said.name)).encode() + b"\n"
    return Words(written, err=written, status=said.status)


async def failure_of(site: HostileSite, verb: str) -> ApplicationError | None:
    """How an activity fails; what is no failure that a workflow knows is raised."""
    try:
        await site.do(verb)
    except ApplicationError as failure:
        return failure
    return None


def strangers(store: Path) -> list[Path]:
    """The files in the store that are neither of its job, nor the upload, nor were there before."""
    found = [path for path in store.rglob("*") if path.is_file()]
    known = (OWN_JOB, VICTIM_JOB, "/code/")
    return [path for path in found if not any(each in str(path) for each in known)]


async def check(said: dict[str, Plan], folder: Path, patch: pytest.MonkeyPatch) -> None:
    async with hostile_site(folder, patch) as site:
        log_store(process_settings().storage).append(VICTIM, 0, b"its own words", 0)
        store = Path(process_settings().storage.removeprefix("file://"))
        before = site.files()
        site.is_honest()
        for verb, each in said.items():
            site.machine.says[verb] = words_of(site, verb, each)
        failures = [await failure_of(site, verb) for verb in site.activities()]
        assert {failure.type for failure in failures if failure} <= KNOWN
        assert all(failure.message.isprintable() for failure in failures if failure)
        assert site.files() == before
        assert {job for job, _, _ in site.jobs.signals} <= {f"job/{OWN_JOB}"}
        assert strangers(store) == []
        assert log_store(process_settings().storage).read(VICTIM, 0) == b"its own words"


@given(st.fixed_dictionaries(dict.fromkeys(sorted((*ANSWERS, *STREAMS)), plan)))
@settings(
    max_examples=25,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
def test_whatever_a_node_says_concerns_itself_alone(said: dict[str, Plan]) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        asyncio.run(check(said, Path(folder), patch))


async def test_every_verb_is_asked_by_an_activity(hostile: HostileSite) -> None:
    hostile.is_honest()
    failed = [verb for verb in hostile.activities() if await failure_of(hostile, verb)]
    assert failed == ["watch"], "it ends at once"
    assert {verb for verb, _ in hostile.machine.asked} == {*ANSWERS, *STREAMS}
