"""The rules for the resources of a submission: GPUs, CPUs, memory, disk, price."""

import hashlib
import json
from collections.abc import Collection
from dataclasses import asdict

from workflows.contracts.job_submission import JobSubmission
from workflows.contracts.placement import Demand, Resources, SpotPolicy
from workflows.contracts.statuses import ProviderKind
from workflows.rules.catalogue.gpu_names import (
    MAX_GPUS_PER_WORKER,
    canonical_name,
    known_names,
    parse_gpus,
    unknown_name_rule,
)
from workflows.rules.catalogue.providers import rented_kinds
from workflows.rules.jobs.artifacts import volumes_of
from workflows.rules.jobs.field_errors import Mistakes, field_error

GIB = 1024**3
MEMORY_GIB_PER_CPU = 1.5
"""What a machine of 2 GB for each CPU can spare beside its own system."""
MEMORY_GIB_PER_GPU = 6
MAX_GPU_NAME = 100


_OWN_KINDS = {kind.value for kind in ProviderKind} - set(rented_kinds())
"""The kinds whose GPU models are all in the catalogue, or on nodes that are there."""


def resources_of(submission: JobSubmission, known_gpu_types: Collection[str] = ()) -> Resources:
    """The resources of each worker, with the catalogue's names; the submission has no mistakes."""
    asked = submission.resources
    names, count = asked.gpu_types or (), asked.gpu_count or 0
    if asked.gpus is not None:
        short = parse_gpus(asked.gpus)
        names, count = ((short.name,) if short.name else ()), short.count
    return Resources(
        gpu_types=tuple(
            dict.fromkeys(each for name in names for each in known_names(name, known_gpu_types))
        ),
        gpu_count=count,
        cpu_count=asked.cpu_count or (0 if count else 1),
        memory_bytes=int((asked.memory_gib or 0) * GIB),
        disk_size_gb=asked.disk_size_gb,
        max_price_microcredits_per_gpu_hour=asked.max_price_microcredits_per_gpu_hour,
    )


def with_memory(submission: JobSubmission) -> JobSubmission:
    """The submission with the memory that is reserved if it names none: by its CPUs and GPUs.

    It is decided once, when the job is submitted, so that a job in a row keeps what it has.
    """
    if submission.resources.memory_gib is not None:
        return submission
    resources = resources_of(submission)
    gib = max(
        resources.cpu_count * MEMORY_GIB_PER_CPU, float(resources.gpu_count * MEMORY_GIB_PER_GPU)
    )
    decided = submission.resources.model_copy(update={"memory_gib": gib})
    return submission.model_copy(update={"resources": decided})


def demand_of(
    submission: JobSubmission,
    account_id: str,
    known_gpu_types: Collection[str] = (),
    data_bytes: int = 0,
) -> Demand:
    """What it asks of placement for an account; what its project adds is not in it.

    data_bytes: the disk that its datasets, model, checkpoints and volumes take.
    """
    placement = submission.placement
    return Demand(
        **asdict(resources_of(submission, known_gpu_types)),
        account_id=account_id,
        worker_count=len(submission.workers),
        region_id=placement.region_id,
        providers=placement.providers or (),
        only_owned=bool(placement.only_owned),
        needs_image=submission.environment.image is not None,
        needs_apt_packages=bool(submission.environment.apt_packages),
        needs_attestation=needs_attestation(submission),
        port=submission.port,
        reservation_id=submission.reservation_id,
        price_cap_microcredits_per_hour=submission.safety.price_cap_microcredits_per_hour,
        spot=spot_policy_of(submission),
        volumes=volumes_of(submission),
        has_secrets=keeps_secrets(submission),
        data_bytes=data_bytes,
    )


def keeps_secrets(submission: JobSubmission) -> bool:
    """Whether the job has secrets or third-party keys, and does not give them to strangers."""
    environment = submission.environment
    has_any = environment.secrets or environment.credentials or environment.image_credentials
    return bool(has_any) and not submission.placement.untrusted


def demand_key(
    submission: JobSubmission, account_id: str, data_bytes: int = 0, fee_payer_id: str | None = None
) -> str:
    """The key of a job's demand: jobs of one project with equal keys have equal demands.

    It is stored with the job. After a change of `demand_of` by which jobs with one key can have
    different demands, set the keys of waiting jobs to NULL in a migration; the next planning round
    computes them anew.

    fee_payer_id: the creator of a federated job, whose credits the job waits for as well.
    """
    demand = demand_of(submission, account_id, data_bytes=data_bytes)
    fields = asdict(demand)
    del fields["project_id"]  # The key is compared within a project.
    del fields["has_fee_credits"]  # Which of a submission nobody knows.
    del fields["needs_confinement"]  # Jobs of federated jobs have a fee payer.
    if not demand.needs_attestation:  # Keys of an earlier release stay what they are.
        del fields["needs_attestation"]
    if fee_payer_id is not None:
        fields["fee_payer_id"] = fee_payer_id
    asked = json.dumps(fields, sort_keys=True)
    return hashlib.sha256(asked.encode()).hexdigest()[:32]


def needs_attestation(submission: JobSubmission) -> bool:
    """Whether the owner of its model asks for a machine that proves what runs on it."""
    model = submission.data.model
    return model is not None and model.needs_attestation


def spot_policy_of(submission: JobSubmission) -> SpotPolicy:
    """The spot policy of a submission; notebooks and endpoints use no spot machine by default."""
    if submission.placement.spot is not None:
        return submission.placement.spot
    return SpotPolicy.NEVER if submission.type.is_service else SpotPolicy.ALLOWED


def gpus_asked(job: JobSubmission) -> Mistakes:
    asked = job.resources
    if asked.gpus is not None:
        if asked.gpu_types is not None:
            yield field_error("resources.gpu_types", "is not given beside gpus", [*asked.gpu_types])
        if asked.gpu_count is not None:
            rule = "is not given beside gpus, which says the count"
            yield field_error("resources.gpu_count", rule, asked.gpu_count)
        try:
            parse_gpus(asked.gpus)
        except ValueError as error:
            yield field_error("resources.gpus", str(error), asked.gpus)
        return
    count = asked.gpu_count
    if asked.gpu_types and count is None:
        yield field_error("resources.gpu_count", "is needed with gpu_types", None)
    if count is None:
        return
    if not asked.gpu_types:
        yield field_error("resources.gpu_count", "needs gpu_types; a CPU-only job has none", count)
    elif not 1 <= count <= MAX_GPUS_PER_WORKER:
        yield field_error("resources.gpu_count", f"is 1 to {MAX_GPUS_PER_WORKER}", count)


def gpu_names(job: JobSubmission, known: Collection[str]) -> Mistakes:
    """The mistakes in GPU names. An unknown name passes unchanged to a marketplace that is named.

    What is no kind may be the id or the name of one, which the API finds out.
    """
    passes = any(name not in _OWN_KINDS for name in job.placement.providers or ())
    asked = job.resources
    names = [
        (f"resources.gpu_types.{index}", name) for index, name in enumerate(asked.gpu_types or ())
    ]
    if asked.gpus is not None:
        try:
            short = parse_gpus(asked.gpus)
        except ValueError:
            return
        names = [("resources.gpus", short.name)] if short.name else []
    for field, name in names:
        if passes and not (1 <= len(name) <= MAX_GPU_NAME and name.isprintable()):
            yield field_error(field, f"is 1 to {MAX_GPU_NAME} characters on one line", name)
        elif not passes and canonical_name(name, known) is None:
            yield field_error(field, unknown_name_rule(name, known), name)


def amounts(job: JobSubmission) -> Mistakes:
    asked = job.resources
    wants_gpus = bool(asked.gpu_types) or (
        asked.gpus is not None and asked.gpus.strip().lower() != "cpu"
    )
    if asked.cpu_count is None and not wants_gpus:
        yield field_error("resources.cpu_count", "is needed for a CPU-only job", None)
    if asked.cpu_count is not None and not 1 <= asked.cpu_count <= 4096:
        yield field_error("resources.cpu_count", "is 1 to 4096", asked.cpu_count)
    if asked.memory_gib is not None and not 0 < asked.memory_gib <= 65_536:
        yield field_error("resources.memory_gib", "is above 0, at most 65536", asked.memory_gib)
    if not 10 <= asked.disk_size_gb <= 2000:
        yield field_error("resources.disk_size_gb", "is 10 to 2000", asked.disk_size_gb)
    price = asked.max_price_microcredits_per_gpu_hour
    if not 0 <= price <= 10**12:
        field = "resources.max_price_microcredits_per_gpu_hour"
        yield field_error(field, "is 0 to 1000000000000", price)
