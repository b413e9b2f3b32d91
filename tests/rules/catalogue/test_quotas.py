"""What a cloud's quotas leave room for."""

import pytest

from activities.providers.gcp.catalogue import gcp_catalogue
from workflows.contracts.quotas import Quota, RunnableJobs
from workflows.rules.catalogue.quotas import family_metric, refusal, runnable_jobs

REGION = "us-central1"
ROOMY = {
    "GPUS_ALL_REGIONS": (64, 0),
    "CPUS": (1000, 0),
    "A2_CPUS": (1000, 0),
    "LOCAL_SSD_TOTAL_GB": (100_000, 0),
    "NVIDIA_T4_GPUS": (8, 0),
    "NVIDIA_V100_GPUS": (8, 0),
    "NVIDIA_P100_GPUS": (8, 0),
    "NVIDIA_A100_GPUS": (8, 0),
    "NVIDIA_A100_80GB_GPUS": (8, 0),
    "NVIDIA_L4_GPUS": (8, 0),
}
"""Limit and use by metric."""


def found(
    gpu_type: str,
    *,
    spot: bool = False,
    gpu_count: int = 1,
    family: tuple[int, int] = (16, 0),
    **changes: tuple[int, int] | None,
) -> RunnableJobs:
    figures = {**ROOMY, **changes, family_metric("NVIDIA_H100"): family}
    quotas = [
        Quota(
            metric=metric,
            place="all regions" if metric.endswith("ALL_REGIONS") else REGION,
            limit=figure[0] if figure else None,
            used=figure[1] if figure else None,
        )
        for metric, figure in figures.items()
    ]
    every = runnable_jobs(gcp_catalogue(), REGION, quotas, gpu_count)
    return next(each for each in every if (each.gpu_type, each.spot) == (gpu_type, spot))


@pytest.mark.parametrize(
    ("gpu_type", "k"), [("P100", 6), ("V100", 8), ("T4", 8), ("L4", 4), ("H100", 26)]
)
def test_each_gpu_takes_its_cpus(gpu_type: str, k: int) -> None:
    assert found(gpu_type, CPUS=(3 * k, 0)).jobs == 3
    one_less = found(gpu_type, CPUS=(3 * k - 1, 0))
    assert (one_less.jobs, one_less.limiting) == (2, "CPUS")
    assert found(gpu_type, CPUS=(3 * k, 1)).jobs == 2


@pytest.mark.parametrize("gpu_type", ["A100", "A100-80GB"])
def test_a2_machines_count_against_their_own_cpus(gpu_type: str) -> None:
    assert found(gpu_type, CPUS=(0, 0)).jobs == 8
    assert found(gpu_type, A2_CPUS=(24, 0)).jobs == 2


def test_what_is_used_is_not_free() -> None:
    assert found("T4", NVIDIA_T4_GPUS=(8, 5)).jobs == 3
    assert found("T4", NVIDIA_T4_GPUS=(8, 9)).jobs == 0


def test_all_gpus_of_the_project_count_together() -> None:
    limited = found("T4", GPUS_ALL_REGIONS=(2, 1))
    assert (limited.jobs, limited.limiting) == (1, "GPUS_ALL_REGIONS")
    assert limited.advice == (
        "raise GPUS_ALL_REGIONS in all regions to 3 (now 2, of which 1 are used)"
    )


@pytest.mark.parametrize(("gpu_type", "jobs"), [("T4", 2), ("A100", 2), ("A100-80GB", 8)])
def test_a_machine_type_that_brings_its_disks_needs_none(gpu_type: str, jobs: int) -> None:
    assert found(gpu_type, LOCAL_SSD_TOTAL_GB=(1124, 0)).jobs == jobs


def test_a_job_with_n_gpus_needs_n_shares() -> None:
    assert found("T4", gpu_count=4).jobs == 2
    assert found("T4", gpu_count=4, CPUS=(63, 0)).jobs == 1
    assert found("T4", gpu_count=3).jobs == 2
    wanted = found("T4", gpu_count=4, NVIDIA_T4_GPUS=(1, 1))
    assert "NVIDIA_T4_GPUS in us-central1 to 5 (now 1, of which 1 are used)" in wanted.advice


def test_newer_gpus_count_by_their_family() -> None:
    limited = found("H100", family=(8, 6))
    assert (limited.jobs, limited.limiting) == (2, "GPUS-PER-GPU-FAMILY/NVIDIA_H100")


def test_what_could_not_be_read_is_unknown_and_not_none() -> None:
    unread = found("T4", NVIDIA_T4_GPUS=None)
    assert unread.jobs is None
    assert unread.limiting == "NVIDIA_T4_GPUS"
    assert "could not be read" in unread.advice
    assert refusal(REGION, [unread]) is None


def test_no_room_in_one_quota_is_none_whatever_is_unknown() -> None:
    assert found("T4", NVIDIA_T4_GPUS=None, GPUS_ALL_REGIONS=(0, 0)).jobs == 0


def test_every_quota_that_is_too_small_is_named() -> None:
    advice = found("T4", NVIDIA_T4_GPUS=(0, 0), GPUS_ALL_REGIONS=(0, 0)).advice
    assert "NVIDIA_T4_GPUS in us-central1 to 1" in advice
    assert "GPUS_ALL_REGIONS in all regions to 1" in advice
    assert "CPUS" not in advice.replace("GPUS", "")


def test_spot_has_its_own_quotas_where_some_were_granted() -> None:
    assert found("T4", spot=True).jobs == 8
    assert found("T4", spot=True, PREEMPTIBLE_NVIDIA_T4_GPUS=(0, 0)).jobs == 8
    own = found("T4", spot=True, PREEMPTIBLE_NVIDIA_T4_GPUS=(2, 0), NVIDIA_T4_GPUS=(0, 0))
    assert (own.jobs, own.limiting) == (2, "PREEMPTIBLE_NVIDIA_T4_GPUS")
    assert found("T4", spot=True, PREEMPTIBLE_CPUS=(8, 0)).jobs == 1
    assert found("T4", PREEMPTIBLE_CPUS=(8, 0)).jobs == 8


def test_every_quota_that_counts_is_shown_with_what_a_job_takes_of_it() -> None:
    shown = found("T4", gpu_count=2).shares
    assert {share.quota.metric: share.per_job for share in shown} == {
        "NVIDIA_T4_GPUS": 2,
        "GPUS_ALL_REGIONS": 2,
        "CPUS": 16,
        "LOCAL_SSD_TOTAL_GB": 750,
    }


def test_only_what_the_region_sells_is_looked_at() -> None:
    every = runnable_jobs(gcp_catalogue(), "us-east4", [])
    assert {each.gpu_type for each in every} == {"T4", "L4", "A100-80GB", "H100"}
    assert all(each.jobs is None for each in every)


def test_a_region_where_nothing_runs_is_refused_with_what_to_raise() -> None:
    none = [found("T4", GPUS_ALL_REGIONS=(0, 0)), found("L4", GPUS_ALL_REGIONS=(0, 0))]
    told = refusal(REGION, none)
    assert told is not None
    assert "T4: raise GPUS_ALL_REGIONS in all regions to 1" in told
    assert refusal(REGION, [*none, found("V100")]) is None
