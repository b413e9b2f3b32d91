"""How Google refuses: one exception, and the body that each of its APIs makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ALREADY_EXISTS",
    412: "FAILED_PRECONDITION",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
}
ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"


class RefusedError(Exception):
    """A request that is answered by an error.

    code: the HTTP status; reason: the word of `errors[].reason`; details: of `error.details`.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        domain: str = "global",
        details: Sequence[dict[str, Any]] = (),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.domain = domain
        self.details = tuple(details)

    def body(self, document: str) -> dict[str, Any]:
        """The JSON of the answer: Compute Engine names reasons, the others a status."""
        error: dict[str, Any] = {"code": self.code, "message": self.message}
        if document == "compute.v1":
            error["errors"] = [
                {"message": self.message, "domain": self.domain, "reason": self.reason}
            ]
            if self.code in (401, 403):
                error["status"] = STATUS[self.code]
        else:
            error["status"] = STATUS.get(self.code, "UNKNOWN")
        if self.details:
            error["details"] = list(self.details)
        return {"error": error}

    @classmethod
    def invalid(cls, message: str) -> Self:
        return cls(400, "invalid", message)

    @classmethod
    def invalid_field(cls, field: str, value: object, why: str) -> Self:
        """Compute Engine's words for a field that it does not take."""
        return cls(400, "invalid", f"Invalid value for field '{field}': '{value}'. {why}")

    @classmethod
    def not_found(cls, resource: str) -> Self:
        return cls(404, "notFound", f"The resource '{resource}' was not found")

    @classmethod
    def exists(cls, resource: str) -> Self:
        return cls(409, "alreadyExists", f"The resource '{resource}' already exists")

    @classmethod
    def in_use(cls, resource: str, by: str) -> Self:
        message = f"The {resource} resource is already being used by '{by}'"
        return cls(400, "resourceInUseByAnotherResource", message)

    @classmethod
    def not_ready(cls, resource: str) -> Self:
        return cls(400, "resourceNotReady", f"The resource '{resource}' is not ready")

    @classmethod
    def forbidden(cls, permission: str, resource: str) -> Self:
        return cls(403, "forbidden", f"Required '{permission}' permission for '{resource}'")

    @classmethod
    def api_disabled(cls, service: str, title: str, project: str, number: str) -> Self:
        message = (
            f"{title} has not been used in project {number} before or it is disabled. Enable it by "
            f"visiting https://console.developers.google.com/apis/api/{service}/overview"
            f"?project={project} then retry. If you enabled this API recently, wait a few minutes "
            "for the action to propagate to our systems and retry."
        )
        info = {
            "@type": ERROR_INFO,
            "reason": "SERVICE_DISABLED",
            "domain": "googleapis.com",
            "metadata": {"service": service, "consumer": f"projects/{number}"},
        }
        return cls(403, "accessNotConfigured", message, domain="usageLimits", details=[info])

    @classmethod
    def billing_disabled(cls, project: str, number: str) -> Self:
        message = (
            f"This API method requires billing to be enabled. Please enable billing on project "
            f"#{number} by visiting https://console.developers.google.com/billing/enable"
            f"?project={project} then retry."
        )
        info = {
            "@type": ERROR_INFO,
            "reason": "BILLING_DISABLED",
            "domain": "googleapis.com",
            "metadata": {"consumer": f"projects/{number}"},
        }
        return cls(403, "billingDisabled", message, domain="usageLimits", details=[info])

    @classmethod
    def unauthenticated(cls, why: str = "ACCESS_TOKEN_TYPE_UNSUPPORTED") -> Self:
        message = (
            "Request had invalid authentication credentials. Expected OAuth 2 access token, login "
            "cookie or other valid authentication credential."
        )
        info = {"@type": ERROR_INFO, "reason": why, "domain": "googleapis.com"}
        return cls(401, "authError", message, details=[info])
