"""`python -m api openapi > api/openapi.json`. The API runs as `python -m workers api`."""

import sys

from api.openapi import document


def main(arguments: list[str]) -> int:
    if arguments != ["openapi"]:
        sys.stderr.write("usage: python -m api openapi; the API runs as `python -m workers api`\n")
        return 2
    sys.stdout.write(document())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
