"""The pages `/` and `/docs`, without a script or anything of another site, `/join.sh` and
`/console.py`.

`/` leads to the others; `/docs` has every operation of the API.
"""

import re
from collections.abc import Iterator
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response

from api.job_file_schema import PATH

CHECKOUT = Path(__file__).resolve().parents[1]
JOIN_SCRIPT = CHECKOUT / "deploy" / "node" / "join.sh"
CONSOLE_PROGRAM = CHECKOUT / "deploy" / "node" / "console.py"
KEEPER = CHECKOUT / "activities" / "agent" / "upnp"
_WRITE_KEEPER = re.compile(r"^write_keeper\(\) \{\n.*?^\}\n", re.MULTILINE | re.DOTALL)
_STYLE = "body{font:16px sans-serif;max-width:60em;margin:2em auto}code{font-size:14px}"

_PARTS = {
    "guide": ("/guide/", "how to use baseload"),
    "documentation": ("/docs", "every operation of this API"),
    "openapi": ("/openapi.json", "the same for programs"),
    "api": ("/v1", "where the operations are; they need a key"),
    "health": ("/healthz", "whether this process answers"),
}


def get_join_script() -> Response:
    """What a person runs on a machine that is to become a node; it holds no secret."""
    return Response(_join_script(), media_type="text/x-shellscript")


@cache
def _join_script() -> str:
    """The script with the keeper of the machine's port in it, file by file, so that it is one file.

    In the checkout, it takes the files from there.
    """
    files = "".join(
        f"    cat >\"$1/{path.name}\" <<'KEEPER-FILE'\n{path.read_text()}KEEPER-FILE\n"
        for path in sorted(KEEPER.glob("*.py"))
    )
    written = f"write_keeper() {{\n{files}}}\n"
    return _WRITE_KEEPER.sub(lambda _: written, JOIN_SCRIPT.read_text(), count=1)


def get_console_program() -> FileResponse:
    """What shows the minion id on the console of a machine that has joined; it holds no secret."""
    return FileResponse(CONSOLE_PROGRAM, media_type="text/x-python")


def get_start(request: Request) -> Response:
    """Where to go from here: a page for browsers, JSON for all others."""
    if "text/html" not in request.headers.get("accept", ""):
        found = {name: path for name, (path, _) in _PARTS.items()}
        return JSONResponse({"name": "baseload", **found}, headers={"Vary": "Accept"})
    rows = "".join(
        f"<dt><a href={path}>{path}</a></dt><dd>{escape(says)}</dd>"
        for path, says in _PARTS.values()
        if path != "/v1"
    )
    return HTMLResponse(
        f"<!doctype html><html lang=en><meta charset=utf-8><title>baseload</title>"
        f"<style>{_STYLE}</style><h1>baseload</h1><p>Own the base, rent the burst.</p>"
        f"<dl>{rows}</dl><p>The operations are under <code>/v1</code> and need a key; the command "
        "<code>baseload</code> uses all of them: <code>baseload ps</code>, "
        "<code>baseload top</code>.</html>",
        headers={"Vary": "Accept"},
    )


def get_documentation(request: Request) -> HTMLResponse:
    """The operations of the OpenAPI document as a page."""
    document = request.app.openapi()
    rows = "".join(_rows(document))
    title = escape(document["info"]["title"])
    return HTMLResponse(
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title>"
        f"<style>{_STYLE}</style><h1>{title}</h1>"
        f"<p>{_text(document['info']['description'])}</p>"
        "<p>The whole document, with every field: <a href=/openapi.json>openapi.json</a>, "
        f"and of job files alone: <a href={PATH}>{PATH[1:]}</a>. The "
        f"command <code>baseload --help</code> uses all of it.</p><dl>{rows}</dl></html>"
    )


def _rows(document: dict[str, Any]) -> Iterator[str]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            name = f"<code>{method.upper()} {escape(path)}</code>"
            parameters = [
                f"<code>{escape(each['name'])}</code>" for each in operation.get("parameters", ())
            ]
            says = operation.get("description") or operation.get("summary", "")
            yield f"<dt id={escape(operation['operationId'])}>{name} {' '.join(parameters)}</dt>"
            yield f"<dd>{_text(says)}</dd>"


def _text(text: str) -> str:
    return escape(text).replace("\n\n", "<br>")
