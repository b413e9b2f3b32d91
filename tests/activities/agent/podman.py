"""The images and settings of the podman that the tests of the agent use."""

import io
import os
import re
import shutil
import subprocess
import tarfile

PROGRAMS = ("sh", "bash", "cat", "id", "sleep", "timeout", "touch", "setsid")
IMAGE = "localhost/baseload-test:1"
WITH_VOLUME = "localhost/baseload-test:volume"
# What podman needs on a kernel that gives a container no further rights than ours. All stores of a
# user share their files of what runs and their locks, unless told otherwise; then the reset of one
# store makes the commands of the others fail.
CONTAINERS_CONF = """
[containers]
default_ulimits = ["nofile=20000:20000","nproc=32768:32768"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
tmp_dir = "{folder}/tmp"
lock_type = "file"
"""
STORAGE_CONF = """
[storage]
driver = "overlay"
graphroot = "{folder}/graph"
runroot = "{folder}/run"
"""


def root_file_system() -> bytes:
    """A few programs of this machine and the libraries that they need."""
    paths = [str(shutil.which(name)) for name in PROGRAMS]
    ldd = subprocess.run(["ldd", *paths], check=True, capture_output=True).stdout.decode()
    libraries = set(re.findall(r"/\S+\.so\S*", ldd))
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name in ("bin", "tmp", "proc", "sys", "dev", "etc", "data"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(folder)
        for name, path in zip(PROGRAMS, paths, strict=True):
            tar.add(os.path.realpath(path), f"bin/{name}")
        for library in libraries:
            tar.add(os.path.realpath(library), library.lstrip("/"))
    return packed.getvalue()
