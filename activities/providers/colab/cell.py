"""The cell of a notebook: the program by which its runtime lets the platform in.

Its text is the module `bootstrap_cell.py`, which is run in notebooks alone, with the values of one
announcement.
"""

import json
from functools import lru_cache
from pathlib import Path

from activities.providers.base import Bootstrap

PROGRAM = Path(__file__).with_name("bootstrap_cell.py")


def cell_of(values: Bootstrap) -> str:
    """The text of the cell for one announcement."""
    text = _program()
    for name in ("api_url", "token", "public_key"):
        text = text.replace(f'"{{{{{name}}}}}"', json.dumps(getattr(values, name)))
    return text


@lru_cache(maxsize=1)
def _program() -> str:
    return PROGRAM.read_text()
