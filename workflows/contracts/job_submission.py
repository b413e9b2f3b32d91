"""A job as a person submits it. Types and defaults only: the rules are in `rules/jobs.py`.

Stored in the job's row without the values of its variables, and read back from there.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from workflows.contracts.base import Contract
from workflows.contracts.placement import SpotPolicy
from workflows.contracts.statuses import JobType

_SERVICES = (JobType.NOTEBOOK.value, JobType.ENDPOINT.value)


class FieldError(Contract):
    """One thing wrong with a submission, for the person who made it."""

    field: str
    """Dotted path, such as `resources.disk_size_gb` or `workers.0.command`."""
    rule: str
    value: JsonValue = None
    """What was given; None where it is missing or could be a secret."""


class Submitted(BaseModel):
    """A part of a submission: frozen, and refuses fields that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SubmittedResources(Submitted):
    """What each worker asks for: `gpus` alone, or `gpu_types` with `gpu_count`, or CPUs alone."""

    gpus: str | None = None
    """`cpu`, `TYPE` or `TYPE:COUNT`."""
    gpu_types: tuple[str, ...] | None = None
    gpu_count: int | None = None
    cpu_count: int | None = None
    memory_gib: float | None = None
    disk_size_gb: int = 10
    max_price_microcredits_per_gpu_hour: int = 10_000_000


class SubmittedEnvironment(Submitted):
    model_config = ConfigDict(frozen=True, extra="forbid", coerce_numbers_to_str=True)

    image: str | None = None
    python_packages: tuple[str, ...] = ()
    apt_packages: tuple[str, ...] = ()
    variables: dict[str, str] = Field(default_factory=dict)
    secrets: dict[str, str] = Field(default_factory=dict)
    """Variable name to a reference `store://projects/<project>/<name>`."""


class SubmittedCode(Submitted):
    upload_id: str


class DataSource(Submitted):
    """Where input comes from or output goes to."""

    type: str
    upload_id: str | None = None
    """An uploaded archive, for input of type `local`."""


class ModelReference(Submitted):
    id: str
    project_id: str | None = None


class SubmittedData(Submitted):
    datasets: tuple[str, ...] = ()
    model: ModelReference | None = None
    checkpoints: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    input: DataSource | None = None
    output: DataSource | None = None
    """None: nothing is kept. Left out, training and inference keep theirs (`local`)."""


class SubmittedWorker(Submitted):
    command: str


class SubmittedPlacement(Submitted):
    region_id: str | None = None
    providers: tuple[str, ...] | None = None
    """Kinds or ids of the providers to choose from; None: all."""
    only_owned: bool | None = None
    """None: as the project says."""
    spot: SpotPolicy | None = None
    """None: allowed, but never for notebooks and endpoints, which people are at."""


class SubmittedSafety(Submitted):
    price_cap_microcredits_per_hour: int | None = None
    """What all workers together may cost at most."""
    auto_terminate: bool = True
    """False: a machine that was made for it stays when it has finished or failed by itself, and
    costs until a person ends it, or its lease's deadline."""
    idle_timeout_s: int = 1800
    """After so long without output, and with idle GPUs, a training or an inference is ended that is
    on machines which are rented."""
    end_all_on_failure: bool = True
    """One worker that fails ends the others."""
    max_restarts: int = 3
    """How often it begins again elsewhere when a machine of its is gone, as after a preemption."""


class JobSubmission(Submitted):
    name: str
    type: JobType
    project_id: str | None = None
    """None: the personal project of the account."""
    resources: SubmittedResources = SubmittedResources()
    environment: SubmittedEnvironment = SubmittedEnvironment()
    code: SubmittedCode | None = None
    data: SubmittedData = SubmittedData()
    workers: tuple[SubmittedWorker, ...]
    placement: SubmittedPlacement = SubmittedPlacement()
    safety: SubmittedSafety = SubmittedSafety()
    port: int | None = None
    reservation_id: str | None = None
    priority: int = 3
    """1 first, 5 last."""

    @model_validator(mode="before")
    @classmethod
    def _keep_output_unless_told(cls, given: Any) -> Any:
        """What a training leaves behind is kept unless `data.output` says otherwise."""
        if not isinstance(given, dict) or given.get("type") in _SERVICES:
            return given
        data = given.get("data", {})
        if not isinstance(data, dict) or "output" in data:
            return given
        return given | {"data": data | {"output": {"type": "local"}}}

    @property
    def idle_timeout_s(self) -> int | None:
        """None for what people are at, or wait for."""
        return None if self.type.is_service else self.safety.idle_timeout_s

    @property
    def keeps_output(self) -> bool:
        return self.data.output is not None
