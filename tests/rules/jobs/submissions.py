"""Job documents for tests of the rules."""

from copy import deepcopy
from typing import Any

_SOUND: dict[str, Any] = {
    "name": "digits",
    "type": "training",
    "resources": {"gpus": "cpu", "cpu_count": 2},
    "workers": [{"command": "python train.py"}],
}


def document(**changes: Any) -> dict[str, Any]:
    """A sound job with these top-level fields instead; None leaves a field out."""
    made = deepcopy(_SOUND) | changes
    return {name: value for name, value in made.items() if value is not None}
