"""Where things lie in the object store: one function per kind of thing."""

from workflows.contracts.jobs import parse_run_id


def code_name(sha256: str) -> str:
    """The archive of code whose bytes have this SHA-256."""
    return f"code/{sha256}.tar.gz"


def run_spec_name(job_id: str, attempt: int, worker: int) -> str:
    """The sealed work order of one worker of one attempt."""
    return f"orders/{job_id}/{attempt}/{worker}"


def output_name(job_id: str, worker: int, attempt: int) -> str:
    """The output folder of one worker of one attempt, as tar.gz."""
    return f"outputs/{job_id}/{worker}-{attempt}.tar.gz"


def states_of(job_id: str) -> str:
    """The folder of all copies of a job's resume state, a folder in it for each worker."""
    return f"states/{job_id}"


def log_name(run_id: str) -> str:
    """The log of one run of one worker's command.

    Raises: ValueError, when `run_id` is not the name of a run.
    """
    job_id, worker, attempt = parse_run_id(run_id)
    return f"logs/{job_id}/{worker}-{attempt}.log"
