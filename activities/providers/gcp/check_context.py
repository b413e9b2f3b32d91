"""The context that all checks of one project share: findings so far, and how a check is worded."""

from dataclasses import dataclass, field
from datetime import datetime

from activities.providers.gcp.requirements import CONSOLE
from activities.providers.gcp.session import GoogleSession
from workflows.contracts.providers import Check


@dataclass
class CheckContext:
    """The findings of earlier checks, which later checks read, and the checks made so far."""

    session: GoogleSession
    number: str = ""
    created_at: datetime | None = None
    enabled: frozenset[str] | None = None
    """The APIs that are enabled; None while this is unknown."""
    checks: list[Check] = field(default_factory=list)

    @property
    def project_id(self) -> str:
        return self.session.project_id

    @property
    def project_path(self) -> str:
        return f"/v1/projects/{self.project_id}"

    def passed(self, name: str, detail: str) -> Check:
        return Check(name=name, status="passed", detail=detail)

    def failed(self, name: str, detail: str, fix: str) -> Check:
        return Check(name=name, status="failed", detail=detail, fix=fix)

    def warning(self, name: str, detail: str, fix: str) -> Check:
        return Check(name=name, status="warning", detail=detail, fix=fix)

    def grant(self, role: str, member: str | None = None) -> str:
        """The command that grants a role; to the key's service account without a `member`."""
        who = member or f"serviceAccount:{self.session.key.email}"
        return (
            f"gcloud projects add-iam-policy-binding {self.project_id} "
            f"--member={who} --role={role} --condition=None"
        )

    def switch_on(self, api: str) -> str:
        """The page of the console on which a person enables the API."""
        return f"{CONSOLE}/apis/library/{api}.googleapis.com?project={self.project_id}"
