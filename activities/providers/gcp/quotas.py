"""The quotas of a Google Cloud project in one region, and their use: read live, never stored."""

import logging
from collections import Counter
from typing import Any

from activities.providers.gcp.catalogue import gcp_catalogue
from activities.providers.gcp.errors import GoogleRefusedError, naming_request
from activities.providers.gcp.project import translated_errors
from activities.providers.gcp.session import ANSWER_LIMIT_S, GoogleSession, google_session
from workflows.contracts.quotas import Quota
from workflows.rules.catalogue.clouds import CloudGpu
from workflows.rules.catalogue.quotas import ALL_REGIONS, FAMILY, family_metric

FAMILIES_ID = f"{FAMILY}-per-project-region"
log = logging.getLogger("gcp")


def google_quotas(provider_id: str, region: str) -> tuple[Quota, ...]:
    """The quotas, read with a provider's key. Blocking. Raises: Unavailable, RequestRefused."""
    with translated_errors():
        return read_quotas(google_session(provider_id), region)


def read_quotas(session: GoogleSession, region: str) -> tuple[Quota, ...]:
    """The quotas of the region, of the whole project, and of GPU families.

    A quota that cannot be read is left out or has no figures, which does not mean zero.
    Raises: GoogleRefusedError, GoogleUnavailableError, KeyRefusedError.
    """
    return (*_of_region(session, region), *_of_project(session), *_of_families(session, region))


def _of_region(session: GoogleSession, region: str) -> tuple[Quota, ...]:
    """The quotas of the region; empty when Google warns that it could not read them."""
    from google.cloud import compute_v1  # noqa: PLC0415 - more than a second

    client = session.compute(compute_v1.RegionsClient)
    with naming_request(f"quotas of {region}"):
        found = client.get(
            project=session.project_id, region=region, timeout=ANSWER_LIMIT_S, retry=None
        )
    if found.quota_status_warning.code:
        log.warning("quotas of %s: %s", region, found.quota_status_warning.message)
        return ()
    return _read(found.quotas, region)


def _of_project(session: GoogleSession) -> tuple[Quota, ...]:
    from google.cloud import compute_v1  # noqa: PLC0415

    client = session.compute(compute_v1.ProjectsClient)
    with naming_request(f"quotas of {session.project_id}"):
        found = client.get(project=session.project_id, timeout=ANSWER_LIMIT_S, retry=None)
    return _read(found.quotas, ALL_REGIONS)


def _read(quotas: Any, place: str) -> tuple[Quota, ...]:
    return tuple(
        Quota(metric=each.metric, place=place, limit=int(each.limit), used=int(each.usage))
        for each in quotas
    )


def _of_families(session: GoogleSession, region: str) -> tuple[Quota, ...]:
    """The quotas of GPU families, which newer GPUs have instead of a regional quota.

    A separate API has their limits. No API has their use, so we count the machines in the region.
    """
    sold = gcp_catalogue().gpu_types_in(region)
    gpus = [gpu for gpu in gcp_catalogue().gpus if gpu.gpu_family and gpu.gpu_type in sold]
    if not gpus:
        return ()
    limits = _family_limits(session, region)
    used = _used(session, region, gpus) if any(limits.values()) else Counter[str]()
    return tuple(
        Quota(
            metric=family_metric(gpu.gpu_family or ""),
            place=region,
            limit=limits.get(gpu.gpu_family or ""),
            used=used[gpu.gpu_type],
        )
        for gpu in gpus
    )


def _family_limits(session: GoogleSession, region: str) -> dict[str, int]:
    """Each GPU family with its limit; empty when the Cloud Quotas API is not enabled or allowed."""
    path = (
        f"/v1/projects/{session.project_id}/locations/global/services/compute.googleapis.com"
        f"/quotaInfos/{FAMILIES_ID}"
    )
    try:
        found = session.ask("GET", "cloudquotas", path)
    except GoogleRefusedError as refusal:
        log.warning("limits of GPU families: %s", refusal)
        return {}
    limits: dict[str, int] = {}
    for info in found.get("dimensionsInfos", ()):
        dimensions = info.get("dimensions", {})
        family = dimensions.get("gpu_family")
        here = dimensions.get("region") or info.get("applicableLocations", ())
        value = info.get("details", {}).get("value")
        if family and value is not None and region in here:
            limits[family] = int(value)
    return limits


def _used(session: GoogleSession, region: str, gpus: list[CloudGpu]) -> Counter[str]:
    """The number of GPUs of these types in all machines of the region, ours or not."""
    from google.cloud import compute_v1  # noqa: PLC0415

    of_accelerator = {name: gpu.gpu_type for gpu in gpus for name in gpu.accelerators}
    wanted = {gpu.gpu_type for gpu in gpus}
    of_machine = {
        machine.name: machine
        for machine in gcp_catalogue().machines
        if machine.gpu_type in wanted and not machine.attaches
    }
    used: Counter[str] = Counter()
    client = session.compute(compute_v1.InstancesClient)
    with naming_request(f"machines of {session.project_id}"):
        pages = client.aggregated_list(
            project=session.project_id, timeout=ANSWER_LIMIT_S, retry=None
        )
        here = [found for scope, found in pages if scope.startswith(f"zones/{region}-")]
    for machine in (each for found in here for each in found.instances):
        kind = of_machine.get(_last(machine.machine_type))
        if kind is not None:
            used[kind.gpu_type or ""] += kind.gpu_count
            continue
        for each in machine.guest_accelerators:
            used[of_accelerator.get(_last(each.accelerator_type), "")] += each.accelerator_count
    return used


def _last(url: str) -> str:
    return url.rpartition("/")[2]
