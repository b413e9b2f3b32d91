"""The one pip of this machine that all runs share, read-only and apart from other packages.

It is the machine's own where it has one, else the one that Python brings for virtual environments.
"""

from __future__ import annotations

import glob
import os
import subprocess
import zipfile

from ..host import file_tree
from ..loading import load

FIND = """
import os
try:
    import pip
    print(os.path.dirname(os.path.dirname(pip.__file__)))
except ImportError:
    try:
        import ensurepip
        print(os.path.join(os.path.dirname(ensurepip.__file__), "_bundled"))
    except ImportError:
        print("")
"""
WHEELS = "/usr/share/python-wheels"


def make(python: str, path: str, none: str) -> None:
    """Make the folder, or one with the file `none` where this machine has no pip."""
    part = path + ".part"
    file_tree.remove(part)
    os.mkdir(part)
    source = _find(python)
    wheels = sorted(glob.glob(os.path.join(source or WHEELS, "pip-*.whl")))
    wheels = wheels or sorted(glob.glob(os.path.join(WHEELS, "pip-*.whl")))
    if source and os.path.isdir(os.path.join(source, "pip")):
        names = ["pip", *(name for name in os.listdir(source) if _is_of_pip(name))]
        for name in names:
            os.symlink(os.path.join(source, name), os.path.join(part, name))
    elif wheels:
        with zipfile.ZipFile(wheels[-1]) as wheel:
            wheel.extractall(part)
        subprocess.run(
            [python, "-I", "-m", "compileall", "-q", part],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    else:
        with open(os.path.join(part, none), "x"):
            pass
    os.chmod(part, 0o755)
    load("host.steps:sync")(part)
    file_tree.remove(path)
    os.rename(part, path)


def _is_of_pip(name: str) -> bool:
    return name.startswith("pip-") and name.endswith((".dist-info", ".egg-info"))


def _find(python: str) -> str:
    return (
        subprocess.run(
            [python, "-I", "-c", FIND], check=False, stdin=subprocess.DEVNULL, capture_output=True
        )
        .stdout.decode(errors="replace")
        .strip()
    )
