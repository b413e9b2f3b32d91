"""A rented machine compared with what its host offered."""

from typing import Any

import pytest

from workflows.contracts.machines import MachineOffer, MachineSpec
from workflows.contracts.nodes import Gpu, Hardware
from workflows.rules.nodes.offered import distrusted_for, host_words, unlike_offer

GIB = 2**30
OFFER = MachineOffer(
    machine_type="ask-2",
    gpu_type="A100-80GB",
    gpu_count=2,
    microcredits_per_hour=1,
    provider_offer_id="4711",
    host="815",
    memory_bytes=64 * GIB,
    disk_mb_per_s=1000,
)
SPEC = MachineSpec(disk_size_gb=100, lifetime_s=60)


def found(gpus: int = 2, mib: int | None = 81920, **changes: Any) -> Hardware:
    made: dict[str, Any] = {
        "cpu_count": 8,
        "memory_bytes": 63 * GIB,
        "disk_bytes": 98 * 10**9,
        "gpus": tuple(
            Gpu(index=at, name="NVIDIA A100-SXM4-80GB", uuid=f"GPU-{at}", memory_mib=mib)
            for at in range(gpus)
        ),
    }
    return Hardware(**(made | changes))


def test_a_machine_as_offered_lacks_nothing() -> None:
    assert unlike_offer(OFFER, SPEC, found()) == ""
    assert unlike_offer(OFFER, SPEC, found(disk_mb_per_s=400, cpu_mb_per_s=300)) == ""
    assert unlike_offer(OFFER, SPEC, found(gpus=3)) == ""


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (found(gpus=1), "was created with 2×A100-80GB, has 1"),
        (found(gpus=0), "was created with 2×A100-80GB, has none"),
        (found(mib=40960), "was created with A100-80GB of 80 GiB, has 40.0 GiB a GPU"),
        (found(memory_bytes=16 * GIB), "was created with 64.0 GiB of memory, has 16.0"),
        (found(disk_bytes=20 * 10**9), "was created with 100 GB of disk, has 20.0"),
        (found(disk_mb_per_s=9), "its disk takes 9 MB a second, asked 50"),
        (found(cpu_mb_per_s=3), "its CPU hashes 3 MB a second, asked 20"),
    ],
)
def test_what_is_not_as_offered_is_said_with_what_was_found(machine: Hardware, words: str) -> None:
    assert unlike_offer(OFFER, SPEC, machine) == words


def test_all_that_is_not_as_offered_is_said() -> None:
    lie = found(gpus=1, memory_bytes=GIB)
    assert unlike_offer(OFFER, SPEC, lie).count("; ") == 1


def test_what_nobody_has_said_is_not_compared() -> None:
    silent = OFFER.model_copy(update={"memory_bytes": 0, "disk_mb_per_s": 0})
    machine = found(mib=None, memory_bytes=GIB, disk_bytes=0, disk_mb_per_s=6)
    assert unlike_offer(silent, SPEC, machine) == ""


def test_a_named_host_is_distrusted_for_longer_than_an_offer_of_many_hosts() -> None:
    nameless = OFFER.model_copy(update={"host": ""})
    assert OFFER.scopes == (OFFER.scope, "host/815")
    assert nameless.scopes == (nameless.scope,) == (nameless.host_scope,)
    assert distrusted_for(nameless) < distrusted_for(OFFER)
    assert host_words(OFFER) == "host 815"
    assert host_words(nameless).startswith("offer ")
