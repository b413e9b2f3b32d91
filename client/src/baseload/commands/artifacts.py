"""`baseload dataset`, `model`, `checkpoint`, `volume`: stored files that jobs are given."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from baseload.commands.app import new_app
from baseload.commands.artifact_transfers import fetch, find_upload, send
from baseload.commands.data_progress import share_text
from baseload.commands.lookup import find, find_id, find_newest_job
from baseload.commands.session import Document, MistakeError, Session, command
from baseload.commands.terminal import bytes_text, counted, moment_text, pick
from baseload.commands.waiting import Goal, wait_for
from baseload.content_parts import FolderTar, tar_of
from baseload.packing import PackingError

WAIT_LIMIT_S = 86_400
REMOVING = "removing"
ARTIFACTS = ("datasets", "models", "checkpoints", "volumes")
SOURCES = (
    "https://… (a .tar, .tar.gz, .tgz or .zip is unpacked), git+https://…[@revision], "
    "git+ssh://git@HOST/PATH[@revision], s3://BUCKET[/PREFIX], wasabi://…, gs://BUCKET[/PREFIX], "
    "azure://ACCOUNT/CONTAINER[/PREFIX], hf://[datasets/]REPO[@revision], "
    "kaggle://OWNER/DATASET[@version], datastore:NAME[/FOLDER], "
    "job:NAME[/worker], dataset:NAME (or model:, checkpoint:, volume:)"
)


class SnapshotNoun(StrEnum):
    """What can be made of a volume."""

    DATASET = "dataset"
    CHECKPOINT = "checkpoint"


Name = Annotated[str, typer.Argument(help="id or name")]


def _app(noun: str) -> typer.Typer:
    """The commands of one noun; all four have the same, and volumes one more."""
    app, plural = new_app(), f"{noun}s"
    for add in (_add_create, _add_ls, _add_show, _add_export, _add_retry, _add_rm):
        add(app, plural)
    if plural == "volumes":
        _add_snapshot(app, plural)
    return app


def _add_create(app: typer.Typer, plural: str) -> None:
    @command(app)
    def create(
        session: Session,
        name: Annotated[str, typer.Argument(help="unique in its project")],
        folder: Annotated[
            Path | None, typer.Argument(help="whose files are sent; else say --source")
        ] = None,
        source: Annotated[str | None, typer.Option(help=SOURCES)] = None,
        sha256: Annotated[str | None, typer.Option(help="that a file of the web must have")] = None,
        secret: Annotated[
            str | None,
            typer.Option(help="the project's secret: a token, or ACCESS_KEY_ID:SECRET_ACCESS_KEY"),
        ] = None,
        region: Annotated[str | None, typer.Option(help="of a bucket; default: us-east-1")] = None,
        project: Annotated[str | None, typer.Option(help="id or name; default: Personal")] = None,
        no_wait: Annotated[
            bool, typer.Option("--no-wait", help="do not wait until its files are there")
        ] = False,
        timeout: Annotated[float, typer.Option(help="seconds to wait at most")] = WAIT_LIMIT_S,
    ) -> None:
        """Create one from a folder or a source; repeat the command if it was interrupted."""
        if (folder is None) == (source is None) and not (plural == "volumes" and source is None):
            raise MistakeError("say a folder, or --source, and not both")
        more = {"sha256": sha256, "secret": secret, "region": region}
        body: Document = {"name": name, "source": _source(session, folder, source, more)}
        if project is not None:
            body["project_id"] = find_id(session, "projects", project)
        tar = None if folder is None else _tar(folder)
        created = find_upload(session, plural, body) or session.post(f"/v1/{plural}", body)
        if tar is not None:
            send(session, plural, created, tar)
        if not no_wait:
            created = wait_for(session, plural, created, Goal(frozenset({"ready"}), timeout))
        _show_line(session, created)


def _add_ls(app: typer.Typer, plural: str) -> None:
    @command(app)
    def ls(
        session: Session,
        project: Annotated[str | None, typer.Option(help="id or name; default: all")] = None,
    ) -> None:
        """List them, newest first."""
        project_id = None if project is None else find_id(session, "projects", project)
        found = session.items(f"/v1/{plural}", project_id=project_id)
        if session.screen.as_json:
            session.screen.json({"items": found})
            return
        made = ("made_for_job_id",) if any(each.get("made_for_job_id") for each in found) else ()
        headings = ("id", "name", "status", *(("made for",) if made else ()))
        session.screen.table(
            (*headings, "size", "files", "source", "used by", "reason"),
            [
                (
                    *pick(each, "id", "name", "status", *made),
                    _size_text(each),
                    each["file_count"],
                    _source_text(each["source"]),
                    counted(each["job_count"], "job") if each["job_count"] else None,
                    each["status_reason"],
                )
                for each in found
            ],
        )


def _add_show(app: typer.Typer, plural: str) -> None:
    @command(app)
    def show(session: Session, name: Name) -> None:
        """Show one."""
        found = find(session, plural, name)
        if session.screen.as_json:
            session.screen.json(found)
            return
        size = found["unpacked_bytes"]
        session.screen.fields(
            [
                *((field, found[field]) for field in ("id", "name", "status")),
                ("reason", found["status_reason"]),
                ("project", found["project_id"]),
                ("made for", found.get("made_for_job_id")),
                ("source", _source_text(found["source"])),
                ("files", found["file_count"]),
                ("size", None if size is None else bytes_text(size)),
                ("stored", _size_text(found)),
                ("content", found["content_sha256"]),
                ("used by", _some_text(found["job_ids"], found["job_count"])),
                ("held by", _holders_text(found)),
                ("written", _written_text(found)),
                ("created", moment_text(found["created_at"])),
            ]
        )


def _holders_text(found: Document) -> str | None:
    """The jobs that have a volume now, and what they do with it."""
    holders = [
        f"{each['job_id'] or 'a job of others'} ({each['access']})" for each in found["holders"]
    ]
    return _some_text(holders, found["holder_count"])


def _some_text(shown: list[str], count: int) -> str | None:
    """Jobs by their ids, and how many more there are; None: there is none."""
    more = count - len(shown)
    if not shown or not more:
        return ", ".join(shown) or (counted(more, "job") if more else None)
    return f"{', '.join(shown)} and {more} more"


def _written_text(found: Document) -> str | None:
    written_at = found["written_at"]
    by = found["written_by"] or "a job of others"
    return f"{moment_text(written_at)} by {by}" if written_at else None


def _add_snapshot(app: typer.Typer, plural: str) -> None:
    @command(app)
    def snapshot(
        session: Session,
        name: Name,
        snapshot: Annotated[str, typer.Argument(help="name of what is made")],
        noun: Annotated[
            SnapshotNoun, typer.Option("--as", help="what is made of the volume")
        ] = SnapshotNoun.DATASET,
        no_wait: Annotated[
            bool, typer.Option("--no-wait", help="do not wait until its files are there")
        ] = False,
        timeout: Annotated[float, typer.Option(help="seconds to wait at most")] = WAIT_LIMIT_S,
    ) -> None:
        """Make a dataset or a checkpoint of what a volume has now; the volume stays as it is."""
        found, target = find(session, plural, name), f"{noun.value}s"
        source = {"type": "artifact", "artifact_id": found["id"]}
        body = {"name": snapshot, "project_id": found["project_id"], "source": source}
        made = session.post(f"/v1/{target}", body)
        if not no_wait:
            made = wait_for(session, target, made, Goal(frozenset({"ready"}), timeout))
        _show_line(session, made)


def _add_export(app: typer.Typer, plural: str) -> None:
    @command(app)
    def export(
        session: Session,
        name: Name,
        to: Annotated[
            Path | None, typer.Option(help="file; - is stdout; default: its name and .tar")
        ] = None,
    ) -> None:
        """Fetch the files of one as a tar."""
        found = find(session, plural, name)
        chunks = session.chunks(f"/v1/{plural}/{found['id']}/content")
        if to is not None and str(to) == "-":
            for chunk in chunks:
                sys.stdout.buffer.write(chunk)
            return
        target = to or Path(f"{_file_name(str(found['name']))}.tar")
        fetch(session, found, chunks, target)
        if session.screen.as_json:
            session.screen.json({"id": found["id"], "file": str(target)})
        else:
            size = bytes_text(target.stat().st_size)
            session.screen.result(f"{target}: {counted(found['file_count'], 'file')}, {size}")


def _add_retry(app: typer.Typer, plural: str) -> None:
    @command(app)
    def retry(session: Session, name: Name) -> None:
        """Try a transfer again that has failed; it goes on after what is stored."""
        path = f"/v1/{plural}/{find_id(session, plural, name)}/retry"
        _show_line(session, session.post(path))


def _add_rm(app: typer.Typer, plural: str) -> None:
    @command(app, takes_yes=True)
    def rm(session: Session, name: Name) -> None:
        """Remove one with its files; refused while jobs use it."""
        path = f"/v1/{plural}/{find_id(session, plural, name)}"
        _show_line(session, session.delete(path), now=REMOVING)


def _show_line(session: Session, found: Document, now: str | None = None) -> None:
    """One in a line. now: what happens to it, where its status does not say so yet."""
    if session.screen.as_json:
        session.screen.json(found)
    else:
        session.screen.result(f"{found['id']}  {found['name']}  {now or found['status']}")


def _source(
    session: Session, folder: Path | None, source: str | None, more: dict[str, str | None]
) -> Document:
    """The source as the API takes it. more: what options say of it. Raises: MistakeError."""
    if source is None:
        return {"type": "empty" if folder is None else "upload"}
    found = _by_address(source)
    if found is None:
        kind, _, name = source.partition(":")
        read: Callable[[Session, str, str], Document] | None = None
        if kind == "job":
            read = _job_source
        elif kind == "datastore":
            read = _datastore_source
        elif f"{kind}s" in ARTIFACTS:
            read = _artifact_source
        if read is None or not name:
            raise MistakeError(f"--source {source}: is none of {SOURCES}")
        found = read(session, kind, name)
    given = {option: value for option, value in more.items() if value is not None}
    if wrong := given.keys() - _OPTIONS.get(found["type"], frozenset()):
        raise MistakeError(f"--{min(wrong)} says nothing of {source}")
    return found | given


_OPTIONS = {
    "web": frozenset({"sha256"}),
    "aws": frozenset({"secret", "region"}),
    "wasabi": frozenset({"secret", "region"}),
    "huggingface": frozenset({"secret"}),
}
"""The options that say more of a source, by its type."""
_BUCKETS = {"s3": "aws", "wasabi": "wasabi", "gs": "gcp"}


def _by_address(source: str) -> Document | None:
    """The source that an address says; None: it is none."""
    scheme, _, rest = source.partition("://")
    if scheme in ("https", "http"):
        return {"type": "web", "url": source}
    read = _READERS.get(scheme)
    return read(scheme, rest) if read is not None and rest else None


def _git(scheme: str, rest: str) -> Document:
    host, slash, path = rest.partition("/")  # Over SSH a user is before the host.
    path, _, revision = path.partition("@")
    url = f"{scheme.removeprefix('git+')}://{host}{slash}{path}"
    return {"type": "git", "url": url, **({"revision": revision} if revision else {})}


def _hugging_face(_scheme: str, rest: str) -> Document:
    repo, _, revision = rest.partition("@")
    is_dataset = repo.startswith("datasets/")
    found = {"type": "huggingface", "repo": repo.removeprefix("datasets/")}
    found |= {"kind": "dataset"} if is_dataset else {}
    return found | ({"revision": revision} if revision else {})


def _kaggle(_scheme: str, rest: str) -> Document:
    dataset, at, version = rest.partition("@")
    if at and not version.isdigit():
        raise MistakeError(f"--source kaggle://{rest}: a version is a number from 1 on")
    return {"type": "kaggle", "dataset": dataset, **({"version": int(version)} if at else {})}


def _azure(_scheme: str, rest: str) -> Document:
    account, _, place = rest.partition("/")
    container, _, prefix = place.partition("/")
    return {"type": "azure", "account": account, "container": container, "prefix": prefix}


def _bucket(scheme: str, rest: str) -> Document:
    bucket, _, prefix = rest.partition("/")
    return {"type": _BUCKETS[scheme], "bucket": bucket, "prefix": prefix}


_READERS: dict[str, Callable[[str, str], Document]] = {
    "git+https": _git,
    "git+http": _git,
    "git+ssh": _git,
    "hf": _hugging_face,
    "kaggle": _kaggle,
    "azure": _azure,
    **dict.fromkeys(_BUCKETS, _bucket),
}
"""By scheme, what reads the rest of an address."""


def _job_source(session: Session, _kind: str, name: str) -> Document:
    name, _, worker = name.partition("/")
    if worker and not worker.isdigit():
        raise MistakeError(f"--source job:{name}/{worker}: a worker is a number from 0 on")
    job = find_newest_job(session, name)
    return {"type": "job", "job_id": job["id"], **({"worker": int(worker)} if worker else {})}


def _datastore_source(session: Session, _kind: str, name: str) -> Document:
    name, _, path = name.partition("/")
    found = {"type": "regional", "datastore_id": find_id(session, "datastores", name)}
    return found | ({"path": path} if path else {})


def _artifact_source(session: Session, kind: str, name: str) -> Document:
    return {"type": "artifact", "artifact_id": find_id(session, f"{kind}s", name)}


def _source_text(source: Document) -> str:
    """A source in words: as `--source` takes it, as far as it can say it."""
    kind = source["type"]
    said = _ADDRESSES.get(kind)
    if said is None:
        return str(source.get("job_id") or source.get("artifact_id") or kind)
    text = said.format_map(source).removesuffix("@None")
    if kind == "regional":
        text = text.rstrip("/")  # The path of all of a datastore is `/`.
    return text.replace("hf://model/", "hf://").replace("hf://dataset/", "hf://datasets/")


_ADDRESSES = {
    "web": "{url}",
    "git": "git+{url}@{revision}",
    "huggingface": "hf://{kind}/{repo}@{revision}",
    "kaggle": "kaggle://{dataset}@{version}",
    "azure": "azure://{account}/{container}/{prefix}",
    "aws": "s3://{bucket}/{prefix}",
    "wasabi": "wasabi://{bucket}/{prefix}",
    "gcp": "gs://{bucket}/{prefix}",
    "regional": "datastore:{datastore_id}/{path}",
}
"""By type, the words for a source of which an address tells enough."""


def _size_text(found: Document) -> str:
    """The bytes that are stored, and of how many while they are transferred."""
    is_under_way = found["status"] == "transferring"
    return share_text(found["bytes_transferred"], found["total_bytes"] if is_under_way else None)


def _tar(folder: Path) -> FolderTar:
    try:
        return tar_of(folder)
    except PackingError as cause:
        raise MistakeError(str(cause)) from cause


def _file_name(name: str) -> str:
    return re.sub(r"[^0-9A-Za-z._-]", "_", name).lstrip(".") or "content"


dataset, model, checkpoint, volume = (_app(plural.removesuffix("s")) for plural in ARTIFACTS)
