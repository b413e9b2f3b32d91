"""Doubles of tools, most of which show hardware: programs that a machine of the lab runs."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent


def put_double(disk: Path, tool: str) -> None:
    """Install the double of a tool on the disk of a machine."""
    double = disk / "usr/local/bin" / tool
    double.parent.mkdir(parents=True, exist_ok=True)
    double.write_bytes((HERE / f"{tool.replace('-', '_')}.py").read_bytes())
    double.chmod(0o755)
