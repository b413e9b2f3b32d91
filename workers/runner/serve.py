"""`python -m workers.runner.serve STACK.json`: be the runner process; `up` starts it."""

import os
import sys
from pathlib import Path

from workers.process import run_process
from workers.runner.stack import Stack
from workers.runner.supervisor import supervise

# The programs end one after the other, each within its own limit.
SHUTDOWN_LIMIT_S = 90

if __name__ == "__main__":
    if os.getpgrp() != os.getpid():
        os.setsid()
    stack = Stack.model_validate_json(Path(sys.argv[1]).read_bytes())
    run_process(lambda stop: supervise(stack, stop), shutdown_limit_s=SHUTDOWN_LIMIT_S)
