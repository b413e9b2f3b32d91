#!/usr/bin/python3
"""Double of nvpmodel: `-q` prints the power mode of /etc/lab-jetson/power.json, and `-m NUMBER`
sets another. Unknown arguments fail.

The file: {"mode": 0, "modes": ["MAXN", "15W"]}.
"""

import argparse
import json
import sys
from pathlib import Path

FILE = Path("/etc/lab-jetson/power.json")
parser = argparse.ArgumentParser(prog="nvpmodel")
action = parser.add_mutually_exclusive_group(required=True)
action.add_argument("-q", "--query", action="store_true")
action.add_argument("-m", "--mode", type=int)
asked = parser.parse_args()
power = json.loads(FILE.read_text())
if asked.query:
    sys.stdout.write(f"NV Power Mode: {power['modes'][power['mode']]}\n{power['mode']}\n")
elif 0 <= asked.mode < len(power["modes"]):
    FILE.write_text(json.dumps({**power, "mode": asked.mode}))
else:
    sys.exit(f"NVPM ERROR: Invalid power mode: {asked.mode}")
