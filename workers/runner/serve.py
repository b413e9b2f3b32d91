"""`python -m workers.runner.serve STACK.json`: the runner process, which `up` starts."""

import os
import sys
from pathlib import Path
from typing import NoReturn

from workers.process import run_process
from workers.runner.stack import Stack
from workers.runner.supervisor import supervise

# The programs end one after the other, each within its own limit.
SHUTDOWN_LIMIT_S = 90


def serve(path: Path) -> NoReturn:
    """Keep the stack in this file running until SIGTERM or SIGINT."""
    if os.getpgrp() != os.getpid():
        os.setsid()
    stack = Stack.model_validate_json(path.read_bytes())
    run_process(lambda stop: supervise(stack, stop), shutdown_limit_s=SHUTDOWN_LIMIT_S)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
