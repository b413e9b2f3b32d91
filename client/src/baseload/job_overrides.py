"""What a command line says of a job beside its file: options that replace fields of the file."""

from __future__ import annotations

import copy
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from baseload.errors import BaseloadError
from baseload.job_files import JobFile

VARIABLES = "environment.variables"
PRICE_CAP = "safety.price_cap_microcredits_per_hour"
GPU_FIELDS = ("gpus", "gpu_types", "gpu_count")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class OverrideError(BaseloadError):
    """An option names no field, no variable or no file."""


@dataclass(frozen=True)
class Overrides:
    """The fields of a job that options give; None and empty: as the file says.

    variables: `NAME=value`, or `NAME` alone for the value in this shell. variable_files: files
    with such lines, which the variables beat. labels: `key=value`.
    providers: kinds, ids or names, in the order in which they are preferred.
    price_cap_microcredits: of an hour of one machine.
    fields: `dotted.path=value`, the value in YAML. command: words of a shell command, or one whole
    shell command.
    """

    name: str | None = None
    gpus: str | None = None
    cpus: int | None = None
    memory_gib: float | None = None
    image: str | None = None
    requirements: str | None = None
    providers: Sequence[str] = ()
    price_cap_microcredits: int | None = None
    variables: Sequence[str] = ()
    variable_files: Sequence[Path] = ()
    labels: Sequence[str] = ()
    fields: Sequence[str] = ()
    command: Sequence[str] = ()

    def applied(self, file: JobFile, environment: Mapping[str, str] | None = None) -> JobFile:
        """The job of a file with these fields; a mistake in one of them names its option.

        environment: of this shell; None: of this process.
        Raises: OverrideError, for an option that cannot be read.
        """
        job, code_folder = copy.deepcopy(file.job), file.code_folder
        origins = dict(file.origins)
        known = os.environ if environment is None else environment
        for path, value, option in self._assignments(known):
            if path == "code.path":
                code_folder = Path(str(value))
                continue
            if path == "resources.gpus":
                _forget(job, "resources", GPU_FIELDS)
            _set(job, path.split("."), value, option)
            origins[path] = option
        self._label(job, origins)
        if self.command:
            workers = job.get("workers")
            count = len(workers) if isinstance(workers, list) else 1
            job["workers"] = [{"command": command_line(self.command)} for _ in range(count or 1)]
            origins["workers"] = "the command after --"
        return replace(file, job=job, origins=origins, code_folder=code_folder)

    def _label(self, job: dict[str, Any], origins: dict[str, str]) -> None:
        """Add the labels to the job's own; a key may have dots, so it is no path."""
        for text in self.labels:
            key, is_given, value = text.partition("=")
            if not is_given:
                raise OverrideError(f"--label {text}: asked KEY=VALUE, such as team=vision")
            own = job.get("labels")
            job["labels"] = {**(own if isinstance(own, dict) else {}), key: value}
            origins[f"labels.{key}"] = f"--label {key}"

    def _assignments(self, environment: Mapping[str, str]) -> Iterator[tuple[str, Any, str]]:
        """The path, the value and the option of each field."""
        named = (
            ("name", self.name, "--name"),
            ("resources.gpus", self.gpus, "--gpus"),
            ("resources.cpu_count", self.cpus, "--cpus"),
            ("resources.memory_gib", self.memory_gib, "--memory-gib"),
            ("environment.image", self.image, "--image"),
            ("environment.requirements", self.requirements, "--requirements"),
            ("placement.providers", list(self.providers) or None, "--provider"),
            (PRICE_CAP, self.price_cap_microcredits, "--price-cap"),
        )
        yield from ((path, value, option) for path, value, option in named if value is not None)
        for file in self.variable_files:
            for name, value in variables_in(file, environment).items():
                yield f"{VARIABLES}.{name}", value, f"--env-file {file}"
        for text in self.variables:
            name, value = _variable(text, f"--env {text.partition('=')[0]}", environment)
            yield f"{VARIABLES}.{name}", value, f"--env {name}"
        for text in self.fields:
            path, found, value = text.partition("=")
            if not found or not all(path.split(".")):
                raise OverrideError(
                    f"--set {text}: asked PATH=VALUE, such as safety.max_restarts=0"
                )
            try:
                yield path, yaml.safe_load(value), f"--set {path}"
            except yaml.YAMLError as cause:
                raise OverrideError(f"--set {path}: the value is no YAML: {cause}") from cause


def command_line(words: Sequence[str]) -> str:
    """One shell command: a single word is one already, several are quoted and joined."""
    return words[0] if len(words) == 1 else shlex.join(words)


def variables_in(path: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of a file: a line has `NAME=value`, or `NAME` for its value in this shell.

    Empty lines and those that begin with `#` say nothing, `export ` in front is passed over, and
    quotes around a whole value are not part of it. Nothing is expanded.
    Raises: OverrideError, with the line.
    """
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as cause:
        raise OverrideError(f"--env-file {path}: {getattr(cause, 'strerror', cause)}") from cause
    found = {}
    for number, line in enumerate(lines, 1):
        text = line.strip().removeprefix("export ").lstrip()
        if not text or text.startswith("#"):
            continue
        name, value = _variable(text, f"--env-file {path}:{number}", environment)
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        found[name] = value
    return found


def _variable(text: str, where: str, environment: Mapping[str, str]) -> tuple[str, str]:
    """A variable and its value. A wrong text is not shown, because it may have a secret."""
    name, is_given, value = text.partition("=")
    name = name.strip()
    if not _NAME.fullmatch(name):
        raise OverrideError(f"{where}: asked NAME=VALUE, the name of letters, digits and _")
    if is_given:
        return name, value
    if name not in environment:
        raise OverrideError(f"{where}: {name} has no value in this shell: give {name}=VALUE")
    return name, environment[name]


def _forget(job: dict[str, Any], part: str, names: Sequence[str]) -> None:
    if isinstance(job.get(part), dict):
        job[part] = {name: value for name, value in job[part].items() if name not in names}


def _set(tree: Any, steps: list[str], value: Any, option: str) -> None:
    """Set the field at a path; parts that are missing are made, and items of lists are counted."""
    *parents, last = steps
    for step in parents:
        if isinstance(tree, list):
            tree = tree[_index(tree, step, option)]
            continue
        if not isinstance(tree.get(step), dict | list):
            tree[step] = {}
        tree = tree[step]
    if isinstance(tree, list):
        tree[_index(tree, last, option)] = value
    else:
        tree[last] = value


def _index(items: list[Any], step: str, option: str) -> int:
    if step.isascii() and step.isdigit() and int(step) < len(items):
        return int(step)
    raise OverrideError(f"{option}: {step} is none of the {len(items)} items, counted from 0")
