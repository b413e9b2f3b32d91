"""The guide at `/guide`: the pages that `make setup` builds from `docs/`, and nothing of others."""

from pathlib import Path

import anyio
from fastapi import FastAPI
from fastapi.responses import HTMLResponse
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

PATH = "/guide"
BUILT = Path(__file__).resolve().parents[1] / ".baseload" / "guide"
# The search of the guide is a script, and its icons are in its style sheets.
POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; worker-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
NOT_BUILT = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>baseload</title>"
    "<p>The guide is not built here. <code>make setup</code> builds it in a checkout; "
    "<code>BASELOAD_GUIDE</code> names the folder of a guide that was built elsewhere.</html>"
)

NOT_THERE = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>baseload</title>"
    f"<p>The guide has no such page. <a href={PATH}/>Its first page</a> lists them all.</html>"
)


class Guide(StaticFiles):
    """The files of the guide; it never runs a script that is not its own."""

    async def check_config(self) -> None:
        """Do not refuse a folder that is not there: `get_response` says what to do about it."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        if not await anyio.Path(str(self.directory)).is_dir():
            return HTMLResponse(NOT_BUILT, status_code=404)
        response = await super().get_response(path, scope)
        if response.status_code == 404:  # The guide's own page for it needs a fixed site address.
            response = HTMLResponse(NOT_THERE, status_code=404)
        response.headers["Content-Security-Policy"] = POLICY
        return response


def install(app: FastAPI, folder: Path | None) -> None:
    """Serve the guide.

    folder: where it was built; None: where `make setup` does it in this checkout.
    """
    app.mount(PATH, Guide(directory=folder or BUILT, html=True, check_dir=False), name="guide")
