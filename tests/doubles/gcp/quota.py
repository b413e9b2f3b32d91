"""What a project may use, and what it uses: of regions, of the whole project, of GPU families."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.doubles.gcp.calls import Call, Register
from tests.doubles.gcp.discovery import Json
from tests.doubles.gcp.errors import RefusedError
from tests.doubles.gcp.hardware import GPUS, ZONES, MachineType
from tests.doubles.gcp.lists import page
from tests.doubles.gcp.project import Project

if TYPE_CHECKING:
    from tests.doubles.gcp.cloud import Cloud

serves = Register()

_GPU_METRICS = tuple(gpu.metric for gpu in GPUS.values() if not gpu.metric.startswith("family:"))
USUAL: Mapping[str, float] = {
    "CPUS": 2400.0, "A2_CPUS": 768.0, "N2_CPUS": 500.0, "E2_CPUS": 500.0, "C2_CPUS": 100.0,
    "PREEMPTIBLE_CPUS": 0.0, "DISKS_TOTAL_GB": 102400.0, "SSD_TOTAL_GB": 81920.0,
    "LOCAL_SSD_TOTAL_GB": 60000.0, "PREEMPTIBLE_LOCAL_SSD_GB": 60000.0, "INSTANCES": 6000.0,
    "IN_USE_ADDRESSES": 2300.0, "STATIC_ADDRESSES": 700.0,
    **dict.fromkeys(_GPU_METRICS, 16.0),
    **{f"PREEMPTIBLE_{metric}": 16.0 for metric in _GPU_METRICS},
    "PREEMPTIBLE_NVIDIA_H100_GPUS": 16.0,
    "family:NVIDIA_H100": 8.0, "family:NVIDIA_H100_MEGA": 0.0, "family:NVIDIA_H200": 0.0,
    "family:NVIDIA_B200": 0.0, "family:NVIDIA_RTX_PRO_6000": 0.0,
    "preemptible-family:NVIDIA_H100_MEGA": 0.0, "preemptible-family:NVIDIA_H200": 0.0,
    "preemptible-family:NVIDIA_B200": 0.0, "preemptible-family:NVIDIA_RTX_PRO_6000": 0.0,
}  # fmt: skip
"""The limits of each region of a project that has asked Google for GPUs."""
USUAL_GLOBAL: Mapping[str, float] = {
    "GPUS_ALL_REGIONS": 64.0, "CPUS_ALL_REGIONS": 5000.0, "NETWORKS": 50.0, "SUBNETWORKS": 275.0,
    "FIREWALLS": 500.0, "SNAPSHOTS": 5000.0, "IMAGES": 2000.0,
}  # fmt: skip
GLOBAL = ""
"""The region under which a project's own limits stand in `Project.limits`."""
FAMILIES = "GPUS-PER-GPU-FAMILY-per-project-region"
SPOT_FAMILIES = f"PREEMPTIBLE-{FAMILIES}"
_CPU_METRICS = {"a2": "A2_CPUS", "n2": "N2_CPUS", "e2": "CPUS", "n1": "CPUS", "custom": "CPUS"}


@dataclass(frozen=True)
class Use:
    """What one resource uses of its region's and its project's limits."""

    project: str
    region: str
    metrics: Mapping[str, float] = field(default_factory=dict)
    of_project: Mapping[str, float] = field(default_factory=dict)


class Uses(dict[str, Use]):
    """What each resource uses, by its path, and what they use together.

    totals: by project and region, region `""` for what counts against the whole project.
    """

    def __init__(self) -> None:
        super().__init__()
        self.totals: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)

    def __setitem__(self, path: str, use: Use) -> None:
        self.free(path)
        super().__setitem__(path, use)
        self._count(use, 1)

    def free(self, path: str) -> None:
        """Silent when it uses nothing."""
        if path in self:
            self._count(self[path], -1)
            super().__delitem__(path)

    def _count(self, use: Use, sign: int) -> None:
        for region, metrics in ((use.region, use.metrics), (GLOBAL, use.of_project)):
            total = self.totals[use.project, region]
            for metric, amount in metrics.items():
                total[metric] += sign * amount  # type: ignore[assignment]


@dataclass(frozen=True)
class Exceeded:
    metric: str
    limit: float
    region: str

    @property
    def message(self) -> str:
        where = f" in region {self.region}" if self.region else " globally"
        name = self.metric.rpartition(":")[2]
        if ":" in self.metric:
            return f"Quota 'GPUS_PER_GPU_FAMILY' exceeded for {name}.  Limit: {self.limit}{where}."
        return f"Quota '{name}' exceeded.  Limit: {self.limit}{where}."

    @property
    def details(self) -> Json:
        """`quotaInfo` of an operation's error."""
        dimensions = {"region": self.region} if self.region else {}
        lower = self.metric.lower()
        if ":" in self.metric:
            dimensions["gpu_family"] = self.metric.rpartition(":")[2]
            lower = "gpus_per_gpu_family"
        scope = "per-project-region" if self.region else "per-project"
        return {
            "metricName": f"compute.googleapis.com/{lower}",
            "limitName": f"{lower.upper().replace('_', '-')}-{scope}",
            "limit": self.limit,
            "dimensions": dimensions,
        }


def limit(project: Project, region: str, metric: str) -> float:
    usual = USUAL_GLOBAL if region == GLOBAL else USUAL
    return project.limits.get(region, {}).get(metric, usual.get(metric, 0.0))


def usage(cloud: Cloud, project: Project, region: str) -> Counter[str]:
    """What is used of each metric, region `""` for those of the whole project."""
    return cloud.uses.totals[project.id, region]


def exceeded(cloud: Cloud, project: Project, more: Use) -> Exceeded | None:
    """The first limit that this use would break, on top of what is used."""
    for region, wanted in ((more.region, more.metrics), (GLOBAL, more.of_project)):
        used = usage(cloud, project, region)
        for metric, amount in wanted.items():
            most = limit(project, region, metric)
            if amount and used[metric] + amount > most:
                return Exceeded(metric, most, region)
    return None


def machine_use(
    kind: MachineType, gpus: Iterable[tuple[str, int]], *, spot: bool, cpu_spot: bool
) -> tuple[dict[str, float], dict[str, float]]:
    """What a machine uses in its region and in its project.

    cpu_spot: whether spot CPUs have a quota of their own here; without one they count as others.
    """
    metrics: dict[str, float] = {"INSTANCES": 1.0}
    of_project: dict[str, float] = {"CPUS_ALL_REGIONS": float(kind.cpus)}
    cpus = _CPU_METRICS.get(kind.family)
    if cpus is not None:
        metrics["PREEMPTIBLE_CPUS" if spot and cpu_spot else cpus] = float(kind.cpus)
    for name, count in gpus:
        gpu = GPUS[name]
        metric = gpu.preemptible_metric if spot else gpu.metric
        metrics[metric] = metrics.get(metric, 0.0) + count
        of_project["GPUS_ALL_REGIONS"] = of_project.get("GPUS_ALL_REGIONS", 0.0) + count
    if kind.bundled_ssd_gb:
        metrics["PREEMPTIBLE_LOCAL_SSD_GB" if spot else "LOCAL_SSD_TOTAL_GB"] = float(
            kind.bundled_ssd_gb
        )
    return metrics, of_project


def quotas(cloud: Cloud, project: Project, region: str) -> list[Json]:
    """`quotas` of a region, or of the project where region is `""`."""
    used = usage(cloud, project, region)
    named = USUAL_GLOBAL if region == GLOBAL else USUAL
    return [
        {"metric": metric, "limit": limit(project, region, metric), "usage": float(used[metric])}
        for metric in {**named, **project.limits.get(region, {})}
        if ":" not in metric
    ]


@serves("cloudquotas.quotaInfos.get")
def get_quota_info(call: Call) -> Json:
    wanted = call["name"].rsplit("/", 1)[1]
    for info in _infos(call):
        if info["quotaId"] == wanted:
            return info
    raise RefusedError(404, "notFound", f"Quota info {wanted} was not found.")


@serves("cloudquotas.quotaInfos.list")
def list_quota_infos(call: Call) -> Json:
    return page(call, "quotaInfos", list(_infos(call)), "pageSize")


def _infos(call: Call) -> Iterator[Json]:
    service = call.get("name", call.get("parent")).split("/services/")[1].split("/")[0]
    if service != "compute.googleapis.com":
        return
    yield _info(call.project, FAMILIES, "family:", "gpus_per_gpu_family")
    yield _info(
        call.project, SPOT_FAMILIES, "preemptible-family:", "preemptible_gpus_per_gpu_family"
    )


def _info(project: Project, quota_id: str, prefix: str, metric: str) -> Json:
    parent = f"projects/{project.number}/locations/global/services/compute.googleapis.com"
    families = [name.removeprefix(prefix) for name in USUAL if name.startswith(prefix)]
    return {
        "name": f"{parent}/quotaInfos/{quota_id}",
        "quotaId": quota_id,
        "metric": f"compute.googleapis.com/{metric}",
        "service": "compute.googleapis.com",
        "isPrecise": True,
        "containerType": "PROJECT",
        "dimensions": ["gpu_family", "region"],
        "metricDisplayName": "GPUs per GPU family",
        "quotaDisplayName": "GPUs per GPU family per project per region",
        "metricUnit": "1",
        "dimensionsInfos": [
            {
                "dimensions": {"gpu_family": family, "region": region},
                "details": {"value": str(int(limit(project, region, f"{prefix}{family}")))},
                "applicableLocations": [region],
            }
            for family in families
            for region in ZONES
        ],
        "quotaIncreaseEligibility": {"isEligible": True},
    }
