"""The names of jobs for the completion of a shell, which waits: without any large import."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from baseload.calls import problem_of
from baseload.configuration import Configuration, load_configuration
from baseload.errors import BaseloadError

ANSWER_LIMIT_S = 1.0
MOST_JOBS = 100
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Names that no shell reads as anything else; a job with another name is completed by its id."""


def job_names(ctx: Any, incomplete: str) -> list[str]:
    """The names of the newest jobs that begin so; none, when the API does not answer at once."""
    asked = ctx.params
    try:
        configuration = load_configuration(asked.get("api"), profile=asked.get("profile"))
        answer = _fetched(configuration, f"/v1/jobs?limit={MOST_JOBS}")
    except BaseloadError:
        return []
    found = [_word(job) for job in problem_of(answer).get("items", ())]
    return [word for word in dict.fromkeys(found) if word.startswith(incomplete)]


def _word(job: dict[str, Any]) -> str:
    name = str(job.get("name", ""))
    return name if _PLAIN.fullmatch(name) else str(job.get("id", ""))


def _fetched(configuration: Configuration, path: str) -> str:
    """The text of an answer; empty, when there is none in time.

    Raises: ConfigurationError, when the key would be sent unencrypted.
    """
    from http.client import HTTPConnection, HTTPException, HTTPSConnection

    address = urlsplit(configuration.url)
    kind = HTTPSConnection if address.scheme == "https" else HTTPConnection
    connection = kind(address.netloc.rpartition("@")[2], timeout=ANSWER_LIMIT_S)
    try:
        connection.request("GET", f"{address.path}{path}", headers=configuration.headers)
        return connection.getresponse().read().decode()
    except (OSError, ValueError, HTTPException):
        return ""
    finally:
        connection.close()
