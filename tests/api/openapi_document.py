"""The OpenAPI document as it lies in git.

`test_openapi.py` holds it equal to the application's own, which takes a second to be made.
"""

import json
from pathlib import Path
from typing import Any

CHECKED_IN = Path(__file__).parents[2] / "api" / "openapi.json"
DOCUMENT: dict[str, Any] = json.loads(CHECKED_IN.read_text())
