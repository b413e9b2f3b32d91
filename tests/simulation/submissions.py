"""Job files of the jobs of a plan."""

from tests.simulation.plan import JobPlan
from workflows.contracts.job_submission import JobSubmission

GPU = "A100"
PORT = 8888
IMAGE = "docker.io/library/python@sha256:" + "0" * 64


def submission_of(plan: JobPlan, index: int, *, has_data: bool = True) -> JobSubmission:
    """The submission of a job of a plan, with a name of its own.

    has_data: whether two of three notebooks and endpoints have a volume of their account, which
    has three, and one of three of the others has its output sent to a bucket.
    """
    gpus = {"gpus": f"{GPU}:{plan.gpu_count}"} if plan.gpu_count else {"cpu_count": 1}
    service = {"port": PORT} if plan.type.is_service else {}
    return JobSubmission.model_validate(
        {
            "name": f"job-{index}",
            "type": plan.type,
            "resources": gpus,
            "workers": [{"command": "work"}] * plan.worker_count,
            "placement": _placement(plan),
            "safety": {
                "max_restarts": plan.max_restarts,
                "max_retries": plan.max_retries,
                "max_duration_s": plan.max_duration_s,
                "end_all_on_failure": plan.end_all_on_failure,
            },
            **service,
            **({"environment": {"image": IMAGE}} if plan.in_container else {}),
            "data": _data(plan, index) if has_data else {},
        }
    )


def _data(plan: JobPlan, index: int) -> dict[str, object]:
    if index % 3 or plan.type.is_service:
        return {"volumes": _volumes(plan, index)}
    return {"output": {"type": "aws", "bucket": "results", "prefix": "{job_id}"}}


def _volumes(plan: JobPlan, index: int) -> list[dict[str, str]]:
    access = ("write", "read", "")[index % 3]
    if not (plan.type.is_service and access):
        return []
    number = 3 * (plan.account % 2) + index // 3 % 3
    return [{"id": f"vol-{number:026}", "access": access}]


def _placement(plan: JobPlan) -> dict[str, object]:
    given: dict[str, object] = {}
    if plan.only_cloud:
        given["providers"] = ["gcp"]
    if not plan.spot:
        given["spot"] = "never"
    return given
