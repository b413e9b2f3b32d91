"""The attestation of this machine: a report that its processor signs, of AMD SEV-SNP or Intel TDX.

The kernel hands over such a report of a confidential virtual machine (configfs-tsm, Linux 6.7). In
it is what the platform has asked: a number of its own, the run, and the SSH host key by which it
reached this machine. So the report is neither an old one nor of another machine than answers.
"""

from __future__ import annotations

import base64
import contextlib
import glob
import hashlib
import os
from typing import Any

from ..errors import RefusedError

REPORTS = "/sys/kernel/config/tsm/report"
HOST_KEYS = "/etc/ssh/ssh_host_*_key.pub"
PURPOSE = b"baseload attestation 1\0"
NO_REPORTS = "is no confidential virtual machine (SEV-SNP, TDX) with configfs-tsm"
MOST_REPORT_BYTES = 64 << 10
NONCE_BYTES = 32


def why_not() -> str | None:
    """Why this machine can prove nothing about itself; None: its kernel offers reports."""
    return None if os.path.isdir(REPORTS) else NO_REPORTS


def attest(request: dict[str, Any]) -> dict[str, Any]:
    """The report of this machine for `nonce`, `run_id` and `host_key`: `kind`, `report`, and the
    `certificates` that the machine has for it, both in base64.

    Raises: RefusedError `no-attestation`, on a machine that is no confidential virtual machine, or
    has no such host key.
    """
    nonce = bytes.fromhex(str(request["nonce"]))
    host_key = str(request["host_key"])
    if len(nonce) != NONCE_BYTES:
        raise RefusedError("no-attestation", "nonce: want %d bytes" % NONCE_BYTES)
    if host_key not in host_keys():
        words = "host key %s: is none of this machine: somebody else answers for it"
        raise RefusedError("no-attestation", words % host_key)
    kind, report, certificates = _report(bound(nonce, str(request["run_id"]), host_key))
    return {
        "kind": kind,
        "report": base64.b64encode(report).decode(),
        "certificates": base64.b64encode(certificates).decode(),
    }


def bound(nonce: bytes, run_id: str, host_key: str) -> bytes:
    """The 64 bytes of the report that are ours."""
    said = PURPOSE + nonce + run_id.encode() + b"\0" + host_key.encode()
    return hashlib.sha512(said).digest()


def host_keys() -> list[str]:
    """The fingerprints of the SSH host keys of this machine, as `SHA256:…`."""
    found = []
    for path in glob.glob(HOST_KEYS):
        with contextlib.suppress(OSError, ValueError, IndexError), open(path) as file:
            key = base64.b64decode(file.read().split()[1])
            digest = base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip("=")
            found.append("SHA256:" + digest)
    return found


def _report(bound_to: bytes) -> tuple[str, bytes, bytes]:
    """Ask the kernel for a report: its kind, itself, and its certificates."""
    folder = os.path.join(REPORTS, "baseload-" + os.urandom(8).hex())
    try:
        os.mkdir(folder, 0o700)
    except OSError as error:
        words = "this machine %s: %s" % (NO_REPORTS, error.strerror)
        raise RefusedError("no-attestation", words) from error
    try:
        with open(os.path.join(folder, "inblob"), "wb", buffering=0) as file:
            file.write(bound_to)
        kind = _read(folder, "provider").decode(errors="replace").strip()
        report, certificates = _read(folder, "outblob"), b""
        with contextlib.suppress(OSError):  # Not every kind has some.
            certificates = _read(folder, "auxblob")
    except OSError as error:
        raise RefusedError("no-attestation", "the report was not made: %s" % error) from error
    finally:
        with contextlib.suppress(OSError):
            os.rmdir(folder)
    return kind, report, certificates


def _read(folder: str, name: str) -> bytes:
    with open(os.path.join(folder, name), "rb") as file:
        return file.read(MOST_REPORT_BYTES)
