"""Names in the object store, with one function for each kind of object.

A name is made of ids that are checked here, because some of them come from machines of others.
"""

import re

from workflows.contracts.jobs import checked_job_id, parse_run_id

STATES = "states"
"""The folder of the state snapshots of all jobs."""
_SHA256 = re.compile(r"[0-9a-f]{64}")
_FINGERPRINT = re.compile(r"[0-9a-f]{1,64}")
_DEVICE_ID = re.compile(r"dev-[0-9a-z]{1,60}")
_DATASTORE_ID = re.compile(r"dst-[0-9a-z]{1,60}")
_FEDERATED_ID = re.compile(r"fed-[0-9a-z]{1,60}")
_ARTIFACT_ID = re.compile(r"((?:dat|mod|chk|vol)-[0-9a-z]{26})(?:\.([0-9a-z][0-9a-z-]{0,99}))?")
"""An artifact, or one of the contents that jobs have written into a volume."""


def code_name(sha256: str) -> str:
    """The name of the code archive whose bytes have this SHA-256."""
    return f"code/{_checked_hash(sha256)}.tar.gz"


def upload_lock(sha256: str) -> str:
    """The name of the advisory lock that a new upload and the removal of an old one take."""
    return f"upload/{_checked_hash(sha256)}"


def run_spec_name(job_id: str, attempt: int, worker: int) -> str:
    """The name of the sealed run spec of one worker of one attempt."""
    return f"{run_specs_of(job_id, attempt)}/{worker}"


def run_specs_of(job_id: str, attempt: int | None = None) -> str:
    """The folder of the run specs of one attempt of a job; None: of all its attempts."""
    folder = f"orders/{checked_job_id(job_id)}"
    return folder if attempt is None else f"{folder}/{attempt}"


def output_name(job_id: str, worker: int, attempt: int) -> str:
    """The name of the output folder of one worker of one attempt, as tar.gz."""
    return f"{outputs_of(job_id)}/{worker}-{attempt}.tar.gz"


def outputs_of(job_id: str) -> str:
    """The folder of the outputs of all workers of a job."""
    return f"outputs/{checked_job_id(job_id)}"


def states_of(job_id: str) -> str:
    """The folder of all state snapshots of a job, with one folder for each worker."""
    return f"{STATES}/{checked_job_id(job_id)}"


def checked_fingerprint(mark: str) -> str:
    """The fingerprint of a resume state, which a node has made and which becomes part of a name.

    Raises: ValueError, when `mark` is not a fingerprint.
    """
    if _FINGERPRINT.fullmatch(mark) is None:
        raise ValueError(f"{mark[:80]!r}: is no fingerprint of a state")
    return mark


def log_name(run_id: str) -> str:
    """The name of the log of one run.

    Raises: ValueError, when `run_id` is not a run id.
    """
    job_id, worker, attempt = parse_run_id(run_id)
    return f"{logs_of(job_id)}/{worker}-{attempt}.log"


def log_times_name(run_id: str) -> str:
    """The name of the marks of one run's log: of the file, or of the folder of an object each.

    Raises: ValueError, when `run_id` is not a run id.
    """
    return f"{log_name(run_id)}.times"


def logs_of(job_id: str) -> str:
    """The folder of the logs of all runs of a job."""
    return f"logs/{checked_job_id(job_id)}"


def artifact_of(artifact_id: str) -> str:
    """The folder of all that is stored of a dataset, model, checkpoint or volume.

    artifact_id: also a `volume_place`, whose folder lies in that of its volume.
    Raises: ValueError, when `artifact_id` is no such id.
    """
    found = _ARTIFACT_ID.fullmatch(artifact_id)
    if found is None:
        raise ValueError(f"{artifact_id[:80]!r}: is no id of an artifact")
    artifact, place = found.groups()
    return f"artifacts/{artifact}" if place is None else f"artifacts/{artifact}/contents/{place}"


def volume_place(volume_id: str, place: str) -> str:
    """What stands for the id of a volume where one content is meant that a job has written."""
    return f"{volume_id}.{place}"


def volume_contents_of(volume_id: str) -> str:
    """The folder of the contents that jobs have written into a volume."""
    return f"{artifact_of(volume_id)}/contents"


def packed_volume_name(stored_at: str) -> str:
    """The name of a content of a volume as its node has packed it, until it is in parts."""
    return f"{artifact_of(stored_at)}/packed.tar.gz"


def artifact_part_name(artifact_id: str, sha256: str) -> str:
    """The name of the part of an artifact's content whose bytes have this SHA-256."""
    return f"{artifact_parts_of(artifact_id)}/{_checked_hash(sha256)}"


def artifact_parts_of(artifact_id: str) -> str:
    """The folder of the parts of an artifact's content."""
    return f"{artifact_of(artifact_id)}/parts"


def artifact_manifest_name(artifact_id: str) -> str:
    """The name of the manifest of an artifact's complete content."""
    return f"{artifact_of(artifact_id)}/manifest.json"


def artifact_attempt_name(artifact_id: str) -> str:
    return f"{artifact_of(artifact_id)}/attempt"


def artifact_progress_name(artifact_id: str) -> str:
    """The name of the parts that an artifact's content has so far."""
    return f"{artifact_of(artifact_id)}/progress.json"


def datastore_access_name(datastore_id: str) -> str:
    """The name of the sealed access of a datastore.

    Raises: ValueError, when `datastore_id` is no such id.
    """
    if _DATASTORE_ID.fullmatch(datastore_id) is None:
        raise ValueError(f"{datastore_id[:80]!r}: is no id of a datastore")
    return f"datastores/{datastore_id}"


def device_spec_name(device_id: str, number: int) -> str:
    """The name of the sealed spec of one assignment of a device."""
    return f"{device_specs_of(device_id)}/{number}"


def device_specs_of(device_id: str) -> str:
    """The folder of the sealed specs of a device.

    Raises: ValueError, when `device_id` is no such id.
    """
    if _DEVICE_ID.fullmatch(device_id) is None:
        raise ValueError(f"{device_id[:80]!r}: is no id of a device")
    return f"device-specs/{device_id}"


def place_of(name: str) -> str:
    """The name of an object, once it is seen to lie inside the store.

    Raises: ValueError, when a part of it is no plain file name.
    """
    parts = name.split("/")
    if any(part in ("", ".", "..") or "\\" in part or "\0" in part for part in parts):
        raise ValueError(f"object name {name!r}: each part must be a plain file name")
    return name


def _checked_hash(sha256: str) -> str:
    if _SHA256.fullmatch(sha256) is None:
        raise ValueError(f"{sha256[:80]!r}: is no SHA-256 in hexadecimal digits")
    return sha256


def federated_folder(federated_id: str) -> str:
    """The folder of all that is stored for one federated job.

    Raises: ValueError, when the id is not one of a federated job.
    """
    if _FEDERATED_ID.fullmatch(federated_id) is None:
        raise ValueError(f"{federated_id[:80]!r}: is no id of a federated job")
    return f"federated/{federated_id}"


def sealed_model_name(federated_id: str) -> str:
    """The name of the model that is sealed for one federated job."""
    return f"{federated_folder(federated_id)}/model"
