"""Plants mistakes one by one, and counts those that the tests see.

`make mutants ARGS='rules/billing --sample 60'`. A run can be broken off at any time, and the
next one goes on. tests/MUTANTS.md has the figures.
"""

import argparse
import ast
import difflib
import hashlib
import random
import signal
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path

import cosmic_ray.plugins
from cosmic_ray.commands import init
from cosmic_ray.mutating import use_mutation
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import MutationSpec, TestOutcome, WorkerOutcome, WorkItem, WorkResult

from tests.mutants.countable import Countable
from tests.mutants.folders import FOLDERS, ROOT, Folder
from tests.mutants.operators import CHOSEN, OWN
from tests.mutants.tree import Tester, copied_tree

_OPERATORS = Path("tests/mutants/operators.py")
_SESSIONS = ROOT / ".baseload" / "mutants" / "sessions"


def main() -> None:
    """Run the chosen folders; what no test saw is printed as it is found."""
    parser = argparse.ArgumentParser(prog="make mutants ARGS=…", description=__doc__)
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help="folders; all of them")
    parser.add_argument("--list", action="store_true", help="show the folders")
    parser.add_argument("--sample", type=int, metavar="N", help="N mutants of each folder")
    parser.add_argument("--part", type=int, default=1, help="the how manieth N of them: 1, 2, …")
    parser.add_argument("--again", action="store_true", help="try again what no test saw")
    asked = parser.parse_args()
    unknown = set(asked.folders) - FOLDERS.keys()
    if unknown:
        parser.error(f"no folder {', '.join(sorted(unknown))}: see --list")
    if asked.list:
        sys.stdout.writelines(f"{name}\n" for name in FOLDERS)
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and leave no copy behind
    cosmic_ray.plugins.OPERATOR_PROVIDERS["baseload"] = OWN
    for name in asked.folders or FOLDERS:
        chosen = slice(None)
        if asked.sample:
            chosen = slice((asked.part - 1) * asked.sample, asked.part * asked.sample)
        with copied_tree():
            _run(name, chosen, again=asked.again)


def _run(name: str, chosen: slice, *, again: bool) -> None:
    folder = FOLDERS[name]
    session = _session(name, folder.files())
    if again and session.exists():
        _forget_survivors(session)
    with use_db(str(session)) as db, Tester(folder, _reach(name, folder)) as tester:
        if not db.num_work_items:
            init(folder.files(), db, {})
        order = _order(db)
        items = order[chosen]
        results = dict(db.results)
        for number, item in enumerate(items, 1):
            if item.job_id not in results:
                result = _tried(item.mutations[0], tester)
                db.set_result(item.job_id, result)
                results[item.job_id] = result
                if not result.is_killed:
                    _say(f"[{number}/{len(items)}] {_place(item)}: no test sees\n{result.diff}")
        _report(name, items, results, len(order))


def _tried(mutation: MutationSpec, tester: Tester) -> WorkResult:
    operator = cosmic_ray.plugins.get_operator(mutation.operator_name)()
    with use_mutation(mutation.module_path, operator, mutation.occurrence) as (code, mutant):
        try:
            ast.parse(mutant)
        except SyntaxError:  # cosmic-ray takes the `*` of parameters for a product
            return WorkResult(worker_outcome=WorkerOutcome.SKIPPED)
        seen = tester.sees(mutation.module_path, mutation.start_pos[0])
    place = str(mutation.module_path)
    changed = difflib.unified_diff(code.splitlines(), mutant.splitlines(), place, place, n=0)
    return WorkResult(
        worker_outcome=WorkerOutcome.NORMAL,
        test_outcome=TestOutcome.KILLED if seen else TestOutcome.SURVIVED,
        diff="\n".join(list(changed)[2:]),
    )


def _session(name: str, files: Sequence[Path]) -> Path:
    """The state of a run; where a module or what is planted has changed, it begins anew."""
    _SESSIONS.mkdir(parents=True, exist_ok=True)
    read = b"\0".join((ROOT / each).read_bytes() for each in (_OPERATORS, *files))
    digest = hashlib.sha256(read).hexdigest()[:12]
    return _SESSIONS / f"{name.replace('/', '-')}-{digest}.sqlite"


def _reach(name: str, folder: Folder) -> Path:
    """Where it is kept which tests enter what; where a module or test has changed, anew."""
    files = [*(ROOT / module for module in folder.files()), *folder.files_of_tests()]
    digest = hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:12]
    return _SESSIONS / f"{name.replace('/', '-')}-{digest}.json"


def _forget_survivors(session: Path) -> None:
    with sqlite3.connect(session) as rows:
        rows.execute("DELETE FROM work_results WHERE test_outcome = 'SURVIVED'")


def _order(db: WorkDB) -> list[WorkItem]:
    """Every mutant that counts, in an order that is drawn once and for all."""
    countable: dict[Path, Countable] = {}
    items = []
    for item in db.work_items:
        (mutation,) = item.mutations
        path = mutation.module_path
        countable.setdefault(path, Countable(path))
        kept = mutation.operator_name in CHOSEN or mutation.operator_name.startswith("baseload/")
        if kept and countable[path].at(mutation.start_pos):
            items.append(item)
    items.sort(key=lambda item: (str(item.mutations[0].module_path), *_key(item)))
    random.Random(0).shuffle(items)
    return items


def _key(item: WorkItem) -> tuple[str, int]:
    return item.mutations[0].operator_name, item.mutations[0].occurrence


def _report(
    name: str, items: Sequence[WorkItem], results: dict[str, WorkResult], total: int
) -> None:
    items = [item for item in items if results[item.job_id].test_outcome]
    seen = sum(results[item.job_id].is_killed for item in items)
    share = 100 * seen / len(items) if items else 100
    for item in items:
        if not results[item.job_id].is_killed:
            _say(f"{_place(item)}  {item.mutations[0].operator_name.partition('/')[2]}")
    _say(
        f"{name}: {len(items)} of {total} mutants, {seen} seen, {len(items) - seen} not: "
        f"{share:.0f} % (aim: {FOLDERS[name].aim} %)"
    )


def _place(item: WorkItem) -> str:
    return f"{item.mutations[0].module_path}:{item.mutations[0].start_pos[0]}"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
