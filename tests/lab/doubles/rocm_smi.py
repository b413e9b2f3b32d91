#!/usr/bin/python3
"""Double of rocm-smi: prints the boards of /etc/lab-amd/boards.json, as ROCm 6 prints them in JSON.

The file: {"card0": {"Unique ID": …, "Card Series": …, "PCI Bus": …, …}, …}. Unknown arguments fail.
"""

import argparse
import json
import sys
from pathlib import Path

MEMORY = ("VRAM Total Memory (B)", "VRAM Total Used Memory (B)")
PRODUCT = ("Card Series", "Card Model", "Card Vendor", "Card SKU")

parser = argparse.ArgumentParser(prog="rocm-smi")
parser.add_argument("--showproductname", action="store_true")
parser.add_argument("--showuniqueid", action="store_true")
parser.add_argument("--showbus", action="store_true")
parser.add_argument("--showmeminfo", nargs="+", choices=["vram"], default=[])
parser.add_argument("--json", action="store_true")
asked = parser.parse_args()
fields = [
    *(("Unique ID",) if asked.showuniqueid else ()),
    *(MEMORY if asked.showmeminfo else ()),
    *(("PCI Bus",) if asked.showbus else ()),
    *(PRODUCT if asked.showproductname else ()),
]
if not asked.json or not fields:
    sys.exit("rocm-smi: this double prints chosen fields as JSON alone")
boards = json.loads(Path("/etc/lab-amd/boards.json").read_text())
found = {name: {field: board[field] for field in fields} for name, board in boards.items()}
# Where a GPU is at rest, the tool says so before the document.
warning = "WARNING: AMD GPU device(s) is/are in a low-power state."
sys.stdout.write(f"\n{warning}\n\n{json.dumps(found)}\n")
