"""Names in the object store, with one function for each kind of object."""

from workflows.contracts.jobs import parse_run_id


def code_name(sha256: str) -> str:
    """The name of the code archive whose bytes have this SHA-256."""
    return f"code/{sha256}.tar.gz"


def upload_lock(sha256: str) -> str:
    """The name of the advisory lock that a new upload and the removal of an old one take."""
    return f"upload/{sha256}"


def run_spec_name(job_id: str, attempt: int, worker: int) -> str:
    """The name of the sealed run spec of one worker of one attempt."""
    return f"orders/{job_id}/{attempt}/{worker}"


def output_name(job_id: str, worker: int, attempt: int) -> str:
    """The name of the output folder of one worker of one attempt, as tar.gz."""
    return f"outputs/{job_id}/{worker}-{attempt}.tar.gz"


def states_of(job_id: str) -> str:
    """The folder of all state snapshots of a job, with one folder for each worker."""
    return f"states/{job_id}"


def log_name(run_id: str) -> str:
    """The name of the log of one run.

    Raises: ValueError, when `run_id` is not a run id.
    """
    job_id, worker, attempt = parse_run_id(run_id)
    return f"logs/{job_id}/{worker}-{attempt}.log"
