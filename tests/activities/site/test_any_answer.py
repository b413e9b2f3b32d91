"""Whatever a machine says to whichever verb, an activity ends as its workflow knows, and nothing
but the machine's own runs has changed."""

import asyncio
import contextlib
import json
import tempfile
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from temporalio.exceptions import ApplicationError

from activities.agent.__main__ import ANSWERS, STREAMS
from activities.settings import settings as process_settings
from activities.site.run_names import RunNames
from activities.storage.logs import log_store
from tests.activities.documents import leaves, replaced
from tests.activities.federated_sites import REFERENCE
from tests.activities.hostile_sites import (
    DATASET,
    DATASTORE,
    DEVICE,
    OWN_JOB,
    VICTIM,
    VICTIM_JOB,
    VOLUME,
    HostileSite,
    hostile_site,
)
from tests.activities.waiting import wait_until
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


LAST_WORD_S = 4242.0
"""How long the run has taken whose exit is the last word of each watch."""
HONEST = (
    {"kind": "log", "offset": 0, "length": len(b"payload")},
    {"kind": "exit", "exit": {"elapsed_s": 1.0, "exit_code": 0}, "log_bytes": 0},
    {"kind": "lost", "elapsed_s": 1.0, "log_bytes": 0},
    {"kind": "idle", "idle_s": 1.0},
    {"kind": "hostname", "hostname": "web.local", "state": "conflict", "addresses": ["10.7.0.9"]},
    {"kind": "utilisation", "runs": [{"run_id": NAMES[0]}], "gpus": []},
    {"kind": "beat"},
)
"""Frames that our watcher sends: what is said of others has to be as well-formed as these."""
header = st.builds(
    lambda honest, name, other: {**honest, "run_id": name, **other},
    st.sampled_from(HONEST),
    st.sampled_from(NAMES),
    st.just({})
    | st.dictionaries(
        st.sampled_from(
            ("run_id", "offset", "length", "exit", "log_bytes", "idle_s", "kind", "runs", "gpus")
        ),
        leaf,
        max_size=2,
    ),
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
        words = b"".join(
            frame(b"payload" if each["kind"] == "log" else b"", **each) for each in frames
        )
        ended = {"elapsed_s": LAST_WORD_S, "exit_code": 0}
        last = frame(kind="exit", run_id=site.name, exit=ended, log_bytes=0)
        return Words(words + last, stays=True)
    honest = {"ok": True, **site.honest().get(verb, {})}
    paths = list(leaves(honest))
    found = replaced(honest, paths[said.at % len(paths)], said.value)
    text = json.dumps(found if said.instead is None else said.instead)
    written = text.replace(site.name, name_of(site, said.name)).encode() + b"\n"
    return Words(written, err=written, status=said.status)


async def failure_of(site: HostileSite, verb: str) -> ApplicationError | None:
    """How an activity fails; what is no failure that a workflow knows is raised."""
    try:
        await (heard_out(site) if verb == "watch" else site.do(verb))
    except ApplicationError as failure:
        return failure
    return None


async def heard_out(site: HostileSite) -> None:
    """Watch until all is believed that is to be, because the end of a watch forgets what waits."""
    watch = asyncio.ensure_future(site.do("watch"))

    def is_heard() -> bool:
        last = [argument for _, signal, argument in site.jobs.signals if signal == "worker_exited"]
        return watch.done() or any(one.exit.elapsed_s == LAST_WORD_S for one in last)

    with contextlib.suppress(TimeoutError):  # It waits for more bytes, and believes nothing.
        await wait_until(is_heard, "its last word", limit_s=1)
    if not watch.done():
        watch.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watch


def strangers(store: Path) -> list[Path]:
    """The files in the store that are neither of its job, nor the upload, nor were there before."""
    found = [path for path in store.rglob("*") if path.is_file()]
    own = (f"/{DATASET}/", f"/{VOLUME}/", f"/datastores/{DATASTORE.id}")
    known = (OWN_JOB, VICTIM_JOB, "/code/", f"/{REFERENCE}", f"/device-specs/{DEVICE}/", *own)
    return [path for path in found if not any(each in str(path) for each in known)]


def acts(text: str) -> bool:
    """Whether a character of the text acts on a screen instead of standing on it."""
    return any(
        unicodedata.category(each) in ("Cc", "Cs", "Zl", "Zp")
        or unicodedata.bidirectional(each)
        in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
        for each in text
    )


async def check(said: dict[str, Plan], folder: Path, patch: pytest.MonkeyPatch) -> None:
    async with hostile_site(folder, patch) as site:
        store = Path(process_settings().storage.removeprefix("file://"))
        before = site.files()
        site.is_honest()
        for verb, each in said.items():
            site.machine.says[verb] = words_of(site, verb, each)
        failures = [await failure_of(site, verb) for verb in site.activities()]
        for verb in site.activities():  # Once more, so that an earlier lie does not end it.
            site.is_honest()
            lying = verb.partition(" ")[0]
            if lying in said:
                site.machine.says[lying] = words_of(site, lying, said[lying])
            failures.append(await failure_of(site, verb))
        assert {failure.type for failure in failures if failure} <= KNOWN
        assert [failure.message for failure in failures if failure and acts(failure.message)] == []
        assert site.files() == before
        assert {job for job, _, _ in site.jobs.signals} <= {f"job/{OWN_JOB}"}
        assert strangers(store) == []
        assert log_store(process_settings().storage).length(VICTIM) == 0


VERBS = sorted((*ANSWERS, *STREAMS))


def well_formed(name: str) -> dict[str, Plan]:
    """Of one run all that our agent could say, so that its name alone can be what is wrong."""
    headers = [{**each, "run_id": name} for each in HONEST]
    return dict.fromkeys(VERBS, Plan(value=True, name=name, headers=headers))


def nasty() -> dict[str, Plan]:
    """Every value that is no good somewhere, each in another place of the answers."""
    return {verb: Plan(at=at, value=NASTY[at % len(NASTY)]) for at, verb in enumerate(VERBS)}


def garbled() -> dict[str, Plan]:
    """Nothing that can be read."""
    said: tuple[Any, ...] = (b"", b"\xff\x1b[2J", b'{"ok": true', None, [], "x")
    return {
        verb: Plan(instead=said[at % len(said)], status=(0, 1, 3)[at % 3])
        for at, verb in enumerate(VERBS)
    }


@example(nasty())
@example(garbled())
@example(well_formed("own of another attempt"))
@example(well_formed("victim"))
@example(well_formed("victim without a tag"))
@example(well_formed("path"))
@given(st.fixed_dictionaries(dict.fromkeys(VERBS, plan)))
@settings(
    max_examples=8,
    phases=(Phase.explicit, Phase.generate),  # What is found is shown at once, not made smaller.
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
