"""A whole lifecycle in virtual time, told line by line: each effect, and each step.

What is left out of a lifecycle - a step, an effect, an argument, a wait - changes what is told.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.simulation.contracts import Attempt as Call
from tests.simulation.contracts import Sleep, Steps
from tests.simulation.engine.engine import Engine, Limits
from workflows.contracts.base import Contract
from workflows.contracts.lifecycles import Record
from workflows.contracts.nodes import NodeAddress

Signal = tuple[float, str, Contract | None]
"""The second at which it is sent, its name, and its argument."""
Answer = Callable[[Any], Contract | Steps]
Story = Callable[[], list[str]]


class Whole:
    """A lifecycle, what the world answers to it, and what it has told.

    workflows: its own comes first; changes: what a step changes that changes nothing;
    answers: of effects, by name; an answer may raise.
    """

    writes_all = True
    """Whether each step writes every column, so that only what differs from the last is told."""

    def __init__(
        self,
        workflows: tuple[type, ...],
        changes: Contract,
        answers: Mapping[str, Answer],
        limits: Limits | None,
    ) -> None:
        self.engine = Engine(7, workflows=workflows, limits=limits)
        self.began = self.engine.now()
        self.told: list[str] = []
        self.answers = dict(answers)
        self._row = self.columns(changes)

    def begin(self, workflow: str, workflow_id: str, request: Contract) -> None:
        """Start it, with every effect served."""
        self.engine.serve({name: partial(self._answer, name) for name in self.answers})
        self.engine.start(workflow, workflow_id, request)

    def go_on(self, workflow_id: str, signals: tuple[Signal, ...], most_s: float) -> list[str]:
        """What it tells until it has ended, or waits for longer than that."""
        engine = self.engine
        for at, name, argument in signals:
            engine.later(at, partial(engine.signal, workflow_id, name, argument))
        engine.play(most_s=most_s)
        shown = engine.describe(workflow_id)
        assert shown.task_attempt == 1, "its code has failed"
        ends = shown.status == "completed"
        report = engine.result(workflow_id) if ends else engine.query(workflow_id, "status")
        return [
            *_folded(_in_order(self.told)),
            f"{shown.status}: {report.status} {self.more_of(report)}".rstrip(),
            f"because {report.status_reason}",
            f"found by {dict(sorted(shown.search_attributes.items()))}",
        ]

    def more_of(self, report: Any) -> str:
        """What the report has beside status and reason."""
        del report
        return ""

    def columns(self, changes: Any) -> dict[str, str]:
        """What a step writes into the row."""
        return {name: self.short(getattr(changes, name)) for name in type(changes).model_fields}

    def _answer(self, name: str, call: Call, asked: Contract) -> Contract | Steps:
        if call.number == 1:
            what = self._step(asked) if isinstance(asked, Record) else self.short(asked)
            self.told.append(f"{self.seconds(self.engine.now())} {name}: {what}")
        return self.answers[name](asked)

    def _step(self, step: Record) -> str:
        """The step, and what it changes in the row."""
        row = self.columns(step.changes)
        changed = [f"{name} {text}" for name, text in row.items() if self._row.get(name) != text]
        changed += [f"no {name}" for name in self._row if name not in row]
        self._row = row if self.writes_all else self._row
        events = [f"{event.type} {event.message!r}{event.details or ''}" for event in step.events]
        why = f"({step.status_reason}) " if step.status_reason else ""
        return f"{step.sequence} {step.status} {why}{'; '.join([*events, *changed])}"

    def short(self, value: object) -> str:
        """A value as it is told: of a contract, what differs from its defaults."""
        if isinstance(value, NodeAddress):
            return f"{value.node_id}@{value.host}"
        if isinstance(value, Contract):
            fields = type(value).model_fields.items()
            given = [(name, getattr(value, name), field.default) for name, field in fields]
            return ", ".join(f"{n} {self.short(v)}" for n, v, default in given if v != default)
        if isinstance(value, tuple):
            return f"[{'; '.join(map(self.short, value))}]"
        return self.seconds(value) if isinstance(value, datetime) else str(value)

    def seconds(self, at: datetime) -> str:
        """Since it began."""
        return f"{(at - self.began).total_seconds():.0f}"


def _in_order(told: list[str]) -> list[str]:
    """What was asked for at once on several nodes, in the order of the nodes."""
    found: list[str] = []
    for _, lines in groupby(told, key=lambda line: line.partition(":")[0]):
        same = list(lines)
        found += same if " record" in same[0] else sorted(same)
    return found


def _folded(told: list[str]) -> list[str]:
    """Each line, and once what is asked for again and again."""
    found: list[str] = []
    for _, lines in groupby(told, key=lambda line: line.partition(" ")[2]):
        first, *others = lines
        found.append(first)
        if others:
            found.append(f"{others[-1].partition(' ')[0]} the same, {len(others)} more by now")
    return found


def fails(failure: Exception) -> Answer:
    """An answer that fails like this."""

    def answer(_: Any) -> Contract:
        raise failure

    return answer


def broken(failure: Exception, *names: str) -> dict[str, Answer]:
    """Effects that fail like this."""
    return dict.fromkeys(names, fails(failure))


def always(name: str, answered: Contract) -> dict[str, Answer]:
    """An effect that answers this."""
    return {name: lambda _: answered}


def slowly(answer: Answer, seconds: float) -> Answer:
    """An answer that takes so long."""

    def answered(asked: Any) -> Steps:
        yield Sleep(seconds)
        given = answer(asked)
        assert isinstance(given, Contract)
        return given

    return answered


def one_after_the_other(ever: Answer, *answers: Answer | None) -> Answer:
    """An answer to each call; None, and afterwards: as ever."""
    left = list(answers)

    def answer(asked: Any) -> Contract | Steps:
        given = left.pop(0) if left else None
        return (given or ever)(asked)

    return answer


def stories_of(*modules: ModuleType) -> dict[str, Story]:
    """The stories of these modules: their functions, by name."""
    return {
        name: tells
        for module in modules
        for name, tells in vars(module).items()
        if getattr(tells, "__module__", "") == module.__name__ and not name.startswith("_")
    }


def write(folder: Path, stories: Mapping[str, Story]) -> None:
    """Write what each story tells now."""
    folder.mkdir(exist_ok=True)
    for name, tells in stories.items():
        (folder / f"{name}.txt").write_text("\n".join([*tells(), ""]))
