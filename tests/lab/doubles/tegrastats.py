#!/usr/bin/python3
"""Double of tegrastats: prints the line of /etc/lab-jetson/tegrastats for ever. Unknown arguments
fail.
"""

import argparse
import sys
import time
from pathlib import Path

parser = argparse.ArgumentParser(prog="tegrastats")
parser.add_argument("--interval", type=int, default=1000, help="milliseconds")
asked = parser.parse_args()
line = Path("/etc/lab-jetson/tegrastats").read_text().strip()
while True:
    time.sleep(asked.interval / 1000)
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
