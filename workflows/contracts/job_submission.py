"""Submissions: a job as a client sends it, with types and defaults; `rules/jobs/` has the rules.

The job's row stores the submission without the values of its variables.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator, model_validator

from workflows.contracts.base import Contract
from workflows.contracts.placement import SpotPolicy
from workflows.contracts.statuses import JobType

_SERVICES = (JobType.NOTEBOOK.value, JobType.ENDPOINT.value)


class FieldError(Contract):
    """One mistake in a request body, for the person who wrote the body."""

    field: str
    """The dotted path of the field, such as `resources.disk_size_gb` or `workers.0.command`."""
    rule: str
    value: JsonValue = None
    """The given value; None if the field is missing or its value could be a secret."""


class Submitted(BaseModel):
    """A part of a submission: a frozen value that refuses unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SubmittedResources(Submitted):
    """The resources of each worker: `gpus` alone, `gpu_types` with `gpu_count`, or CPUs alone."""

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
    requirements: str | None = None
    """A file of the code that says which packages the job needs: pip's requirements.txt, a
    pyproject.toml (with its uv.lock or pylock.toml, where there is one) or conda's environment.yml.
    """
    setup: tuple[str, ...] = ()
    """What each worker runs before its command, one after the other, such as `pip install -e .`; a
    single one may be given as a text."""
    variables: dict[str, str] = Field(default_factory=dict)
    secrets: dict[str, str] = Field(default_factory=dict)
    """Variable names, each with the name of a secret of the job's project, or with a reference
    `store://projects/<project>/<name>`, which the row keeps."""

    @field_validator("setup", mode="before")
    @classmethod
    def _take_a_text_as_one_step(cls, given: Any) -> Any:
        return (given,) if isinstance(given, str) else given

    @field_validator("variables", mode="before")
    @classmethod
    def _write_booleans_as_yaml_does(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        words = {True: "true", False: "false"}
        return {
            name: words[value] if isinstance(value, bool) else value
            for name, value in given.items()
        }


class SubmittedCode(Submitted):
    upload_id: str


class DataSource(Submitted):
    """The source of input or the destination of output."""

    type: str
    upload_id: str | None = None
    """The upload of an archive, for input of type `local`."""


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
    """The destination of output; None: output of training and inference is not stored. If the field
    is missing, it is (`local`), and so is that of notebooks and endpoints always."""


class SubmittedWorker(Submitted):
    command: str


class SubmittedPlacement(Submitted):
    region_id: str | None = None
    providers: tuple[str, ...] | None = None
    """Kinds or ids of the providers to choose from; None: all."""
    only_owned: bool | None = None
    """Whether the job runs on owned machines alone; None: as the project says."""
    spot: SpotPolicy | None = None
    """None: allowed for training and inference, never for notebooks and endpoints, which people
    use while they run."""


class SubmittedSafety(Submitted):
    price_cap_microcredits_per_hour: int | None = None
    """The highest cost of all workers together."""
    auto_terminate: bool = True
    """False: an ephemeral node is retained when the job has finished or failed by itself. Its
    machine costs money until a person removes the node or the deadline of its lease."""
    idle_timeout_s: int = 1800
    """Ends a training or inference job on leased machines after this many seconds without log
    output and GPU activity."""
    end_all_on_failure: bool = True
    """Whether the failure of one worker ends the others."""
    max_restarts: int = 3
    """How often the job restarts on other machines after it has lost one, as by a preemption."""


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
    """From 1, placed first, to 5, placed last."""

    @model_validator(mode="before")
    @classmethod
    def _store_output_by_default(cls, given: Any) -> Any:
        """Store the output of training and inference unless `data.output` is given."""
        if not isinstance(given, dict) or given.get("type") in _SERVICES:
            return given
        data = given.get("data", {})
        if not isinstance(data, dict) or "output" in data:
            return given
        return given | {"data": data | {"output": {"type": "local"}}}

    @property
    def idle_timeout_s(self) -> int | None:
        """The idle timeout; None for notebooks and endpoints, which may wait for people."""
        return None if self.type.is_service else self.safety.idle_timeout_s

    @property
    def keeps_output(self) -> bool:
        """Whether output is stored at the end, as that of notebooks and endpoints always is."""
        return self.data.output is not None or self.type.is_service
