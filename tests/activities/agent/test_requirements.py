"""Packages by a file of the job's own code: pip's format, projects and their locks, conda."""

import hashlib
import json
import os
import pwd
import shutil
import zipfile
from pathlib import Path

import pytest

from activities.agent.errors import RefusedError
from activities.agent.packages import pip_lines, requirements
from activities.site.answers import reading
from activities.site.answers.verbs import Nothing
from tests.activities import archives
from tests.activities.agent.agent_process import LocalAgent, Refused, spec
from tests.activities.archives import file, symlink
from tests.lab.wheels import write_wheel

RUN = "job-w-0-1"
IMPORTS = "python -c 'import localthing; print(localthing.words)'"
needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root may become another user: run as root"
)


@pytest.fixture
def hashes(wheels: Path) -> dict[str, str]:
    """Two versions of a package on the only index that there is; the hash of each file."""
    made = (
        write_wheel(wheels, "localthing", "1.0", "words = 'first'\n"),
        write_wheel(wheels, "localthing", "2.0", "words = 'second'\n"),
    )
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in made}


def unpack(agent: LocalAgent, folder: Path, files: dict[str, str]) -> str:
    """Bring code to the node; its hash."""
    folder.mkdir(exist_ok=True)
    members = [file(name, text.encode()) for name, text in files.items()]
    path, sha256 = archives.archive(folder, *members)
    agent.call("unpack_code", sha256=sha256, archive=str(path))
    return sha256


def stage(agent: LocalAgent, code: str, name: str, run_id: str = RUN, **more: object) -> None:
    agent.call(
        "stage", run_id=run_id, owned=True, code_sha256=code, requirements=name,
        spec=spec(IMPORTS), **more,
    )  # fmt: skip


def ran(agent: LocalAgent, run_id: str = RUN) -> str:
    """The log of a staged run, which has ended well."""
    agent.call("start", run_id=run_id)
    code = agent.exit_of(run_id)["exit_code"]
    log = agent.path(run_id, "log").read_text()
    assert code == 0, log
    return log


def refusal(agent: LocalAgent, code: str, name: str, run_id: str = RUN) -> Refused:
    with pytest.raises(Refused) as caught:
        stage(agent, code, name, run_id)
    assert agent.look(run_id)["state"] == "unknown"
    return caught.value


def environments(agent: LocalAgent) -> list[Path]:
    found = (agent.root / "packages/owned").iterdir()
    return [path for path in found if (path / "baseload-complete").exists()]


def hashed(hashes: dict[str, str], version: str) -> str:
    (found,) = [sha for name, sha in hashes.items() if name.startswith(f"localthing-{version}")]
    return f"localthing=={version} --hash=sha256:{found}\n"


@pytest.mark.usefixtures("hashes")
def test_a_requirements_file_with_files_that_it_names_is_installed(
    agent: LocalAgent, tmp_path: Path
) -> None:
    files = {
        "deps/requirements.txt": "-r more/others.txt  # beside it\n--constraint=limits.txt\n",
        "deps/more/others.txt": "localthing\ntinything\n",
        "deps/limits.txt": "localthing<2\n",
    }
    code = unpack(agent, tmp_path, files)
    stage(agent, code, "deps/requirements.txt")
    assert ran(agent) == "first\n"
    assert not (agent.root / "packages/owned" / f"{environments(agent)[0].name}.home").exists()


def test_hashes_of_a_requirements_file_are_held(
    agent: LocalAgent, tmp_path: Path, hashes: dict[str, str]
) -> None:
    good = unpack(agent, tmp_path / "a", {"requirements.txt": hashed(hashes, "1.0")})
    stage(agent, good, "requirements.txt")
    assert ran(agent) == "first\n"
    bad = unpack(
        agent, tmp_path / "b", {"requirements.txt": hashed(dict.fromkeys(hashes, "0" * 64), "1.0")}
    )
    found = refusal(agent, bad, "requirements.txt", run_id="job-w-1-1")
    assert found.code == "packages"


@pytest.mark.usefixtures("hashes")
def test_equal_contents_are_built_once_and_others_anew(agent: LocalAgent, tmp_path: Path) -> None:
    texts = ("localthing<2\n", "localthing<2\n", "localthing\n")
    for number, text in enumerate(texts):
        files = {"requirements.txt": text, "main.py": f"print({number})"}
        code = unpack(agent, tmp_path / str(number), files)
        stage(agent, code, "requirements.txt", f"job-w-{number}-1")
    paths = [
        agent.document(f"job-w-{number}-1", "spec.json")["packages_path"] for number in range(3)
    ]
    assert paths[0] == paths[1] != paths[2]
    assert len(environments(agent)) == 2
    assert ran(agent, "job-w-2-1") == "second\n"


@needs_root
def test_packages_of_a_file_serve_nobody_but_their_owner_and_belong_to_root(
    agent: LocalAgent, tmp_path: Path, hashes: dict[str, str]
) -> None:
    code = unpack(agent, tmp_path, {"requirements.txt": "localthing\n"})
    stage(agent, code, "requirements.txt")
    assert isinstance(agent.environment, dict)
    agent.environment["REQUESTS_CA_BUNDLE"] = "/nonexistent"  # Without settings there is no index.
    with pytest.raises(Refused) as caught:
        agent.call(
            "stage", run_id="job-w-1-1", code_sha256=code, requirements="requirements.txt",
            spec=spec(IMPORTS),
        )  # fmt: skip
    assert caught.value.code == "packages"
    (environment,) = environments(agent)
    assert {path.lstat().st_uid for path in environment.rglob("*")} == {0}


@pytest.mark.usefixtures("wheels")
def test_the_line_that_counts_is_said_once_and_the_rest_is_the_log(
    agent: LocalAgent, tmp_path: Path
) -> None:
    code = unpack(agent, tmp_path, {"requirements.txt": "no-such-thing==1\ntinything\n"})
    found = refusal(agent, code, "requirements.txt")
    assert found.code == "packages"
    assert str(found) == (
        "packages: No matching distribution found for no-such-thing==1 "
        "(installing requirements.txt: exit 1)"
    )
    log = agent.path(RUN, "log").read_text()
    assert "Could not find a version that satisfies the requirement no-such-thing==1" in log


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (
            "-e .",
            "-e: what is installed here is shared and read-only: install it in environment.setup",
        ),
        ("--editable=git+https://me:secret@example.com/x", "--editable: what is installed here"),
        ("./local", "environment.setup"),
        ("local-1.0-py3-none-any.whl", "environment.setup"),
        ("thing @ file:///etc", "environment.setup"),
        ("git+file:///etc", "environment.setup"),
        ("thing @ git+FILE:///etc", "environment.setup"),
        ("thing[more]@FILE:///etc", "environment.setup"),
        (f"--hash='{'a' * (64 << 10)}'", "has quotes in options of more than 65536 characters"),
        ("-r https://example.com/more.txt", "only files of the code"),
        ("-r ../outside.txt", "not inside the code"),
        ("-c /etc/passwd", "not inside the code"),
        ("-r missing.txt", "missing.txt: there is no such file"),
        ("--requirement", "--requirement: its value is missing"),
        ("-r more.txt --pre", "-r: write each option into a line of its own"),
        ("--req more.txt", "--req is no option that is known here; these are: -r,"),
        ("--pre secret", "has a word behind its options that belongs to none"),
        ("localthing --pre", "--pre: write it into a line of its own"),
        ("localthing --quiet", "--quiet is no option that is known here; these are: --hash,"),
        ("--find-links ./wheels", "--find-links: is no address that begins with https://"),
        ("-i ./index", "environment.setup, such as `pip install -i ...`"),
        ("--extra-index-url https://${TOKEN}@example.com", "${TOKEN}: a job's variables"),
        ("--no-binary 'x", "cannot be read: No closing quotation"),
    ],
)
def test_what_is_no_package_of_an_index_is_refused_with_the_way_out(
    agent: LocalAgent, tmp_path: Path, line: str, words: str
) -> None:
    code = unpack(agent, tmp_path, {"requirements.txt": f"tiny\\\nthing\n{line}\n"})
    found = refusal(agent, code, "requirements.txt")
    assert found.code == "requirements"
    assert str(found).startswith(
        "requirements: environment.requirements: requirements.txt, line 3:"
    )
    assert words in str(found)
    assert "secret" not in str(found)


@pytest.mark.usefixtures("hashes")
@pytest.mark.parametrize(
    ("lines", "version"),
    [("localthing", "second"), ("--pre\nlocalthing", "third"), ("localthing>=3.0a0", "third")],
)
def test_releases_before_a_release_are_installed_where_they_are_asked_for(
    agent: LocalAgent, tmp_path: Path, wheels: Path, lines: str, version: str
) -> None:
    write_wheel(wheels, "localthing", "3.0a1", "words = 'third'\n")
    stage(agent, unpack(agent, tmp_path, {"requirements.txt": lines}), "requirements.txt")
    assert ran(agent) == f"{version}\n"


def test_options_of_indexes_and_packages_are_left_to_pip(tmp_path: Path) -> None:
    lines = (
        "-i https://example.com/simple  # ours", "--extra-index-url=https://example.com/more",
        "--find-links https://example.com/all.html --trusted-host example.com",
        "--only-binary=:all:", "--prefer-binary", "--require-hashes",
        "thing==1 \\", "  --hash=sha256:00 --config-settings '--build-option=-a -b'",
        "# a comment \\", "-rmore.txt", "other @ https://example.com/other.whl",
    )  # fmt: skip
    (tmp_path / "requirements.txt").write_text("\n".join(lines))
    (tmp_path / "more.txt").write_text("numpy")
    found = requirements.read(str(tmp_path), "requirements.txt", "3.11", has_conda=False)
    assert sorted(found.files) == ["more.txt", "requirements.txt"]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_files_are_read_as_windows_writes_them(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "requirements.txt").write_text("-r more.txt\r\n", encoding=encoding)
    (tmp_path / "more.txt").write_text("numpy")
    found = requirements.read(str(tmp_path), "requirements.txt", "3.11", has_conda=False)
    assert sorted(found.files) == ["more.txt", "requirements.txt"]


def test_a_line_of_another_format_is_refused_by_the_name_of_its_file(tmp_path: Path) -> None:
    text = "dependencies:\n  - python\n  - pip:\n    - -e .\n"
    (tmp_path / "environment.yml").write_text(text)
    with pytest.raises(RefusedError, match=r"requirements: environment\.yml: -e: what is"):
        requirements.read(str(tmp_path), "environment.yml", "3.11", has_conda=False)


def test_only_files_of_the_code_are_read(agent: LocalAgent, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("tinything\n")
    code = unpack(agent, tmp_path / "code", {"a": "x"})
    for name in ("missing.txt", "/etc/passwd", f"../{code}/a", str(outside), "."):
        assert refusal(agent, code, name).code == "requirements"
    path, linked = archives.archive(tmp_path, file("a", b"localthing"), symlink("b.txt", "a"))
    agent.call("unpack_code", sha256=linked, archive=str(path))
    (agent.root / "code" / linked / "b.txt").unlink()
    (agent.root / "code" / linked / "b.txt").symlink_to(outside)
    assert "not inside" in str(refusal(agent, linked, "b.txt"))
    assert not (agent.root / "packages/owned").exists()


# ── projects and locks ──────────────────────────────────────────────────────────────────────────

PROJECT = '[project]\nname = "mine"\nversion = "1"\ndependencies = ["localthing<2"]\n'


@pytest.mark.usefixtures("hashes")
def test_the_dependencies_of_a_project_are_installed_and_not_the_project(
    agent: LocalAgent, tmp_path: Path
) -> None:
    code = unpack(agent, tmp_path, {"pyproject.toml": PROJECT})
    stage(agent, code, "pyproject.toml")
    assert ran(agent) == "first\n"


MARKERS = {"1.0": "python_version < '3'", "2.0": "python_version >= '3'"}


@pytest.mark.parametrize("name", ["pyproject.toml", "pylock.toml"])
def test_a_lock_is_installed_as_it_stands_with_its_hashes(
    agent: LocalAgent, tmp_path: Path, hashes: dict[str, str], name: str
) -> None:
    lock = 'lock-version = "1.0"\ncreated-by = "a test"\n' + "".join(
        f'[[packages]]\nname = "localthing"\nversion = "{version}"\nmarker = "{marker}"\n'
        f'wheels = [{{name = "{file_name}", url = "https://example.com/{file_name}", '
        f'hashes = {{sha256 = "{sha256}"}}}}]\n'
        for (file_name, sha256), (version, marker) in zip(
            hashes.items(), MARKERS.items(), strict=True
        )
    )  # fmt: skip
    lock += (
        '[[packages]]\nname = "unused"\nversion = "1"\nmarker = "\'dev\' in dependency_groups"\n'
    )
    code = unpack(agent, tmp_path, {"pyproject.toml": PROJECT, "pylock.toml": lock})
    stage(agent, code, name)
    assert ran(agent) == "second\n"
    forged = lock.replace(list(hashes.values())[1], "0" * 64)
    code = unpack(agent, tmp_path / "b", {"pyproject.toml": PROJECT, "pylock.toml": forged})
    found = refusal(agent, code, name, run_id="job-w-1-1")
    assert found.code == "packages"


UV = """#!{python}
# uv as it takes its words: it writes what the lock beside the project names.
import sys
words = sys.argv[1:]
options = dict(zip(words, words[1:]))
flags = ["--quiet", "--frozen", "--offline", "--no-config", "--no-cache", "--no-emit-workspace",
         "--no-dev"]
assert words[0] == "export" and words[1:8] == flags, words
assert set(words[8::2]) == {{"--python", "--project", "--output-file"}}, words
project = open(options["--project"] + "/pyproject.toml").read()
lock = open(options["--project"] + "/uv.lock").read()
assert "localthing" in project
open(options["--output-file"], "w").write(lock.partition("# as exported\\n")[2])
"""


def test_a_uv_lock_is_read_by_uv_itself_and_installed_by_pip(
    agent: LocalAgent, wheels: Path, tmp_path: Path, hashes: dict[str, str]
) -> None:
    wheel = write_wheel(wheels, "uv", "0.8.1", "")
    _add_script(wheel, "uv", UV.format(python="/usr/bin/python3"))
    lock = f"version = 1\n# as exported\n{hashed(hashes, '2.0')}"
    code = unpack(agent, tmp_path, {"sub/pyproject.toml": PROJECT, "sub/uv.lock": lock})
    stage(agent, code, "sub/pyproject.toml", python_packages=["tinything"])
    assert ran(agent) == "second\n"
    assert agent.path(RUN, "venv/bin/tiny").exists()


def _add_script(wheel: Path, name: str, text: str) -> None:
    with zipfile.ZipFile(wheel, "a") as archive:
        info = zipfile.ZipInfo(f"uv-0.8.1.data/scripts/{name}")
        info.external_attr = 0o100755 << 16
        archive.writestr(info, text)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("pyproject.toml", "[tool.x]\n", "no table [project]"),
        ("pyproject.toml", '[project]\ndynamic = ["dependencies"]\n', "are dynamic"),
        ("pyproject.toml", "[project\n", "is not TOML"),
        ("pylock.toml", 'lock-version = "2.0"\n', "lock of version 1"),
        (
            "pylock.toml",
            'lock-version = "1.0"\n[[packages]]\nname = "a"\ndirectory = {path = "."}\n',
            "no version with hashes",
        ),
        ("uv.lock", "version = 1\n", "pyproject.toml: there is no such file"),
    ],
)
def test_a_project_that_cannot_be_read_is_refused_with_what_is_missing(
    agent: LocalAgent, tmp_path: Path, name: str, text: str, words: str
) -> None:
    found = refusal(agent, unpack(agent, tmp_path, {name: text}), name)
    assert found.code == "requirements"
    assert f"{words}" in str(found)


# ── conda ───────────────────────────────────────────────────────────────────────────────────────

PLAIN = """
name: x  # of the project
channels: [conda-forge]
dependencies:
  - python=3
  - pip
  - pip:
    - {}
"""


@pytest.mark.usefixtures("hashes")
def test_an_environment_of_python_and_pip_needs_no_conda(agent: LocalAgent, tmp_path: Path) -> None:
    files = {"environment.yml": PLAIN.format("-r more.txt"), "more.txt": "localthing<2  # old\n"}
    stage(agent, unpack(agent, tmp_path, files), "environment.yml")
    assert ran(agent) == "first\n"


@pytest.mark.parametrize(
    "asked", ["- numpy", "- python=2.7", "- {x: y}", "- pip:\n    - a\n  - cudatoolkit=11"]
)
def test_packages_of_conda_are_refused_where_nothing_can_install_them(
    agent: LocalAgent, tmp_path: Path, asked: str
) -> None:
    text = f"dependencies:\n  - python\n  {asked}\n"
    found = refusal(agent, unpack(agent, tmp_path, {"environment.yaml": text}), "environment.yaml")
    assert found.code == "requirements"
    for way in ("micromamba", "environment.image", "requirements.txt"):
        assert way in str(found)


MICROMAMBA = """#!/usr/bin/python3
# micromamba as it takes its words: it installs into an environment that is there, and nowhere else.
import json, os, sys, venv
words = sys.argv[1:]
assert words[:4] == ["install", "--yes", "--no-rc", "--prefix"], words
prefix, option, path = words[4:]
assert option == "--file" and open(path).read().startswith("dependencies:"), words
assert os.listdir(prefix) == ["conda-meta"] and os.listdir(prefix + "/conda-meta") == ["history"]
if "fails" in open(path).read():
    print("error    libmamba Could not solve for environment specs")
    sys.exit(1)
venv.create(prefix, with_pip=False)
[library] = [name for name in os.listdir(prefix + "/lib") if name.startswith("python3.")]
with open(prefix + "/lib/" + library + "/site-packages/localthing.py", "w") as file:
    file.write("words = 'of conda'\\n")
with open(prefix + "/found.json", "w") as file:
    json.dump({"uid": os.getuid(), "token": "TOKEN" in os.environ}, file)
"""


def test_packages_of_conda_are_installed_by_a_program_of_the_node_as_a_build_account(
    agent: LocalAgent, tmp_path: Path, wheels: Path
) -> None:
    folder = agent.root.parent / "bin"
    folder.mkdir(mode=0o755)
    (folder / "micromamba").write_text(MICROMAMBA)
    (folder / "micromamba").chmod(0o755)
    assert isinstance(agent.environment, dict)
    agent.environment["PATH"] = f"{folder}:{agent.environment['PATH']}"
    asked = "dependencies:\n  - python=3.9\n  - cudatoolkit=11\n"
    stage(agent, unpack(agent, tmp_path, {"environment.yml": asked}), "environment.yml")
    assert ran(agent) == "of conda\n"
    (environment,) = environments(agent)
    found = json.loads((environment / "found.json").read_text())
    if os.geteuid() == 0:
        assert pwd.getpwuid(found["uid"]).pw_name.startswith("baseload-build")
        assert not found["token"]
    link = agent.path(RUN, "venv/bin/python").readlink()
    assert str(link) == f"{environment}/bin/python"
    wrong = unpack(agent, tmp_path / "b", {"environment.yml": asked + "  - fails\n"})
    refused = refusal(agent, wrong, "environment.yml", run_id="job-w-1-1")
    assert "Could not solve for environment specs" in str(refused)
    shutil.rmtree(folder)


def test_files_that_take_long_to_read_are_refused_before_they_are_read(
    agent: LocalAgent, tmp_path: Path
) -> None:
    key = ".".join("a" * 100_000)
    for number, text in enumerate((f"{key} = 1\n", f"x = {{ {key} = 1 }}\n")):
        code = unpack(agent, tmp_path / str(number), {"pyproject.toml": text})
        refused = refusal(agent, code, "pyproject.toml")
        assert "pyproject.toml: has a line with more than 200 dots" in str(refused)


def test_a_file_in_a_coding_that_may_hide_options_is_refused(tmp_path: Path) -> None:
    for coding in ("utf-7", "rot13", "no-such-thing", "iso8859-1", "iso8859-15"):
        text = f"\n# -*- coding: {coding} -*-\n+AC0-r /etc/passwd\n".encode()
        with pytest.raises(RefusedError, match=f"more.txt: coding: {coding}: is none of utf-8,"):
            list(pip_lines.named_files("more.txt", text))
    for coding in ("UTF8", "cp1252"):
        text = f"# coding={coding}\n-r other.txt  # \xe4\n".encode(coding)
        found = pip_lines.named_files("more.txt", text)
        assert list(found) == [("other.txt", "more.txt, line 2")]


def test_a_refusal_is_short_and_text_whatever_it_names(agent: LocalAgent, tmp_path: Path) -> None:
    code = unpack(agent, tmp_path, {"requirements.txt": f"./{'a' * 1_000_000}\n"})
    staging = agent.begin("stage", run_id=RUN, code_sha256=code, requirements="requirements.txt",
                          spec=spec(IMPORTS))  # fmt: skip
    said = staging.communicate(timeout=60)[0]
    found = reading.read(said, Nothing, reading.Speaker("nod-1", "stage"))
    assert isinstance(found, reading.Refusal)
    assert found.message.startswith("environment.requirements: requirements.txt, line 1: ./aaa")
    assert len(found.message) < 2000


def test_all_files_together_have_a_bound(agent: LocalAgent, tmp_path: Path) -> None:
    padding = "# is said\n" * 900_000
    files = {"requirements.txt": f"-r more.txt\n{padding}", "more.txt": padding}
    refused = refusal(agent, unpack(agent, tmp_path / "code", files), "requirements.txt")
    assert "more.txt: has more than 16 MiB" in str(refused)
