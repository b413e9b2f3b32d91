"""Which activities there are: a file for each queue that serves them.

`main` and `planning` read and write rows and never touch a node; `notifications` listens to
providers, for as long as they are there; `site` touches nodes and never opens the database. To add
an activity: its stub in `workflows/effects/`, its function, its name in the file of its queue.
"""

from collections.abc import Callable
from typing import Any

Activity = Callable[..., Any]
