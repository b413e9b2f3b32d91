"""The object store as the activities of rows use it: the world has what is stored."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from temporalio import activity

from activities.storage.datastore_access import DatastoreAccess
from activities.storage.names import STATES, datastore_access_name, run_spec_name
from activities.storage.run_specs import RunSpec
from tests.simulation.contracts import Outside
from workflows.contracts.federation import SealedModel


@dataclass(frozen=True)
class Release:
    """The key of a model, as an activity has put it into the run spec of one worker."""

    job_id: str
    attempt: int
    worker: int
    federated_id: str
    """Empty: the run spec says that it is of no federated job."""
    key: str
    activity_id: str
    """The same for all attempts of an activity."""


@dataclass(frozen=True)
class Store:
    """In place of `BlobStore`, and of the functions that write one object by its name."""

    outside: Outside
    _ports: dict[tuple[str, int], dict[int, int]] = field(default_factory=dict)
    """Of the workers whose run specs were sealed, by job and attempt."""
    sealed_models: set[str] = field(default_factory=set)
    """The names of the sealed models that are stored."""
    releases: list[Release] = field(default_factory=list)
    """All keys of models that were put into run specs."""

    def opened(self, _: str) -> "Store":
        return self

    def seal_run_spec(
        self, job_id: str, attempt: int, worker: int, _region_id: str, spec: RunSpec
    ) -> str:
        """The world keeps all run specs of an attempt as one; the last call brings the whole."""
        ports = self._ports.setdefault((job_id, attempt), {})
        if spec.port is not None:
            ports[worker] = spec.port
        self.outside.keep_run_specs(job_id, attempt, dict(ports))
        if spec.model_key is not None:
            info, federation = activity.info(), spec.federation
            federated_id = "" if federation is None else federation.federated_id
            asked = f"{info.workflow_run_id}/{info.activity_id}"
            self.releases.append(
                Release(job_id, attempt, worker, federated_id, spec.model_key, asked)
            )
        return run_spec_name(job_id, attempt, worker)

    def seal_model(self, _federated_id: str, model: SealedModel, _key: str) -> SealedModel:
        """Nobody opens it either: what counts is that it is stored."""
        self.sealed_models.add(model.reference)
        return model.model_copy(update={"sealed_bytes": model.content.size_bytes})

    @staticmethod
    def seal_access(_region_id: str, access: DatastoreAccess) -> str:
        """Nobody opens it: the world knows its shares."""
        return datastore_access_name(access.id)

    @staticmethod
    def forget_access(datastore_id: str) -> None:
        """Nothing is kept of it."""
        datastore_access_name(datastore_id)

    def delete_folder(self, folder: str) -> None:
        """Remove what is stored below a name of `activities/storage/names.py`."""
        kind, job_id, *rest = folder.split("/")
        if kind == "orders":
            self.outside.discard(job_id, "run_specs", int(rest[0]) if rest else None)
        elif kind == STATES:
            self.outside.discard(job_id, "snapshots")
        elif kind == "outputs":
            self.outside.discard(job_id, "outputs")
        elif kind == "artifacts":
            self.outside.discard_content(job_id)
        elif kind == "federated":
            self.sealed_models.difference_update(
                [name for name in self.sealed_models if name.startswith(f"{folder}/")]
            )
        else:
            raise ValueError(f"{folder}: is no folder of the object store")

    def delete(self, name: str) -> None:
        """Uploads, which no life has."""
        raise ValueError(f"{name}: is no object of a life")

    def jobs_with_copies(self, _: "Store") -> Sequence[str]:
        return sorted(self.outside.jobs_with_snapshots())


@dataclass(frozen=True)
class WorldLogs:
    """In place of `LogStore`; logs are removed together with all else of their job."""

    outside: Outside

    def opened(self, _: str) -> "WorldLogs":
        return self

    def delete(self, job_id: str) -> None:
        self.outside.discard(job_id, "everything")
