"""Device configurations: what devices run, as a client sends it; each change is a new revision."""

from pydantic import Field

from workflows.contracts.devices import HealthCheck, OutputBuffer
from workflows.contracts.job_submission import (
    DataSource,
    JobModelReference,
    JobSubmission,
    ModelReference,
    OutputDestination,
    Submitted,
    SubmittedData,
    SubmittedEnvironment,
    SubmittedResources,
    SubmittedWorker,
)
from workflows.contracts.statuses import JobType


class DeviceEnvironment(Submitted):
    """What the command finds beside its files."""

    image: str | None = Field(None, examples=["ghcr.io/shop/detector:3"])
    """The container image in which the command runs; without this field it runs on the device
    itself."""
    variables: dict[str, str] = Field(default_factory=dict, examples=[{"THRESHOLD": "0.6"}])
    """Variables of the command's environment. Their values are stored encrypted and never shown.
    Names do not begin with BASELOAD_."""
    secrets: dict[str, str] = Field(default_factory=dict, examples=[{"TOKEN": "camera_token"}])
    """Variables whose values are secrets of the configuration's project, each with the name of its
    secret, or with the reference `store://projects/PROJECT/NAME`."""
    credentials: tuple[str, ...] = Field((), examples=[["aws"]])
    """Third-party keys of the project that the command gets, each by its type."""
    image_credentials: str | None = Field(None, examples=["docker"])
    """The third-party key of the project with which the image is pulled, `docker` or `ngc`."""


class DeviceDocument(Submitted):
    """One revision of a configuration."""

    command: str = Field(examples=["python serve.py"])
    """What runs for ever, in the folder of the model. It starts again when the device restarts, and
    not when it exits by itself; at most 65536 characters."""
    model: ModelReference | None = Field(None, examples=[{"id": "mod-01j"}])
    """The model, of the configuration's project; BASELOAD_MODEL is its folder."""
    checkpoints: tuple[str, ...] = Field((), examples=[["chk-01j"]])
    """Checkpoints of the project by their ids, at most 64; each is a folder of its name in
    BASELOAD_CHECKPOINTS."""
    output: DataSource | None = Field(
        None, examples=[{"type": "regional", "datastore_id": "dst-01j", "path": "detections"}]
    )
    """The folder of a datastore of the region that BASELOAD_OUTPUT stands for; without this field
    what the command writes there stays on the device."""
    output_buffer: OutputBuffer = OutputBuffer()
    """What the device keeps of its output while the datastore does not take it: that follows later,
    and what is dropped is counted."""
    environment: DeviceEnvironment = DeviceEnvironment()
    health: HealthCheck = HealthCheck()
    """What must be so before a revision counts as running; else the one before runs again."""
    disk_size_gb: int = Field(10, ge=1, le=2000, examples=[20])
    """How much disk of the device the files of the command may take, in GB (10^9 bytes)."""

    def submission(self, name: str) -> JobSubmission:
        """The same as a job's submission, so that the rules of jobs hold for it."""
        environment = SubmittedEnvironment(**self.environment.model_dump())
        output = None
        if self.output is not None:
            output = OutputDestination(**self.output.model_dump(exclude_none=True))
        named = self.model
        model = None if named is None else JobModelReference.model_validate(named.model_dump())
        return JobSubmission(
            name=name,
            type=JobType.INFERENCE,
            resources=SubmittedResources(cpu_count=1),
            environment=environment,
            data=SubmittedData(model=model, checkpoints=self.checkpoints, output=output),
            workers=(SubmittedWorker(command=self.command),),
        )
