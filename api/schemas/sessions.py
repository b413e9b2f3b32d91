"""The schemas of sessions: the link to the pages of a job."""

from datetime import datetime

from api.schemas.base import ResponseBody


class JobLink(ResponseBody):
    """The link by which its holder's browser sees what a job serves at its port."""

    job_id: str
    url: str
    """Good once, and until `expires_at`; the browser stays allowed for some hours."""
    ready: bool
    """Whether the job answers at its port."""
    expires_at: datetime
