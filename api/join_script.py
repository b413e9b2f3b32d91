"""`/join.sh`: what a person runs on a machine that is to become a node; it holds no secret."""

from pathlib import Path

from fastapi.responses import FileResponse

SCRIPT = Path(__file__).resolve().parents[1] / "deploy" / "node" / "join.sh"


def get_join_script() -> FileResponse:
    """The script as it lies in this installation."""
    return FileResponse(SCRIPT, media_type="text/x-shellscript")
