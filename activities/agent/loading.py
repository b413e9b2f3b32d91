"""How the agent imports what only some calls need: importing takes most of a call's time."""

from __future__ import annotations

import importlib
from typing import Any


def load(path: str) -> Any:
    """The `function` of the agent's `module`, named as `folder.module:function`."""
    module, name = path.split(":")
    return getattr(importlib.import_module("." + module, __package__), name)
