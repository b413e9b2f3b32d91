"""Builds the guide, which the API serves at `/guide`, from `docs/`, if `docs/` has changed."""

import hashlib
import shutil
import sys

from console import CHECKOUT, locked, main_of, run, say

DOCS = CHECKOUT / "docs"
SETTINGS = CHECKOUT / "deploy" / "setup" / "mkdocs.yml"
GUIDE = CHECKOUT / ".baseload" / "guide"
STAMP = GUIDE / "docs-digest"


def build_guide() -> None:
    """Bring `.baseload/guide` to the state of `docs/`; the old guide is served until then."""
    digest = _digest()
    if STAMP.exists() and STAMP.read_text() == digest:
        return
    with locked(CHECKOUT / ".baseload", "guide"):
        say("building the guide")
        fresh = GUIDE.with_name("guide.new")
        command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean"]
        run([*command, "-f", SETTINGS, "-d", fresh], "building the guide",
            advice="A page or link that is named above is wrong",
            environment={"NO_MKDOCS_2_WARNING": "true"})  # fmt: skip
        (fresh / STAMP.name).write_text(digest)
        shutil.rmtree(GUIDE, ignore_errors=True)
        fresh.rename(GUIDE)


def _digest() -> str:
    paths = [SETTINGS, *sorted(path for path in DOCS.rglob("*") if path.is_file())]
    found = hashlib.sha256()
    for path in paths:
        content = path.read_bytes()
        found.update(f"{path.relative_to(CHECKOUT)} {len(content)}\n".encode() + content)
    return found.hexdigest()


if __name__ == "__main__":
    main_of(build_guide)
