"""The links to the pages of jobs, and the cookies that they become: sealed, short, of one job each.

Neither is an API key: it says for which key and job it holds, and that key is read again.
"""

import base64
import hashlib
import json
import time
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime

from sqlalchemy.exc import IntegrityError

from activities.db.session import database
from activities.db.tables import UsedLink
from activities.secrets.sealing import SealBrokenError, secret_box

LINK_S = 120
COOKIE_S = 12 * 3600


@dataclass(frozen=True, slots=True)
class Pass:
    """What lets a browser see the pages of one job: for whom, and until when."""

    key_id: str
    account_id: str
    job_id: str
    worker: int
    expires_s: int


def seal(found: Pass, kind: str) -> str:
    """The pass as text; `kind` is `link` or `cookie`, and one is never taken for the other."""
    sealed = secret_box("job-pages").seal(json.dumps(asdict(found)).encode(), kind.encode())
    return base64.urlsafe_b64encode(sealed).decode().rstrip("=")


def opened(text: str, kind: str, job_id: str) -> Pass | None:
    """The pass of a text, if we have sealed it for this job and it holds still."""
    try:
        found = Pass(**json.loads(secret_box("job-pages").open(_sealed(text), kind.encode())))
    except (SealBrokenError, ValueError, TypeError):
        return None
    return found if found.job_id == job_id and found.expires_s > time.time() else None


def new_link(key_id: str, account_id: str, job_id: str, worker: int) -> tuple[str, int]:
    """The text of a new link, and when it expires, in seconds since 1970."""
    until = int(time.time()) + LINK_S
    return seal(Pass(key_id, account_id, job_id, worker, until), "link"), until


def cookie_of(link: Pass, key_expires_s: float | None) -> tuple[str, int]:
    """The text of the cookie for a link, and its seconds, which do not outlast the key."""
    until = int(min(time.time() + COOKIE_S, key_expires_s or float("inf")))
    return seal(replace(link, expires_s=until), "cookie"), max(0, int(until - time.time()))


def use(text: str, link: Pass) -> bool:
    """Whether this is the first use of a link that was opened, in any process of the API.

    Of several uses at the same moment one is the first. Housekeeping forgets links that have
    expired.
    """
    used = UsedLink(
        link_sha256=hashlib.sha256(_sealed(text)).hexdigest(),
        expires_at=datetime.fromtimestamp(link.expires_s, UTC),
    )
    try:
        with database().write() as session:
            session.add(used)
    except IntegrityError:
        return False
    return True


def _sealed(text: str) -> bytes:
    """The bytes of a sealed pass, which several texts may stand for.

    Raises: ValueError, when the text is none of them.
    """
    return base64.urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4))
