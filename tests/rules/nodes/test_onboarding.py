"""The words of onboarding: what people are told of a machine that is not reached."""

from typing import Any

import pytest

from workflows.contracts import errors
from workflows.contracts.machines import MachineOffer, MachineSpec
from workflows.contracts.nodes import Gpu, Hardware, Preparation, Requirement
from workflows.contracts.statuses import NodeStatus
from workflows.rules.nodes.onboarding import (
    describe_closed_logins,
    describe_loss,
    describe_preparation,
    first_status_of,
    lacking_of,
    missed_of,
    shown_cause,
    summary_of,
    unreached_of,
)


def machine(gpus: int = 0, **changes: Any) -> Hardware:
    names = ["A100", *["T4"] * 3][:gpus]
    made: dict[str, Any] = {
        "cpu_count": 8,
        "memory_bytes": 12 * 2**30,
        "gpus": tuple(Gpu(index=at, name=name, uuid=f"GPU-{at}") for at, name in enumerate(names)),
    }
    return Hardware(**(made | changes))


@pytest.mark.parametrize(
    ("services", "is_leased", "status"),
    [
        (("storage",), False, NodeStatus.ACTIVE),
        (("compute",), True, NodeStatus.ACTIVE),
        (("compute",), False, NodeStatus.MAINTENANCE),
        (("compute", "storage"), False, NodeStatus.MAINTENANCE),
    ],
)
def test_only_an_owners_compute_node_waits_for_a_person(
    services: tuple[str, ...], is_leased: bool, status: NodeStatus
) -> None:
    assert first_status_of(services, is_leased=is_leased) is status


def test_a_machine_is_summed_up_by_its_gpus_cpus_and_memory() -> None:
    assert summary_of(machine(4)) == "1×A100, 3×T4, 8 CPUs, 12.0 GiB of memory"
    assert summary_of(machine(1)) == "1×A100, 8 CPUs, 12.0 GiB of memory"
    assert summary_of(machine(cpu_count=1)) == "no GPU, 1 CPU, 12.0 GiB of memory"


def test_missed_requirements_are_told_and_met_ones_are_not() -> None:
    tpm = Requirement(name="tpm-2", required="TPM 2.0", found="no TPM 2.0", passed=False)
    met = tpm.model_copy(update={"name": "gpus-alike", "passed": True})
    assert missed_of([met]) == ""
    assert missed_of([tpm, met]) == "tpm-2: asked TPM 2.0, found no TPM 2.0"
    assert missed_of([tpm, tpm]).count("; ") == 1


OFFER = MachineOffer(machine_type="n1", gpu_type="T4", gpu_count=2, microcredits_per_hour=1)
SPEC = MachineSpec(lifetime_s=60)


@pytest.mark.parametrize(
    ("gpus", "lacks"),
    [
        (3, ""),
        (2, ""),
        (1, "was created with 2×T4, has 1"),
        (0, "was created with 2×T4, has none"),
    ],
)
def test_gpus_that_are_not_there_yet_are_lacking(gpus: int, lacks: str) -> None:
    assert lacking_of(OFFER, SPEC, machine(gpus)) == lacks


@pytest.mark.parametrize(
    ("gpu_type", "lacks"), [("T4", ""), ("A100", "was created with A100, has T4")]
)
def test_a_rented_machine_has_gpus_of_the_model_that_was_offered(gpu_type: str, lacks: str) -> None:
    rented = OFFER.model_copy(update={"provider_offer_id": "4711", "gpu_type": gpu_type})
    shown = tuple(Gpu(index=at, name="Tesla T4", uuid=f"GPU-{at}") for at in (0, 1))
    found = machine(2).model_copy(update={"gpus": shown})
    assert lacking_of(rented, SPEC, found) == lacks


def test_a_rented_gpu_that_the_catalogue_does_not_know_is_compared_however_it_is_spelled() -> None:
    shown = tuple(Gpu(index=at, name="NVIDIA RTX 9999", uuid=f"GPU-{at}") for at in (0, 1))
    found = machine(2).model_copy(update={"gpus": shown})
    for name, lacks in (("RTX 9999", ""), ("RTX 9998", "was created with RTX 9998, has")):
        rented = OFFER.model_copy(update={"provider_offer_id": "4711", "gpu_type": name})
        told = lacking_of(rented, SPEC, found)
        assert told.startswith(lacks) if lacks else told == ""


def test_podman_is_lacking_only_where_the_machine_was_created_with_it() -> None:
    with_it = SPEC.model_copy(update={"containers": True})
    lacks = "was created with podman, has process, runc"
    plain = machine(2, runtimes=("process", "runc"))
    assert lacking_of(OFFER, with_it, plain) == lacks
    assert lacking_of(OFFER, SPEC, plain) == ""
    assert lacking_of(OFFER, with_it, machine(2, runtimes=("process", "podman"))) == ""
    gpus_too = machine(1, runtimes=("process", "runc"))
    assert lacking_of(OFFER, with_it, gpus_too) == f"was created with 2×T4, has 1; {lacks}"


def test_peers_that_are_not_reached_are_told_unless_that_is_relaxed() -> None:
    alone = Preparation(unreachable_peers=("10.0.0.2", "10.0.0.3"))
    told = "cannot reach 10.0.0.2, 10.0.0.3 of its region"
    assert unreached_of(alone, ()) == unreached_of(alone, ("tpm-2",)) == told
    assert unreached_of(alone, ("peers",)) == unreached_of(alone, ("all",)) == ""
    assert unreached_of(Preparation(), ()) == unreached_of(Preparation(), ("peers",)) == ""


def test_a_preparation_says_what_could_not_be_done() -> None:
    assert describe_preparation(Preparation(), exclusive=False) == "is ready"
    assert describe_preparation(Preparation(closed_logins=True), exclusive=True) == "is ready"
    told = {
        "trusted only: no user namespaces": Preparation(trusted_only_reason="no user namespaces"),
        "takes no jobs with apt packages unless its region allows them: x": Preparation(
            no_run_root_reason="x"
        ),
        "takes no federated jobs: no tmpfs": Preparation(
            job_user="baseload-job", no_confinement_reason="no tmpfs"
        ),
        "serves the region cache at 10.0.0.2:80": Preparation(cache="10.0.0.2:80"),
        "does not serve the region cache: full": Preparation(no_cache_reason="full"),
    }
    for text, preparation in told.items():
        assert describe_preparation(preparation, exclusive=False) == text
    open_too = Preparation(cache="c:1")
    said = describe_preparation(open_too, exclusive=True)
    assert said.startswith("other logins stay open although")
    assert said.endswith("; serves the region cache at c:1")


def test_logins_that_stay_closed_are_told_where_they_were_closed() -> None:
    shared = describe_closed_logins("gone", exclusive=False)
    assert shared.startswith("gone: the machine may still let the region's key in; delete the line")
    alone = describe_closed_logins("gone", exclusive=True)
    assert "00-baseload.conf" in alone
    assert alone.endswith("delete the line of baseload in authorized_keys there")


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        (errors.HOST_KEY_MISMATCH, errors.NODE_UNREACHABLE),
        (errors.NODE_UNREACHABLE, errors.NODE_UNREACHABLE),
        (errors.LOGIN_REFUSED, errors.LOGIN_REFUSED),
    ],
)
def test_nobody_learns_that_a_strangers_machine_has_answered(kind: str, shown: str) -> None:
    assert shown_cause(kind) == shown


def test_the_loss_of_a_node_in_use_says_that_its_key_has_changed() -> None:
    lost = describe_loss(errors.HOST_KEY_MISMATCH, "nod-1: cannot be reached")
    assert lost.startswith("nod-1: cannot be reached; another host key")
    assert describe_loss(errors.NODE_UNREACHABLE, "nod-1: cannot be reached") == (
        "nod-1: cannot be reached"
    )
