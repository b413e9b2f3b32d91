"""`baseload device-config`: what devices run, in revisions that never change."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from baseload.commands.app import new_app
from baseload.commands.lookup import find_id
from baseload.commands.session import Document, MistakeError, Session, command
from baseload.commands.terminal import bytes_text, moment_text, pick

app = new_app()

Reference = Annotated[str, typer.Argument(help="id or name")]
Image = Annotated[str | None, typer.Option(help="container image; without it on the device itself")]
Model = Annotated[str | None, typer.Option(help="id or name; the command runs in its folder")]
Checkpoints = Annotated[list[str] | None, typer.Option(help="id or name; repeatable")]
Datastore = Annotated[
    str | None, typer.Option(help="id or name, of the region; gets what the command writes")
]
Folder = Annotated[str | None, typer.Option(help="the folder of the datastore")]
OutputPolicy = Annotated[
    str | None,
    typer.Option(
        help="what goes while the datastore takes nothing: drop_oldest and drop_newest keep up to "
        "the limit, drop_all keeps nothing (drop_oldest)"
    ),
]
OutputLimit = Annotated[
    int | None, typer.Option(help="what the output may take on the device (half of its disk)")
]
Variables = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="a variable; NAME alone: as in this shell; repeatable"),
]
Secrets = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=SECRET", help="a variable, and the project's secret; repeatable"),
]
Credentials = Annotated[
    list[str] | None, typer.Option(help="type of a key of the project, as aws; repeatable")
]
ImageCredentials = Annotated[str | None, typer.Option(help="docker or ngc; default: what opens it")]
UpFor = Annotated[
    int | None, typer.Option(help="health: up for so many seconds without a break (10)")
]
HttpPort = Annotated[
    int | None, typer.Option(help="health: this port of the device answers by HTTP")
]
HttpPath = Annotated[
    str | None, typer.Option(help="health: at this path (/), with a status below 400")
]
LogLine = Annotated[str | None, typer.Option(help="health: a line of its log has this text")]
HealthLimit = Annotated[
    int | None, typer.Option(help="health: all of it within so many seconds (300)")
]
Disk = Annotated[int | None, typer.Option(help="GB that its files may take on the device (10)")]


@dataclass(frozen=True)
class _Given:
    """What the options of a configuration say. None and empty: nothing."""

    command: str | None = None
    image: str | None = None
    model: str | None = None
    checkpoints: Sequence[str] = ()
    datastore: str | None = None
    path: str | None = None
    output_buffer: tuple[tuple[str, int | str | None], ...] = ()
    env: Sequence[str] = ()
    secrets: Sequence[str] = ()
    credentials: Sequence[str] = ()
    image_credentials: str | None = None
    health: tuple[tuple[str, int | str | None], ...] = ()
    disk_size_gb: int | None = None

    def body(self, session: Session) -> Document:
        """The fields of a request, of what is given alone; names are sent as ids.

        Raises: MistakeError, for a path without its datastore, or a variable that has no value.
        """
        if self.path is not None and self.datastore is None:
            raise MistakeError("--path: say of which datastore: --datastore NAME --path FOLDER")
        environment = {
            "image": self.image,
            "variables": _variables(self.env),
            "secrets": _pairs(self.secrets, "--secret"),
            "credentials": list(self.credentials),
            "image_credentials": self.image_credentials,
        }
        fields: Document = {
            "command": self.command,
            "model": self.model and {"id": find_id(session, "models", self.model)},
            "checkpoints": [find_id(session, "checkpoints", each) for each in self.checkpoints],
            "output": self._output(session),
            "output_buffer": _known(dict(self.output_buffer)),
            "environment": _known(environment),
            "health": _known(dict(self.health)),
            "disk_size_gb": self.disk_size_gb,
        }
        return _known(fields)

    def _output(self, session: Session) -> Document | None:
        if self.datastore is None:
            return None
        datastore_id = find_id(session, "datastores", self.datastore)
        return _known({"type": "regional", "datastore_id": datastore_id, "path": self.path})


@command(app)
def create(
    session: Session,
    name: Annotated[str, typer.Argument(help="unique in the region")],
    region: Annotated[str, typer.Option(help="id or name")],
    command_: Annotated[
        str, typer.Option("--command", help="runs for ever; not started again when it exits")
    ],
    project: Annotated[
        str | None, typer.Option(help="whose model, secrets and keys it names; default: your own")
    ] = None,
    image: Image = None,
    model: Model = None,
    checkpoint: Checkpoints = None,
    datastore: Datastore = None,
    path: Folder = None,
    output_policy: OutputPolicy = None,
    output_limit_bytes: OutputLimit = None,
    env: Variables = None,
    secret: Secrets = None,
    credential: Credentials = None,
    image_credentials: ImageCredentials = None,
    up_s: UpFor = None,
    http_port: HttpPort = None,
    http_path: HttpPath = None,
    log_line: LogLine = None,
    health_limit_s: HealthLimit = None,
    disk_size_gb: Disk = None,
) -> None:
    """Create a configuration with its first revision; `baseload device set` gives it to devices."""
    given = _Given(
        command=command_,
        image=image,
        model=model,
        checkpoints=checkpoint or (),
        datastore=datastore,
        path=path,
        output_buffer=(("policy", output_policy), ("limit_bytes", output_limit_bytes)),
        env=env or (),
        secrets=secret or (),
        credentials=credential or (),
        image_credentials=image_credentials,
        health=_health(up_s, http_port, http_path, log_line, health_limit_s),
        disk_size_gb=disk_size_gb,
    )
    body: Document = {
        "name": name,
        "region_id": find_id(session, "regions", region),
        **given.body(session),
    }
    if project is not None:
        body["project_id"] = find_id(session, "projects", project)
    _show_result(session, session.post("/v1/device-configurations", body))


@command(app)
def update(
    session: Session,
    configuration: Reference,
    command_: Annotated[str | None, typer.Option("--command", help="runs for ever")] = None,
    image: Image = None,
    model: Model = None,
    checkpoint: Checkpoints = None,
    datastore: Datastore = None,
    path: Folder = None,
    output_policy: OutputPolicy = None,
    output_limit_bytes: OutputLimit = None,
    env: Variables = None,
    secret: Secrets = None,
    credential: Credentials = None,
    image_credentials: ImageCredentials = None,
    up_s: UpFor = None,
    http_port: HttpPort = None,
    http_path: HttpPath = None,
    log_line: LogLine = None,
    health_limit_s: HealthLimit = None,
    disk_size_gb: Disk = None,
    unset: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD", help="as by default, such as model or environment.variables.X"
        ),
    ] = None,
) -> None:
    """Make the next revision, unless nothing changes: what is named changes, all else stays."""
    given = _Given(
        command=command_,
        image=image,
        model=model,
        checkpoints=checkpoint or (),
        datastore=datastore,
        path=path,
        output_buffer=(("policy", output_policy), ("limit_bytes", output_limit_bytes)),
        env=env or (),
        secrets=secret or (),
        credentials=credential or (),
        image_credentials=image_credentials,
        health=_health(up_s, http_port, http_path, log_line, health_limit_s),
        disk_size_gb=disk_size_gb,
    )
    body = given.body(session)
    for field in unset or ():
        _clear(body, field)
    if not body:
        raise MistakeError("say what changes, as --image NAME, or --unset FIELD")
    _show_result(session, session.patch(_path(session, configuration), body))


@command(app)
def ls(
    session: Session,
    region: Annotated[str | None, typer.Option(help="only of this region")] = None,
) -> None:
    """List configurations, each with how many devices have it; `list` is the same."""
    query: Document = {} if region is None else {"region_id": find_id(session, "regions", region)}
    found = session.items("/v1/device-configurations", **query)
    if session.screen.as_json:
        session.screen.json({"items": found})
        return
    rows = [
        [
            *pick(each, "id", "name", "region_id", "latest_revision", "device_count"),
            each.get("deployed_count"),
            moment_text(each.get("updated_at")),
        ]
        for each in found
    ]
    columns = ("id", "name", "region", "latest", "devices", "have the latest", "changed")
    session.screen.table(columns, rows)


@command(app)
def show(
    session: Session,
    configuration: Reference,
    revision: Annotated[int | None, typer.Option(help="default: the latest")] = None,
) -> None:
    """Show a configuration: a revision of it, and the revisions that devices have."""
    path = _path(session, configuration)
    found = session.get(path)
    shown = found["latest"] if revision is None else session.get(f"{path}/revisions/{revision}")
    if session.screen.as_json:
        session.screen.json(found if revision is None else shown)
        return
    environment = shown["environment"]
    session.screen.fields(
        [
            *((name, found.get(name)) for name in ("id", "name")),
            ("region", found.get("region_id")),
            ("project", found.get("project_id")),
            ("devices", found.get("device_count")),
            ("have the latest", found.get("deployed_count")),
            ("revision", shown.get("revision")),
            ("made", f"{moment_text(shown.get('created_at'))} by {_creator(shown)}"),
            ("command", shown.get("command")),
            ("image", environment.get("image")),
            ("image credentials", environment.get("image_credentials")),
            ("model", shown.get("model_id")),
            ("checkpoints", shown.get("checkpoints") or None),
            ("output", _output_text(shown.get("output"))),
            ("kept on devices", _buffer_text(shown)),
            ("variables", environment.get("variables") or None),
            ("secrets", [f"{k}={v}" for k, v in environment["secrets"].items()] or None),
            ("credentials", environment.get("credentials") or None),
            ("healthy when", _health_text(shown["health"])),
            ("disk", f"{shown['disk_size_gb']} GB"),
        ]
    )
    session.screen.result("")
    session.screen.table(
        ("revision", "made", "by", "on devices"),
        [
            [
                each["revision"],
                moment_text(each["created_at"]),
                _creator(each),
                each["running_count"],
            ]
            for each in found["revisions"]
        ],
    )


def _creator(revision: Document) -> str:
    """Who has made a revision, by name where that is known."""
    return str(revision.get("created_by_name") or revision.get("created_by") or "-")


@command(app)
def diff(
    session: Session,
    configuration: Reference,
    earlier: Annotated[
        int | None, typer.Argument(help="a revision; default: the one before the latest")
    ] = None,
    later: Annotated[int | None, typer.Argument(help="another; default: the latest")] = None,
) -> None:
    """Show in which fields two revisions differ; of variables the names alone."""
    path = _path(session, configuration)
    latest = session.get(path)["latest_revision"] if later is None else later
    first = max(1, latest - 1) if earlier is None else earlier
    found = session.get(f"{path}/diff", **{"from": first, "to": latest})
    if session.screen.as_json:
        session.screen.json(found)
        return
    session.screen.table(
        ("field", "is", f"revision {first}", f"revision {latest}"),
        [pick(each, "field", "kind", "earlier", "later") for each in found["differences"]],
    )


@command(app, takes_yes=True)
def rm(session: Session, configuration: Reference) -> None:
    """Remove a configuration that no device has; `remove` is the same."""
    _show_result(session, session.delete(_path(session, configuration)), now="removed")


command(app, "list")(ls)
command(app, "remove", takes_yes=True)(rm)


def _path(session: Session, configuration: str) -> str:
    found = find_id(session, "device-configurations", configuration)
    return f"/v1/device-configurations/{found}"


def _known(fields: Document) -> Document:
    """The fields that have a value."""
    return {name: value for name, value in fields.items() if value not in (None, [], {})}


def _health(
    up_s: int | None,
    http_port: int | None,
    http_path: str | None,
    log_line: str | None,
    limit_s: int | None,
) -> tuple[tuple[str, int | str | None], ...]:
    return (
        ("up_s", up_s),
        ("http_port", http_port),
        ("http_path", http_path),
        ("log_line", log_line),
        ("limit_s", limit_s),
    )


def _variables(given: Sequence[str]) -> dict[str, str]:
    """The variables by name; a name alone has its value in this shell. Raises: MistakeError."""
    found = {}
    for text in given:
        name, has_value, value = text.partition("=")
        if not has_value and name not in os.environ:
            raise MistakeError(f"--env {name}: is not set in this shell; or say {name}=VALUE")
        found[name] = value if has_value else os.environ[name]
    return found


def _pairs(given: Sequence[str], option: str) -> dict[str, str]:
    """Names with what they stand for, of `NAME=TEXT`. Raises: MistakeError."""
    found = {}
    for text in given:
        name, has_value, value = text.partition("=")
        if not has_value:
            raise MistakeError(f"{option} {text}: asked NAME=SECRET")
        found[name] = value
    return found


def _clear(body: Document, field: str) -> None:
    """Let a request set a field, by its dotted path, to what it is by default.

    Raises: MistakeError, when the path leads through a field that another option sets.
    """
    *parents, last = field.split(".")
    for step in parents:
        body = body.setdefault(step, {})
        if not isinstance(body, dict):
            raise MistakeError(f"--unset {field}: {step} has no fields")
    if last in body:
        raise MistakeError(f"--unset {field}: another option sets it")
    body[last] = None


def _output_text(output: Document | None) -> str | None:
    return None if output is None else f"{output['datastore_id']}:{output['path']}"


def _buffer_text(revision: Document) -> str | None:
    """What devices keep of their output while the datastore takes nothing, in one line."""
    buffer = revision.get("output_buffer")
    if revision.get("output") is None or buffer is None:
        return None
    limit = buffer["limit_bytes"]
    most = "half of the disk" if limit is None else bytes_text(limit)
    return f"{buffer['policy']}, at most {most}"


def _health_text(health: Document) -> str:
    """What must be so, in one line."""
    port, path, line = pick(health, "http_port", "http_path", "log_line")
    parts: list[Any] = [f"up for {health['up_s']} s"]
    parts += [f"port {port} answers at {path or '/'}"] if port else []
    parts += [f"its log says {line!r}"] if line else []
    return f"{', '.join(parts)}, within {health['limit_s']} s"


def _show_result(session: Session, found: Document, now: str | None = None) -> None:
    """One in a line. now: what has happened to it."""
    if session.screen.as_json:
        session.screen.json(found)
    else:
        state = now or f"revision {found['latest_revision']}"
        session.screen.result(f"{found['id']}  {found['name']}  {state}")
