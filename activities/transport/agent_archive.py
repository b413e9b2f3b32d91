"""The agent packed as one file, with the same bytes for the same sources, named by its hash."""

import hashlib
import io
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

AGENT = Path(__file__).parent.parent / "agent"
INSIDE = "baseload_agent"
MAIN = f"""import os, sys
compiled = "%s.%s" % (os.path.abspath(sys.argv[0]), sys.implementation.cache_tag)
if os.path.isdir(compiled):
    sys.path.insert(0, compiled)
from {INSIDE}.__main__ import main
sys.exit(main())
"""
"""The start of the agent; prefers the compiled modules of `activities/agent/compiled.py`."""
EARLIEST = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class AgentArchive:
    """The agent as a zip archive, which `python3 FILE VERB` runs."""

    sha256: str
    name: str
    """`agent-<first 12 digits of the hash>.pyz`"""
    content: bytes


@cache
def agent_archive() -> AgentArchive:
    """Pack the agent, without compression, so that the hash does not depend on zlib's version."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        _add(archive, "__main__.py", MAIN.encode())
        for source in sorted(AGENT.rglob("*.py")):
            _add(archive, f"{INSIDE}/{source.relative_to(AGENT)}", source.read_bytes())
    content = packed.getvalue()
    sha256 = hashlib.sha256(content).hexdigest()
    return AgentArchive(sha256, f"agent-{sha256[:12]}.pyz", content)


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, EARLIEST)
    entry.external_attr = 0o644 << 16
    archive.writestr(entry, content)
