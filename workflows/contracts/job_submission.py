"""Submissions: a job as a client sends it, with types and defaults; `rules/jobs/` has the rules.

The job's row stores the submission without the values of its variables.
"""

from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from workflows.contracts.artifacts import VolumeAccess
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


MAX_ARRAY = 1000
"""The number of jobs of one array."""
_ARRAY_RULE = f"is the number of jobs, 1 to {MAX_ARRAY}, or a list of maps of names to values"
_WORDS = {True: "true", False: "false"}


def _array(given: Any) -> Any:
    """The parameters of each job of an array: as many empty maps as its number says, if it is one.

    Raises: ValueError, for a number of jobs that an array cannot have.
    """
    if isinstance(given, int) and not isinstance(given, bool) and 1 <= given <= MAX_ARRAY:
        return ({},) * given
    if given is not None and (not isinstance(given, list | tuple) or not given):
        raise ValueError(_ARRAY_RULE)
    return given if given is None else tuple(_parameters(each) for each in given)


def _parameters(given: Any) -> Any:
    """The parameters, or the labels, of one job as texts, as YAML writes numbers and booleans."""
    if not isinstance(given, dict):
        return given
    return {
        name: _WORDS[value] if isinstance(value, bool) else _text(value)
        for name, value in given.items()
    }


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) else value


_Array = Annotated[
    tuple[dict[str, str], ...] | None,
    BeforeValidator(_array),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": MAX_ARRAY},
                {
                    "type": "array",
                    "maxItems": MAX_ARRAY,
                    "items": {
                        "type": "object",
                        "additionalProperties": {"type": ["string", "number", "boolean"]},
                    },
                },
                {"type": "null"},
            ]
        }
    ),
]


def _in_one_line(schema: dict[str, Any]) -> None:
    """Write the description of each field in one line, without the line breaks of the source."""
    for field in schema.get("properties", {}).values():
        if "description" in field:
            field["description"] = " ".join(field["description"].split())


_Labels = Annotated[
    dict[str, str],
    BeforeValidator(_parameters),
    WithJsonSchema(
        {
            "type": "object",
            "maxProperties": 16,
            "additionalProperties": {"type": ["string", "number", "boolean"]},
        }
    ),
]


class Submitted(BaseModel):
    """A part of a submission: a frozen value that refuses unknown fields.

    The text below a field is its description everywhere: in the OpenAPI document, in the schema of
    job files, in `docs/job.md` and in `baseload help job`.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        json_schema_extra=_in_one_line,
    )


class SubmittedResources(Submitted):
    """The resources of each worker: `gpus` alone, `gpu_types` with `gpu_count`, or CPUs alone."""

    gpus: str | None = Field(None, examples=["A100:4", "RTX4090:1", "cpu"])
    """The GPUs of each worker: `TYPE` for one, `TYPE:COUNT` for several, `cpu` for none. `baseload
    offers --gpus TYPE` says which machines would fit. Without this field and `gpu_types`, the job
    has none."""
    gpu_types: tuple[str, ...] | None = Field(None, examples=[["A100", "H100"]])
    """The GPU types of which any will do, with `gpu_count`; in place of `gpus`."""
    gpu_count: int | None = Field(None, examples=[4])
    """How many GPUs each worker has, 1 to 64; with `gpu_types` alone."""
    cpu_count: int | None = Field(None, examples=[4])
    """How many CPUs (logical cores) are reserved for each worker, 1 to 4096. A job without GPUs
    needs it; one with GPUs reserves none by default."""
    memory_gib: float | None = Field(None, examples=[8])
    """How much memory is reserved for each worker, in GiB (2^30 bytes), above 0, at most 65536. By
    default 1.5 for each CPU, or 6 for each GPU if that is more. In an image (`environment.image`)
    the command cannot use more; elsewhere it can."""
    disk_size_gb: int = Field(10, examples=[50])
    """How much disk each worker needs for its files, packages and output, in GB (10^9 bytes), 10
    to 2000."""
    max_price_microcredits_per_gpu_hour: int = Field(10_000_000, examples=[2_500_000])
    """The highest price of one GPU for an hour, in microcredits: 2500000 is 2.50 credits. Dearer
    machines are refused."""


class SubmittedEnvironment(Submitted):
    """What the commands find: an image or packages, variables and secrets."""

    model_config = ConfigDict(frozen=True, extra="forbid", coerce_numbers_to_str=True)

    image: str | None = Field(None, examples=["pytorch/pytorch:latest"])
    """A container image to run the commands in; without a registry it is of docker.io. Without this
    field they run on the machine itself."""
    python_packages: tuple[str, ...] = Field((), examples=[["scikit-learn", "torch>=2.4"]])
    """Python packages by name, with versions if needed (PEP 508), at most 64. They are installed
    into a virtual environment, which is kept on the machine for the next job with the same."""
    apt_packages: tuple[str, ...] = Field((), examples=[["ffmpeg"]])
    """Debian packages by their exact names, at most 64; not with an image. They are of the
    job alone, and go with it, unless the machine's region has them installed onto it."""
    requirements: str | None = Field(None, examples=["requirements.txt"])
    """A file of the code that says which packages the job needs: pip's requirements.txt, a
    pyproject.toml (with its uv.lock or pylock.toml, where there is one) or conda's environment.yml.
    """
    setup: tuple[str, ...] = Field((), examples=["pip install -e ."])
    """What each worker runs before its command, one after the other; a single one may be given as
    a text. If it fails, the job fails with the reason `setup`."""
    variables: dict[str, str] = Field(default_factory=dict, examples=[{"EPOCHS": "20"}])
    """Variables of the commands' environment. Their values are stored encrypted and never shown.
    Names do not begin with BASELOAD_."""
    secrets: dict[str, str] = Field(default_factory=dict, examples=[{"HF_TOKEN": "hf_token"}])
    """Variables whose values are secrets of the job's project, each with the name of its secret
    (`baseload secret set`), or with the reference `store://projects/PROJECT/NAME`."""
    credentials: tuple[str, ...] = Field((), examples=[["aws", "huggingface"]])
    """Third-party keys of the job's project that the commands get, each by its type (`baseload
    project key list`): as variables such as AWS_ACCESS_KEY_ID and HF_TOKEN, or as files below
    BASELOAD_KEYS that variables name, such as GOOGLE_APPLICATION_CREDENTIALS."""
    image_credentials: str | None = Field(None, examples=["docker"])
    """The third-party key of the project with which the image is pulled, `docker` or `ngc`; the
    commands do not get it. By default the one that opens the registry of the image, if the project
    has one and you may use it."""

    @field_validator("setup", mode="before")
    @classmethod
    def _take_a_text_as_one_step(cls, given: Any) -> Any:
        return (given,) if isinstance(given, str) else given

    @field_validator("variables", mode="before")
    @classmethod
    def _write_booleans_as_yaml_does(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        return {
            name: _WORDS[value] if isinstance(value, bool) else value
            for name, value in given.items()
        }


class SubmittedCode(Submitted):
    """The code, as an archive that was uploaded."""

    upload_id: str = Field(examples=["upl-01j"])
    """The upload of the code, a `.tar.gz` sent to `POST /v1/uploads`."""


class DataSource(Submitted):
    """A folder of a datastore, or what else has the type of the part."""

    type: str = Field(examples=["regional"])
    """`regional`: a folder of a datastore, in whose region the job then runs."""
    upload_id: str | None = Field(None, examples=["upl-01j"])
    """The upload of an archive, for input alone; its files are what BASELOAD_INPUT has."""
    datastore_id: str | None = Field(None, examples=["dst-01j"])
    """The datastore, for `regional` alone (`baseload datastore ls`)."""
    path: str | None = Field(None, examples=["sets/digits"])
    """The folder of the datastore, relative to its root and never above it; `/` is all of it, and
    the default. Links on the way are not followed. Output of several workers goes into `worker-0`,
    `worker-1` and so on below it."""


class InputSource(DataSource):
    """The source of a job's input."""

    type: str = Field(examples=["web"])
    """`local`: an upload. `regional`: a folder of a datastore, in whose region the job then runs.
    `dataset`, `model`, `checkpoint`: one of the job's project. `job`: the output of another job of
    the project, which has ended. `web`, `git`, `aws`, `wasabi`, `gcp`, `azure`, `huggingface`,
    `kaggle`: transferred once for the job, and for all jobs of its array, with the fields that a
    dataset from there has; the job waits meanwhile."""
    id: str | None = Field(None, examples=["dat-01j"])
    """The dataset, the model or the checkpoint, for these types alone."""
    job_id: str | None = Field(None, examples=["job-01j"])
    """The job whose output it is, for `job`."""
    worker: int | None = Field(None, examples=[0])
    """The worker of that job, 0 by default, for `job`."""
    url: str | None = Field(None, examples=["https://example.com/digits.tar.gz"])
    """The address, for `web` and `git`."""
    sha256: str | None = Field(None, examples=["9f86d081884c7d65…"])
    """The hash that the file must have, for `web`; by default any file is taken."""
    unpack: bool | None = Field(None, examples=[False])
    """Whether an archive is unpacked, for `web`; by default it is."""
    revision: str | None = Field(None, examples=["main"])
    """A branch, a tag or a commit, for `git` and `huggingface`."""
    bucket: str | None = Field(None, examples=["sets"])
    """The bucket, for `aws`, `wasabi` and `gcp`."""
    prefix: str | None = Field(None, examples=["digits/2026"])
    """What the names of the objects begin with, up to a `/`, for buckets and `azure`."""
    region: str | None = Field(None, examples=["eu-central-1"])
    """The region of the bucket, for `aws` and `wasabi`."""
    account: str | None = Field(None, examples=["clinicstore"])
    """The storage account, for `azure`."""
    container: str | None = Field(None, examples=["sets"])
    """The container, for `azure`."""
    repo: str | None = Field(None, examples=["google-bert/bert-base-uncased"])
    """The repository, for `huggingface`."""
    kind: str | None = Field(None, examples=["dataset"])
    """Whether the repository is a `model`, as by default, or a `dataset`, for `huggingface`."""
    dataset: str | None = Field(None, examples=["uciml/iris"])
    """The dataset, for `kaggle`."""
    version: int | None = Field(None, examples=[2])
    """Its version, for `kaggle`; by default the newest."""
    secret: str | None = Field(None, examples=["bucket_key"])
    """The project's secret that opens it, for `aws`, `wasabi` and `huggingface`, where no
    third-party key does."""
    with_key: bool | None = Field(None, examples=[True])
    """Whether it is read with the project's third-party key of its type; by default if the project
    has one, and you may use it."""


class OutputDestination(DataSource):
    """The destination of a job's output."""

    type: str = Field(examples=["local"])
    """`local`: the platform's own store. `regional`: a folder of a datastore, in whose region the
    job then runs. Training and inference alone have others, to which the stored output is sent when
    the job has finished: `aws`, `wasabi`, `gcp`, `azure`, `git`, `huggingface` and `kaggle` with
    the project's third-party key of the type, `web`, and `dataset`, `model` or `checkpoint`, which
    is made of it. The platform's own store has it as well."""
    url: str | None = Field(None, examples=["https://example.com/in/{job_id}.tar.gz"])
    """The address, for `web`, to which a tar.gz is sent by PUT, and the repository, for `git`."""
    secret: str | None = Field(None, examples=["upload_token"])
    """The project's secret that is sent as the header Authorization, for `web`."""
    branch: str | None = Field(None, examples=["results"])
    """The branch that gets a commit with the output, `main` by default, for `git` and
    `huggingface`."""
    bucket: str | None = Field(None, examples=["results"])
    """The bucket, for `aws`, `wasabi` and `gcp`."""
    prefix: str | None = Field(None, examples=["runs/{job_id}"])
    """The folder there, for all but `web`, `kaggle` and what the platform has; `{job_id}` stands
    for the id of the job, and an array must have it. What is there under the same names is
    replaced. Output of several workers goes into `worker-0`, `worker-1` and so on below it."""
    region: str | None = Field(None, examples=["eu-central-1"])
    """The region of the bucket, for `aws` and `wasabi`."""
    account: str | None = Field(None, examples=["clinicstore"])
    """The storage account, for `azure`."""
    container: str | None = Field(None, examples=["results"])
    """The container, for `azure`."""
    repo: str | None = Field(None, examples=["clinic/digits"])
    """The repository, which must be there, for `huggingface`."""
    kind: str | None = Field(None, examples=["dataset"])
    """Whether the repository is a `model`, as by default, or a `dataset`, for `huggingface`."""
    dataset: str | None = Field(None, examples=["clinic/digits"])
    """The dataset, which must be there and gets a new version, for `kaggle`."""
    name: str | None = Field(None, examples=["digits-{job_id}"])
    """The name of the new dataset, model or checkpoint; the id of the job by default."""


class ModelReference(Submitted):
    """A model of the platform."""

    id: str = Field(examples=["mod-01j"])
    """The id of the model."""
    project_id: str | None = Field(None, examples=["prj-01j"])
    """The project that has the model: the job's own, or another one for a federated job."""


class JobModelReference(ModelReference):
    """A model of the platform, and what its owner asks for it."""

    needs_attestation: bool = Field(False, examples=[True])
    """Whether a machine gets the key of the model only after it has proved what runs on it
    (confidential computing); for federated jobs alone."""


class VolumeReference(Submitted):
    """A volume of the platform, and what the job does with it."""

    id: str = Field(examples=["vol-01j"])
    """The id of the volume."""
    access: VolumeAccess = Field(examples=["write"])
    """`write`: the job is the only one that has the volume, and what it writes is stored while it
    runs and at its end. `read`: the job sees the volume as it was when the job began, and others
    read it too."""


class SubmittedData(Submitted):
    """What the commands read and where their output goes."""

    datasets: tuple[str, ...] = Field((), examples=[["dat-01j"]])
    """Datasets of the job's project by their ids, at most 64; not for inference. Each is a folder
    of its name in BASELOAD_DATASETS, which cannot be written to."""
    model: JobModelReference | None = Field(None, examples=[{"id": "mod-01j"}])
    """The model to work with, of the job's project; BASELOAD_MODEL is its folder, which cannot be
    written to."""
    checkpoints: tuple[str, ...] = Field((), examples=[["chk-01j"]])
    """Checkpoints of the job's project by their ids, at most 64. Each is a folder of its name in
    BASELOAD_CHECKPOINTS, which cannot be written to."""
    volumes: tuple[VolumeReference, ...] = Field(
        (), examples=[[{"id": "vol-01j", "access": "write"}]]
    )
    """Volumes of the job's project, at most 16; for notebooks and endpoints. Each is a folder of
    its name in BASELOAD_VOLUMES. A job waits while another one writes to a volume that it names,
    and one that writes waits for the readers as well."""
    input: InputSource | None = Field(None, examples=[{"type": "local", "upload_id": "upl-01j"}])
    """The files that the command finds in BASELOAD_INPUT."""
    scratch: DataSource | None = Field(
        None, examples=[{"type": "regional", "datastore_id": "dst-01j", "path": "tmp"}]
    )
    """A writable folder for the life of each run, in BASELOAD_SCRATCH: one of its own below the
    folder of a datastore (`type: regional`), which goes with the run. Where the machine cannot
    mount the datastore, it is on the machine's own disk (`resources.disk_size_gb`)."""
    output: OutputDestination | None = Field(None, examples=[{"type": "local"}])
    """The destination of output. If the field is left out, output is stored (`type: local`); null:
    that of training and inference is not. The output of notebooks and endpoints always is: on the
    platform, or on a datastore (`type: regional`)."""


class SubmittedWorker(Submitted):
    """One worker: one command on one machine."""

    command: str = Field(examples=["python train.py"])
    """The command, which a shell (`/bin/sh`) runs in the folder of the code; at most 65536
    characters. Exit code 0 means that it has succeeded."""


class SubmittedPlacement(Submitted):
    """On which machines the job may run."""

    region_id: str | None = Field(None, examples=["reg-01j"])
    """The only region to choose machines from; by default all regions."""
    providers: tuple[str, ...] | None = Field(None, examples=[["runpod", "local"]])
    """Kinds, ids or names of the providers to choose from, the preferred ones first: the first one
    that has room gets the job, and a later one only if no earlier one has. By default all."""
    only_owned: bool | None = Field(None, examples=[True])
    """Whether the job runs on machines of its own account alone; by default as the project says."""
    spot: SpotPolicy | None = Field(None, examples=["never"])
    """Whether the job may run on spot machines, which are cheaper and can be taken away at any
    time. By default allowed for training and inference, and never for notebooks and endpoints,
    which people use while they run."""
    untrusted: bool = Field(False, examples=[True])
    """Whether the job's secrets and third-party keys may go to machines rented from strangers, who
    can read all that is on them. By default a job that has any takes none of these machines."""


class SubmittedSafety(Submitted):
    """What ends or limits the job, so that it costs no more than it should."""

    price_cap_microcredits_per_hour: int | None = Field(None, examples=[5_000_000])
    """The highest cost of all workers together for an hour, in microcredits: 5000000 is 5 credits.
    By default there is none."""
    auto_terminate: bool = Field(True, examples=[False])
    """Whether a machine that was rented for the job is terminated when the job ends. With false it
    is retained when the job has finished or failed by itself, and costs money until a person
    removes its node or the deadline of its lease."""
    idle_timeout_s: int = Field(1800, examples=[3600])
    """Ends a training or inference job on leased machines after this many seconds without log
    output and GPU activity, 60 to 2592000."""
    end_all_on_failure: bool = Field(True, examples=[False])
    """Whether the failure of one worker ends the others."""
    max_restarts: int = Field(3, examples=[10])
    """How often the job restarts after it has lost a machine, by a preemption or a power cut, 0 to
    100."""
    max_retries: int = Field(0, examples=[2])
    """How often the job is tried again after a command has failed by itself (exit code other than
    0), 0 to 100. Before each retry the job waits and costs nothing: 10 s at first, then twice as
    long each time, at most 5 min. Each attempt keeps its log and finds the resume state of the one
    before; the output is that of the last attempt alone."""
    max_duration_s: int | None = Field(None, examples=[86_400])
    """Ends the job when its commands have run for this many seconds, 60 to 31536000, in all
    attempts together; waiting does not count. Its output is stored as after a cancel. Notebooks and
    endpoints are stopped. By default there is no limit."""


class JobSubmission(Submitted):
    """A job to submit."""

    name: str = Field(examples=["digits"])
    """The job's name, 1 to 100 printable characters. Several jobs may have the same."""
    type: JobType = Field(examples=["training"])
    """`training`: commands that end, on one or more machines. `inference`: one command that ends.
    `notebook`, `endpoint`: one command that listens on `port` until it is stopped, and that can be
    started again with its files."""
    project_id: str | None = Field(None, examples=["prj-01j"])
    """The project that the job belongs to, whose account pays; by default the account's own."""
    resources: SubmittedResources = Field(SubmittedResources(), examples=[{"gpus": "A100:4"}])
    """What each worker needs: GPUs, CPUs, memory, disk, and the highest price."""
    environment: SubmittedEnvironment = Field(
        SubmittedEnvironment(), examples=[{"python_packages": ["scikit-learn"]}]
    )
    """What the commands find: an image or packages, variables and secrets."""
    code: SubmittedCode | None = Field(None, examples=[{"upload_id": "upl-01j"}])
    """The code, in a copy of which each command begins; by default an empty folder."""
    data: SubmittedData = Field(SubmittedData(), examples=[{"output": None}])
    """What the commands read, and where their output goes."""
    workers: tuple[SubmittedWorker, ...] = Field(examples=[[{"command": "python train.py"}]])
    """The commands, each on a machine or a part of one, all at the same time: 1 to 256 for
    training, one for other types."""
    placement: SubmittedPlacement = Field(SubmittedPlacement(), examples=[{"spot": "never"}])
    """On which machines the job may run; by default on all that the account may use."""
    safety: SubmittedSafety = Field(SubmittedSafety(), examples=[{"idle_timeout_s": 3600}])
    """What ends or limits the job, so that it costs no more than it should."""
    port: int | None = Field(None, examples=[8888])
    """The port on which a notebook or endpoint listens, 1024 to 65535; these types need it, or a
    reservation, whose port it then is. The command finds the port that it has in BASELOAD_PORT."""
    reservation_id: str | None = Field(None, examples=["rsv-01j"])
    """A reservation of the project's account (`baseload reservation ls`), for a job with one
    worker. The job runs in its region and listens on its port, and `HOSTNAME.local` leads to its
    machine on the network there. One job at a time holds it; others wait."""
    priority: int = Field(3, examples=[1])
    """From 1, placed first, to 5, placed last, among the jobs of its account."""
    labels: _Labels = Field({}, examples=[{"team": "vision", "run": "7"}])
    """Up to 16 keys with values of your own, by which `baseload ps --label team=vision` finds the
    job again. They are no secrets: all who see the job see them."""
    array: _Array = Field(None, examples=[[{"LR": "0.1"}, {"LR": "0.01"}], 10])
    """Makes several jobs of one submission, at most 1000: their number, or for each the variables
    that differ. They are named `NAME-0`, `NAME-1` and so on, and each finds its number in
    BASELOAD_ARRAY_INDEX and their count in BASELOAD_ARRAY_SIZE. By default one job is made."""

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
