"""The defects of the proof can still be planted: the code has their texts."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.simulation.defects import DEFECTS, Defect, planted_source


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_each_defect_changes_code_that_is_there(defect: Defect) -> None:
    for module, _, _ in defect.changes:
        spec = find_spec(module)
        assert spec is not None
        assert spec.origin is not None
        source = Path(spec.origin).read_text("utf-8")
        changed = planted_source(source, defect, module)
        assert changed != source
        compile(changed, spec.origin, "exec")
