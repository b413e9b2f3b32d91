#!/usr/bin/python3
"""Double of nvidia-smi: answers --query-gpu and -L from /etc/lab-gpus.json, in NVIDIA's own format.

The file: {"gpus": [{"index", "name", "uuid", "memory.total", …}]}, or
{"exit": 9, "text": "NVIDIA-SMI has failed …"} for a broken driver. No file: no driver either.
"""

import json
import sys
from pathlib import Path
from typing import Any

OPTIONS = ("--query-gpu", "--format")
NO_DRIVER = {
    "exit": 9,
    "text": "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.",
}


def answer(arguments: list[str], world: dict[str, Any]) -> tuple[int, list[str]]:
    """The exit status and the lines."""
    if "exit" in world:
        return int(world["exit"]), [world["text"]]
    gpus = world["gpus"]
    if arguments == ["-L"]:
        return 0, [f"GPU {gpu['index']}: {gpu['name']} (UUID: {gpu['uuid']})" for gpu in gpus]
    options = dict(argument.split("=", 1) for argument in arguments if "=" in argument)
    unknown = [each for each in arguments if each.split("=")[0] not in OPTIONS]
    if unknown:
        return 2, [f'Invalid option: "{unknown[0]}". Please run "nvidia-smi -h" for help.']
    styles = options.get("--format", "").split(",")
    if "--query-gpu" not in options or "csv" not in styles:
        return 2, ['Invalid combination of input arguments. Please run "nvidia-smi -h" for help.']
    fields = options["--query-gpu"].split(",")
    for field in fields:
        if gpus and field not in gpus[0]:
            return 2, [f'Field "{field}" is not a valid field to query.']
    header = [] if "noheader" in styles else [", ".join(fields)]
    return 0, header + [", ".join(str(gpu[field]) for field in fields) for gpu in gpus]


file = Path("/etc/lab-gpus.json")
status, lines = answer(sys.argv[1:], json.loads(file.read_text()) if file.exists() else NO_DRIVER)
sys.stdout.write("".join(f"{line}\n" for line in lines))
sys.exit(status)
