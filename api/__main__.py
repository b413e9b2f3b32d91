"""The documents of the API, for git; the API runs as `python -m workers api`.

`python -m api openapi > api/openapi.json`, `python -m api job-schema > docs/job.schema.json`.
"""

import sys
from collections.abc import Callable

from api.job_file_schema import job_file_schema
from api.openapi import document

DOCUMENTS: dict[str, Callable[[], str]] = {"openapi": document, "job-schema": job_file_schema}


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or arguments[0] not in DOCUMENTS:
        known = "|".join(DOCUMENTS)
        sys.stderr.write(f"usage: python -m api {known}; the API runs as `python -m workers api`\n")
        return 2
    sys.stdout.write(DOCUMENTS[arguments[0]]())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
