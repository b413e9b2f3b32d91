"""Job files: YAML as in the API's job, with `code: {path: …}` in place of an upload."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from baseload.errors import BaseloadError
from baseload.packing import packed_files

NEWLINE = "\n"


class JobFileError(BaseloadError):
    """A job file cannot be read; the message has each mistake with its line."""


@dataclass(frozen=True)
class JobFile:
    """A job to submit. `code_folder` is the `code.path` of the file, from the file's folder.

    path: None for a job that is in no file.
    """

    path: Path | None
    job: dict[str, Any]
    code_folder: Path | None
    lines: dict[str, int]
    """Dotted path of each field, as the API words it, to its line in the file."""
    origins: dict[str, str] = field(default_factory=dict)
    """Dotted path of each field that is not the file's own, to the option that gave it."""

    def place_of(self, name: str) -> str:
        """`job.yaml:7`, the line of a field or of the nearest field around it that the file has.

        name: the dotted path of the field. For a field that an option gave: that option. Empty:
        the field has no place.
        """
        steps = name.split(".")
        for length in range(len(steps), 0, -1):
            part = ".".join(steps[:length])
            if part in self.origins:
                return self.origins[part]
            if part in self.lines:
                return f"{self.path}:{self.lines[part]}"
        return "" if self.path is None else str(self.path)


def read_job_file(path: Path) -> JobFile:
    """Read a job file.

    Raises: JobFileError, when the file does not exist, is not YAML or no mapping, or has a field
    twice.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as cause:
        raise JobFileError(f"job file {path}: {getattr(cause, 'strerror', cause)}") from cause
    try:
        tree = yaml.compose(text, Loader=yaml.SafeLoader)
        job = yaml.safe_load(text)
    except yaml.YAMLError as cause:
        raise JobFileError(_not_yaml(path, text, cause)) from cause
    if not isinstance(job, dict) or not isinstance(tree, yaml.MappingNode):
        raise JobFileError(f"job file {path}: asked a mapping with name, type and workers")
    lines: dict[str, int] = {}
    twice = []
    for name, line in _fields(tree, ""):
        if name in lines:
            twice.append(f"{path}:{line}: {name} is there twice, first on line {lines[name]}")
        lines.setdefault(name, line)
    if twice:
        raise JobFileError("\n".join(twice))
    return _with_code(path, job, lines)


def _not_yaml(path: Path, text: str, cause: yaml.YAMLError) -> str:
    """`job.yaml:3:7: is no YAML: what was found`, and the line with a mark below the place."""
    if isinstance(cause, yaml.reader.ReaderError):
        before = text[: cause.position]
        place = f"{before.count(NEWLINE) + 1}:{len(before) - before.rfind(NEWLINE)}"
        return f"{path}:{place}: is no YAML: found the character #x{cause.character:04x}"
    if not isinstance(cause, yaml.MarkedYAMLError) or cause.problem_mark is None:
        return f"{path}: is no YAML: {cause}"
    at = cause.problem_mark
    said = f"{path}:{at.line + 1}:{at.column + 1}: is no YAML: {cause.problem}"
    if cause.context and str(cause.problem).startswith("but "):
        said = f"{path}:{at.line + 1}:{at.column + 1}: is no YAML: {cause.context}, {cause.problem}"
    elif cause.context:
        begun = cause.context_mark
        where = f" begun at line {begun.line + 1}" if begun and begun.line != at.line else ""
        said += f", {cause.context}{where}"
    lines = text.splitlines()
    if at.line >= len(lines):
        return f"{said}; the file ends there"
    snippet = at.get_snippet(indent=2)
    return f"{said}\n{snippet}" if snippet else said


def check_requirements(file: JobFile, folder: Path) -> None:
    """Check that the file of `environment.requirements` goes with the code, in this folder.

    Whatever else may be wrong with the field, the API says.
    Raises: JobFileError, with the line of the field; PackingError, as `pack`.
    """
    environment = file.job.get("environment")
    asked = environment.get("requirements") if isinstance(environment, dict) else None
    if not isinstance(asked, str):
        return
    field = "environment.requirements"
    where = f"{place}: {field}" if (place := file.place_of(field)) else field
    path = folder / asked
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "there is no such file"
        raise JobFileError(f"{where}: {asked}: {what} in the code folder {folder}")
    if asked not in packed_files(folder):
        raise JobFileError(
            f"{where}: {asked} is not sent with the code: it is outside the folder {folder}, or an "
            "ignore file leaves it out"
        )


def _with_code(path: Path, job: dict[str, Any], lines: dict[str, int]) -> JobFile:
    code = job.get("code")
    if not isinstance(code, dict) or "path" not in code:
        return JobFile(path, job, None, lines)
    where = f"{path}:{lines.get('code', 1)}: code"
    if not isinstance(code["path"], str):
        raise JobFileError(f"{where}.path: asked a folder, found {code['path']!r}")
    if len(code) > 1:
        others = ", ".join(str(name) for name in code if name != "path")
        raise JobFileError(f"{where}: path stands alone, found also {others}")
    rest = {name: value for name, value in job.items() if name != "code"}
    return JobFile(path, rest, path.parent / code["path"], lines)


def _fields(node: yaml.Node, prefix: str) -> Iterator[tuple[str, int]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            name = f"{prefix}{key.value}"
            yield name, key.start_mark.line + 1
            yield from _fields(value, f"{name}.")
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            name = f"{prefix}{index}"
            yield name, value.start_mark.line + 1
            yield from _fields(value, f"{name}.")
