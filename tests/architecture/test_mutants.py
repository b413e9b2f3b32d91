"""What `make mutants` covers exists, and its tests are still there; no other test runs the tool."""

import pytest

from tests.mutants.folders import FOLDERS, ROOT, Folder


@pytest.mark.parametrize("folder", FOLDERS.values(), ids=FOLDERS)
def test_a_folder_that_the_tool_covers_names_modules_and_tests_that_exist(folder: Folder) -> None:
    gone = [name for name in (*folder.modules, *folder.tests) if not (ROOT / name).exists()]
    assert not gone, gone
    assert folder.files()


def test_every_folder_of_rules_is_covered() -> None:
    rules = {path.parent.name for path in (ROOT / "workflows/rules").glob("*/__init__.py")}
    missing = {f"rules/{name}" for name in rules} - FOLDERS.keys()
    assert not missing, missing
