"""What happens to data on their way, and what must be so afterwards."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import AbstractContextManager

from tests.chaos.transfers.flipping_proxy import FlippingProxy
from tests.chaos.transfers.stage import (
    LIMIT_S,
    NODES,
    OVERHEAD_BYTES,
    READ,
    ROOT,
    STORAGE,
    Dataset,
    DataStage,
    central_site,
    storage_node,
)

Fault = Callable[[DataStage, str, random.Random], None]
FAULTS: dict[str, Fault] = {}
FIRST, SECOND = NODES
SMALL_MIB = 96
"""The disk of a storage node that has no room for a dataset."""
WAITS = "sleep 6001"
"""What a job does until a fault ends it."""
SPOILT_AT = 1 << 20
"""Which byte of an answer is changed on its way: of a part's content, behind the start of TLS."""


def fault(act: Fault) -> Fault:
    """Put a fault onto the list, under the name of its function."""
    FAULTS[act.__name__.replace("_", "-")] = act
    return act


def injected(stage: DataStage, name: str, jobs: int) -> None:
    row = stage.tally.rows[name]
    row.times += 1
    row.jobs += jobs


@fault
def storage_power_cut_during_fill(stage: DataStage, name: str, dice: random.Random) -> None:
    """The job goes on without the cache; the cache is whole again afterwards."""
    dataset, before = stage.dataset(), stage.sent_bytes()
    job = stage.job(dataset, FIRST)
    stage.until_sent(before, int(dataset.size_bytes * dice.uniform(0.2, 0.8)))
    stage.machine(STORAGE).power_cut()
    injected(stage, name, 2)
    try:
        stage.check(name, job, dataset)
    finally:
        stage.machine(STORAGE).boot()
    stage.platform.until_status(stage.nodes[STORAGE], "active", limit_s=LIMIT_S)
    stage.age_interrupted()
    _fetched_from_cache(stage, name, dataset, SECOND)


@fault
def cache_killed_during_fetch(stage: DataStage, name: str, dice: random.Random) -> None:
    """The cache's server ends while a node reads from it, which then has the rest otherwise."""
    dataset, before = stage.dataset(), stage.sent_bytes()
    job = stage.job(dataset, FIRST)
    stage.until_sent(before, int(dataset.size_bytes * dice.uniform(0.2, 0.8)))
    if not stage.kill_cache():
        stage.wrong(name, "left", "there was no cache to kill")
    injected(stage, name, 2)
    stage.check(name, job, dataset)
    _fetched_from_cache(stage, name, dataset, SECOND)


@fault
def worker_killed_during_fill(stage: DataStage, name: str, dice: random.Random) -> None:
    """Whoever sends ends: the transfer goes on where it was, and is not sent as a whole again."""
    dataset, before = stage.dataset(), stage.sent_bytes()
    job = stage.job(dataset, FIRST)
    stage.until_sent(before, int(dataset.size_bytes * 0.7))
    stage.stack.kill("worker")
    injected(stage, name, 1)
    stage.check(name, job, dataset)
    sent = stage.sent_bytes() - before
    part_bytes = 64 << 20
    if sent > dataset.size_bytes + 2 * part_bytes + OVERHEAD_BYTES:
        stage.wrong(name, "doubled", f"{sent >> 20} MiB sent of {dataset.size_bytes >> 20}")


@fault
def node_power_cut_during_fetch(stage: DataStage, name: str, dice: random.Random) -> None:
    """The node goes on with what its disk has, and reads what the dataset has."""
    dataset, before = stage.dataset(), stage.sent_bytes()
    job = stage.job(dataset, FIRST)
    stage.until_sent(before, int(dataset.size_bytes * dice.uniform(0.3, 0.8)))
    stage.machine(FIRST).power_cut()
    injected(stage, name, 1)
    stage.machine(FIRST).boot()
    stage.check(name, job, dataset)


@fault
def byte_changed_on_the_wire(stage: DataStage, name: str, dice: random.Random) -> None:
    """What the node has from the cache is changed on its way: it is found, and had again."""
    dataset = stage.dataset()
    address = stage.machine(STORAGE).address
    host = stage.lab.network.host_address
    with (
        flipping(host, (address, stage.cache_port()), dice.randint(1, 3)) as proxy,
        stage.cache_behind(FIRST, proxy.port),
    ):
        job = stage.job(dataset, FIRST)
        stage.check(name, job, dataset)
    if not proxy.flipped:
        stage.wrong(name, "left", "nothing was changed: the node has not read by the proxy")
    injected(stage, name, 1)


@fault
def cache_spoilt_on_its_disk(stage: DataStage, name: str, dice: random.Random) -> None:
    """A part in the cache rots: the next node finds it, and the cache has it right again."""
    dataset = stage.dataset()
    known = set(stage.cached_parts())
    stage.check(name, stage.job(dataset, FIRST), dataset)
    (*_, part) = [path for path in stage.cached_parts() if path not in known]
    with part.open("r+b") as file:
        file.seek(dice.randrange(part.stat().st_size))
        file.write(os.urandom(32))
    injected(stage, name, 1)
    stage.check(name, stage.job(dataset, SECOND), dataset)


@fault
def cache_disk_full(stage: DataStage, name: str, dice: random.Random) -> None:
    """The storage node has no room for the dataset: the node has it from the platform."""
    _ = dice
    site = central_site(stage.platform, stage.provider_id, f"small-{stage.tally.rows[name].times}")
    storage, node = stage.lab.add(f"full-{_number(stage)}"), stage.lab.add(f"by-{_number(stage)}")
    storage.small_disk(f"/{ROOT}", SMALL_MIB)
    storage_node(site, storage)
    site.join(node)
    dataset = stage.dataset()
    injected(stage, name, 1)
    stage.check(name, stage.job(dataset, node.name, site), dataset)
    for machine in (storage, node):
        machine.power_cut()


@fault
def storage_node_replaced_during_job(stage: DataStage, name: str, dice: random.Random) -> None:
    """Jobs that run and are fetched meanwhile go on, and the new cache has what the old one had.

    The second job's data come while the new node is filled, or as the old one goes.
    """
    moved, fetched = stage.dataset(), stage.dataset()
    stage.check(name, stage.job(moved, FIRST), moved)
    kept = {path.name for path in stage.cached_parts()}
    stage.tally.jobs += 1
    running = stage.platform.job(
        f"{WAITS} || :\n{READ.format(name=moved.name)}", stage.site.region_id,
        data={"datasets": [moved.id]},
    )  # fmt: skip
    stage.platform.until_status(running, "running", limit_s=LIMIT_S)
    machine = f"{STORAGE}-{_number(stage)}"
    node = stage.replace_storage(machine)
    stage.platform.until_status(node, "active", limit_s=LIMIT_S)
    stage.pause(dice.uniform(0.0, 0.5))
    before = stage.sent_bytes()
    job = stage.job(fetched, FIRST)
    stage.until_sent(before, 1 << 20)
    old = stage.nodes[STORAGE]
    stage.tell(f"{name}: {_statuses(stage, old, node, running, job)}")
    stage.storage_replaced(node, machine)
    stage.tell(f"{name}: {_statuses(stage, old, node, running, job)}")
    injected(stage, name, 5)
    if stage.platform.get(running)["status"] != "running":
        stage.wrong(name, "left", f"{running}: had ended before the storage node was replaced")
    if missing := kept - {path.name for path in stage.cached_parts()}:
        stage.wrong(name, "lost", f"{len(missing)} of {len(kept)} parts are not in the new cache")
    stage.machine(FIRST).run("pkill", "-PIPE", "-fx", WAITS)
    for each, dataset in ((running, moved), (job, fetched)):
        stage.check(name, each, dataset)
        if (attempt := stage.platform.get(each)["attempt"]) != 1:
            stage.wrong(name, "doubled", f"{each}: has begun again: attempt {attempt}")
    _fetched_from_cache(stage, name, moved, SECOND)


@fault
def same_data_for_two_nodes_at_once(stage: DataStage, name: str, dice: random.Random) -> None:
    """Two jobs on two nodes: the platform sends the dataset to the region once."""
    _ = dice
    dataset, before = stage.dataset(), stage.sent_bytes()
    stage.only_active(*NODES)
    jobs = [_whole_node(stage, dataset) for _ in NODES]
    injected(stage, name, len(jobs))
    for job in jobs:
        stage.check(name, job, dataset)
    _sent_once(stage, name, dataset, before)
    places = {_node_of(stage, job) for job in jobs}
    if len(places) != len(NODES):
        stage.wrong(name, "left", f"both jobs were on {places}: nothing was shown")


@fault
def same_data_for_two_jobs_of_a_node(stage: DataStage, name: str, dice: random.Random) -> None:
    """Two jobs on one node: one of them fetches."""
    _ = dice
    dataset, before = stage.dataset(), stage.sent_bytes()
    jobs = [stage.job(dataset, FIRST), stage.job(dataset, FIRST)]
    injected(stage, name, len(jobs))
    fetched = [stage.check(name, job, dataset).get("fetched_bytes", -1) for job in jobs]
    if min(fetched) != 0 or max(fetched) < dataset.size_bytes:
        stage.wrong(name, "doubled", f"both have fetched: {fetched}")
    _sent_once(stage, name, dataset, before)


@fault
def share_away_while_a_job_waits_for_it(stage: DataStage, name: str, dice: random.Random) -> None:
    """The job says for what it waits, and runs once the share is back."""
    folder = stage.nfs.shared / f"in-{dice.random()}"
    folder.mkdir()
    (folder / "x").write_text("here")
    stage.nfs.unplug()
    injected(stage, name, 1)
    stage.tally.jobs += 1
    try:
        stage.only_active(FIRST)
        job = stage.platform.job(
            "cat $BASELOAD_INPUT/x", stage.site.region_id,
            data={"input": _regional(stage, "sets", folder.name), "output": None},
        )  # fmt: skip
        stage.platform.until(
            job, lambda found: "nfs://" in (found["status_reason"] or ""), "says why", LIMIT_S
        )
        _stay_away(stage, name, job)
    finally:
        stage.nfs.plug_again()
    stage.platform.until_status(job, "finished", limit_s=LIMIT_S)
    if stage.platform.log(job) != "here":
        stage.wrong(name, "lost", f"{job}: has read {stage.platform.log(job)!r}")


@fault
def share_away_while_an_output_is_stored(stage: DataStage, name: str, dice: random.Random) -> None:
    """The output waits on its node, and is on the share in the end."""
    path = f"out-{dice.random()}"
    stage.only_active(FIRST)
    stage.tally.jobs += 1
    job = stage.platform.job(
        "echo begun; sleep 3; echo done > $BASELOAD_OUTPUT/said", stage.site.region_id,
        data={"output": _regional(stage, "results", path)},
    )  # fmt: skip
    stage.platform.until_status(job, "running", limit_s=LIMIT_S)
    stage.smb.unplug()
    injected(stage, name, 1)
    try:
        stage.platform.until(
            job, lambda found: "smb://" in (found["status_reason"] or ""), "says why", LIMIT_S
        )
        _stay_away(stage, name, job)
    finally:
        stage.smb.plug_again()
    stage.platform.until_status(job, "finished", limit_s=LIMIT_S)
    said = stage.smb.shared / path / "said"
    if not said.exists() or said.read_text() != "done\n":
        stage.wrong(name, "lost", f"{job}: its output is not on the share")


def flipping(
    host: str, cache: tuple[str, int], times: int
) -> AbstractContextManager[FlippingProxy]:
    return FlippingProxy(host, cache, SPOILT_AT, times).serving()


# ── parts ───────────────────────────────────────────────────────────────────────────────────────


def _stay_away(stage: DataStage, name: str, job: str) -> None:
    """Until the share has been away for long enough; the job must still wait then."""
    stage.pause(stage.away_s)
    status = stage.platform.get(job)["status"]
    if status not in ("waiting_for_data", "uploading"):
        stage.wrong(name, "lost", f"{job}: is {status}, while the share was away")


def _fetched_from_cache(stage: DataStage, name: str, dataset: Dataset, node: str) -> None:
    """Another node has the dataset right, and the region's cache is filled and serves it."""
    stage.until_cache_serves()
    stage.check(name, stage.job(dataset, node), dataset)
    before = stage.sent_bytes()
    stage.forget(FIRST)
    staged = stage.check(name, stage.job(dataset, FIRST), dataset)
    sent = stage.sent_bytes() - before
    if staged.get("cached_bytes", 0) < dataset.size_bytes or sent > OVERHEAD_BYTES:
        stage.wrong(name, "left", f"the cache does not serve it: {staged}, {sent >> 20} MiB sent")


def _sent_once(stage: DataStage, name: str, dataset: Dataset, before: int) -> None:
    sent = stage.sent_bytes() - before
    stage.tell(f"{name}: {sent / 2**20:.1f} MiB sent for {dataset.size_bytes / 2**20:.1f} MiB")
    if sent > dataset.size_bytes + OVERHEAD_BYTES:
        stage.wrong(name, "doubled", f"{sent >> 20} MiB sent of {dataset.size_bytes >> 20}")


def _statuses(stage: DataStage, *paths: str) -> str:
    """What these resources are now, in one line."""
    found = [stage.platform.get(path) for path in paths]
    return ", ".join(f"{each['name']} {each['status']}" for each in found)


def _whole_node(stage: DataStage, dataset: Dataset) -> str:
    """A job that leaves no room for another one on its node."""
    stage.tally.jobs += 1
    return stage.platform.job(
        READ.format(name=dataset.name),
        stage.site.region_id,
        resources={"gpus": "cpu", "cpu_count": os.cpu_count(), "memory_gib": 1},
        data={"datasets": [dataset.id]},
    )


def _node_of(stage: DataStage, job: str) -> str:
    return str(stage.platform.get(job)["workers"][0]["node_name"])


def _regional(stage: DataStage, datastore: str, path: str) -> dict[str, str]:
    return {"type": "regional", "datastore_id": stage.datastores[datastore], "path": path}


def _number(stage: DataStage) -> int:
    return len(stage.lab.machines)
