"""What is put in place before a run: code that was checked, packages built once, room on disk."""

import contextlib
import grp
import hashlib
import io
import json
import os
import pwd
import re
import signal
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

from activities.agent.host import process_tree, processes
from activities.agent.packages import build_accounts
from tests.activities import archives
from tests.activities.agent.agent_process import LocalAgent, Refused, spec
from tests.activities.archives import Change, file, hard_link, special, symlink, zeros
from tests.activities.waiting import wait_for

RUN = "job-s-0-1"

HOSTILE: dict[str, tuple[Change, ...]] = {
    "parent": (file("../outside"),),
    "parent in the middle": (file("a/../../outside"),),
    "absolute": (file("/tmp/outside"),),
    "link out": (symlink("a", "../../outside"),),
    "absolute link": (symlink("a", "/etc/passwd"),),
    "through a link": (symlink("a", "."), file("a/b")),
    "a file over a link": (symlink("a", "b"), file("a")),
    "hard link out": (hard_link("a", "../outside"),),
    "hard link to a link": (symlink("a", "b"), file("b"), hard_link("c", "a")),
    "hard link through links": (
        file("sub/deep/x"),
        symlink("one", "sub/deep"),
        symlink("sub/deep/two", "../.."),
        hard_link("c", "one/two/sub/deep/x"),
    ),
    "links that leave together": (
        file("sub/deep/x"),
        symlink("one", "sub/deep"),
        symlink("two", "one/../../../outside"),
    ),
    "device": (special("a", tarfile.CHRTYPE),),
    "pipe": (special("a", tarfile.FIFOTYPE),),
}


def unpack(agent: LocalAgent, path: Path, sha256: str, **limits: int) -> None:
    agent.call("unpack_code", sha256=sha256, archive=str(path), **limits)


def everything_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_code_is_unpacked_once_and_found_again(agent: LocalAgent, tmp_path: Path) -> None:
    path, sha256 = archives.archive(
        tmp_path, file("run.sh", b"#!/bin/sh\n", 0o755), file("lib/a.py"), symlink("b", "lib/a.py")
    )
    assert agent.call("has_code", sha256=sha256)["present"] is False
    unpack(agent, path, sha256)
    assert agent.call("has_code", sha256=sha256)["present"] is True
    unpack(agent, path, sha256)
    code = agent.root / "code" / sha256
    assert (code / "b").read_bytes() == b"content"
    assert (code / "run.sh").stat().st_mode & 0o777 == 0o755
    assert not path.exists()


@pytest.mark.parametrize("members", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_archive_is_refused_with_nothing_written(
    agent: LocalAgent, tmp_path: Path, members: tuple[Change, ...]
) -> None:
    path, sha256 = archives.archive(tmp_path, file("harmless"), *members)
    agent.call("prepare", exclusive=False, authorized_key="", peers=[])
    before = everything_below(agent.root.parent)
    with pytest.raises(Refused) as caught:
        unpack(agent, path, sha256)
    assert caught.value.code == "unsafe-archive"
    after = everything_below(agent.root.parent)
    assert after - before <= {f"root/code/{sha256}.lock"}
    assert not Path("/tmp/outside").exists()


def test_an_archive_that_unpacks_too_large_is_refused_with_nothing_written(
    agent: LocalAgent, tmp_path: Path
) -> None:
    path, sha256 = archives.archive(tmp_path, file("harmless"), zeros("bomb", 200_000_000))
    assert path.stat().st_size < 1_000_000
    with pytest.raises(Refused) as caught:
        unpack(agent, path, sha256, max_bytes=100_000_000)
    assert caught.value.code == "archive-too-large"
    assert everything_below(agent.root / "code") == {f"{sha256}.lock"}


def test_an_archive_of_too_many_files_is_refused(agent: LocalAgent, tmp_path: Path) -> None:
    members = [file(f"f{number}", b"") for number in range(101)]
    path, sha256 = archives.archive(tmp_path, *members)
    with pytest.raises(Refused) as caught:
        unpack(agent, path, sha256, max_files=100)
    assert caught.value.code == "archive-too-large"


@pytest.mark.parametrize("keep", [0, 10, 200])
def test_a_broken_archive_is_refused(agent: LocalAgent, tmp_path: Path, keep: int) -> None:
    whole, _ = archives.archive(tmp_path, file("a", os.urandom(4000)))
    cut = whole.read_bytes()[:keep]
    whole.write_bytes(cut)
    with pytest.raises(Refused) as caught:
        unpack(agent, whole, hashlib.sha256(cut).hexdigest())
    assert caught.value.code == "broken-archive"


def test_an_archive_with_another_hash_is_refused(agent: LocalAgent, tmp_path: Path) -> None:
    path, _ = archives.archive(tmp_path, file("a"))
    with pytest.raises(Refused) as caught:
        unpack(agent, path, "0" * 64)
    assert caught.value.code == "hash-mismatch"


def test_each_run_writes_in_its_own_copy_of_the_code(agent: LocalAgent, tmp_path: Path) -> None:
    path, sha256 = archives.archive(tmp_path, file("given", b"as uploaded"))
    unpack(agent, path, sha256)
    for run_id in ("job-one-0-1", "job-two-0-1"):
        command = spec("cat given; echo x >given")
        agent.call("stage", run_id=run_id, code_sha256=sha256, spec=command)
        agent.call("start", run_id=run_id)
        agent.exit_of(run_id)
        assert agent.path(run_id, "log").read_bytes() == b"as uploaded"


@pytest.mark.parametrize("time_", ["1e300", "nan", "-inf", "-1e18"])
def test_files_with_an_impossible_time_are_unpacked(
    agent: LocalAgent, tmp_path: Path, time_: str
) -> None:
    def dated(tar: tarfile.TarFile) -> None:
        member = tarfile.TarInfo("a")
        member.pax_headers = {"mtime": time_}
        tar.addfile(member)

    path, sha256 = archives.archive(tmp_path, dated)
    agent.call("unpack_code", sha256=sha256, archive=str(path))
    assert (agent.root / "code" / sha256 / "a").exists()


def test_files_without_a_time_have_that_of_their_staging_and_others_keep_theirs(
    agent: LocalAgent, tmp_path: Path
) -> None:
    def dated(tar: tarfile.TarFile) -> None:
        member = tarfile.TarInfo("dated")
        member.mtime = 1_000_000_000
        tar.addfile(member, io.BytesIO())

    path, sha256 = archives.archive(tmp_path, file("a"), file("folder/b"), dated)
    unpack(agent, path, sha256)
    before_s = int(time.time())
    agent.call("stage", run_id=RUN, code_sha256=sha256, spec=spec("true"))
    work = agent.path(RUN, "work")
    times = [(work / name).stat().st_mtime for name in ("a", "folder/b", "dated")]
    assert before_s <= times[0] == times[1] <= time.time()
    assert times[2] == 1_000_000_000


def test_code_that_is_not_there_is_said(agent: LocalAgent) -> None:
    with pytest.raises(Refused) as caught:
        agent.call("stage", run_id=RUN, code_sha256="0" * 64, spec=spec("true"))
    assert caught.value.code == "no-code"
    assert agent.look(RUN)["state"] == "unknown"


def test_staging_twice_keeps_what_was_staged_first(agent: LocalAgent) -> None:
    agent.stage(RUN, "echo first")
    agent.path(RUN, "work/mark").touch()
    agent.stage(RUN, "echo second")
    assert agent.path(RUN, "work/mark").exists()
    assert agent.document(RUN, "spec.json")["command"] == "echo first"


def test_too_little_disk_is_said_before_anything_is_done(agent: LocalAgent) -> None:
    with pytest.raises(Refused) as caught:
        agent.call("stage", run_id=RUN, disk_size_gb=10_000_000, spec=spec("true"))
    assert caught.value.code == "disk-full"
    assert not agent.path(RUN, "work").exists()


# A build backend within its own package: what pip runs of a package that it has to build.
BACKEND = """
import json, os, subprocess, zipfile
def build_wheel(folder, config_settings=None, metadata_directory=None):
    subprocess.Popen(["sh", "-c", "sleep 6300 & exec sleep 6301"],
                     start_new_session=True, stdout=-3, stderr=-3)
    found = {"ids": os.getresuid() + os.getresgid(), "groups": os.getgroups(),
             "variables": dict(os.environ)}
    wheel = zipfile.ZipFile(os.path.join(folder, "builtthing-1.0-py3-none-any.whl"), "w")
    info = "builtthing-1.0.dist-info"
    wheel.writestr("found.json", json.dumps(found))
    wheel.writestr("builtthing-1.0.data/data/baseload-complete", "not ours")
    wheel.writestr(info + "/METADATA", "Metadata-Version: 2.1\\nName: builtthing\\nVersion: 1.0\\n")
    wheel.writestr(info + "/WHEEL",
                   "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
    wheel.writestr(info + "/RECORD", "")
    wheel.close()
    if os.path.exists("fail"):
        raise SystemExit("as asked")
    return "builtthing-1.0-py3-none-any.whl"
"""


def write_source(folder: Path, *more: str) -> None:
    """A package that has to be built, by itself."""
    project = b"[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
    members = {"pyproject.toml": project, "backend.py": BACKEND.encode()}
    members.update((name, b"") for name in more)
    members["PKG-INFO"] = b"Metadata-Version: 2.1\nName: builtthing\nVersion: 1.0\n"
    with tarfile.open(folder / "builtthing-1.0.tar.gz", "w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(f"builtthing-1.0/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user: run as root")
def test_what_a_package_runs_to_be_built_is_not_root_and_leaves_nothing_of_its_own(
    agent: LocalAgent, wheels: Path
) -> None:
    write_source(wheels)
    agent.call("stage", run_id=RUN, owned=True, python_packages=["builtthing"], spec=spec("true"))
    (environment,) = [path for path in (agent.root / "packages/owned").iterdir() if path.is_dir()]
    (told,) = environment.glob("lib/python*/site-packages/found.json")
    found = json.loads(told.read_text())
    account = pwd.getpwuid(found["ids"][0])
    assert re.fullmatch(r"baseload-build-\d+", account.pw_name)
    assert found["ids"] == [account.pw_uid] * 3 + [account.pw_gid] * 3
    assert [grp.getgrgid(group).gr_name for group in found["groups"]] == ["baseload-owned"]
    assert "TOKEN" not in found["variables"]
    assert found["variables"]["HOME"] != str(wheels.parent / "home")
    assert not Path(found["variables"]["HOME"]).exists()
    assert command_lines("sleep 630") == []
    for path in (environment, *environment.rglob("*")):
        status = path.lstat()
        assert (status.st_uid, status.st_gid) == (0, 0), path
        assert path.is_symlink() or not status.st_mode & 0o022, path
    assert (environment / "baseload-complete").read_text() == "builtthing"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user: run as root")
def test_a_build_that_fails_leaves_no_process_and_no_set_that_says_it_is_whole(
    agent: LocalAgent, wheels: Path
) -> None:
    write_source(wheels, "fail")
    for _ in range(2):
        with pytest.raises(Refused, match="as asked") as caught:
            agent.call(
                "stage", run_id=RUN, owned=True, python_packages=["builtthing"], spec=spec("true")
            )
        assert caught.value.code == "packages"
        assert command_lines("sleep 630") == []
        assert [path for path in (agent.root / "packages/owned").iterdir() if path.is_dir()] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user: run as root")
def test_only_what_shares_an_accounts_number_in_somebodys_container_outlives_its_build() -> None:
    uid = 64203
    sleeping = ["setpriv", f"--reuid={uid}", "--clear-groups", "sleep"]
    theirs = subprocess.Popen(["unshare", "--pid", "--fork", *sleeping, "6303"])
    ours = subprocess.Popen([*sleeping, "6304"])
    try:
        wait_for(lambda: _sleep("6303") and _sleep("6304"), "both to sleep")
        build_accounts.end_processes(uid)
        assert command_lines("sleep 6304") == []
        assert command_lines("sleep 6303") != []
    finally:
        process_tree.send(
            processes.descendants({theirs.pid}, processes.everything()), signal.SIGKILL
        )
        for process in (theirs, ours):
            process.kill()
            process.wait()


def test_a_mark_that_is_not_ours_makes_no_set_whole(agent: LocalAgent, wheels: Path) -> None:
    agent.call(
        "stage", run_id="job-one-0-1", owned=True, python_packages=["tinything"], spec=spec("tiny")
    )
    (environment,) = [path for path in (agent.root / "packages/owned").iterdir() if path.is_dir()]
    (environment / "baseload-complete").unlink()
    (environment / "baseload-complete").symlink_to(environment / "pyvenv.cfg")
    (environment / "bin" / "tiny").unlink()
    agent.call("stage", run_id=RUN, owned=True, python_packages=["tinything"], spec=spec("tiny"))
    assert (environment / "bin" / "tiny").exists()
    assert (environment / "baseload-complete").read_text() == "tinything"
    assert "tinything" not in (environment / "pyvenv.cfg").read_text()


def test_an_agent_that_is_not_root_builds_as_its_own_user(agent: LocalAgent, wheels: Path) -> None:
    agent.become_ordinary()
    for path in (wheels.parent, *wheels.parent.rglob("*")):
        os.chown(path, agent.user or -1, -1)
    agent.call("stage", run_id=RUN, owned=True, python_packages=["tinything"], spec=spec("tiny"))
    agent.call("start", run_id=RUN)
    assert agent.exit_of(RUN)["exit_code"] == 0


def _sleep(seconds: str) -> bool:
    return any(line.startswith("sleep") for line in command_lines(f"sleep {seconds}"))


def command_lines(word: str) -> list[str]:
    """Those of living processes that contain a word."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in found if word in line]


def test_packages_are_built_once_for_two_runs_at_once(agent: LocalAgent, wheels: Path) -> None:
    runs = ("job-one-0-1", "job-two-0-1")
    staging = [
        agent.begin(
            "stage", run_id=run_id, owned=True, python_packages=["tinything"], spec=spec("tiny")
        )
        for run_id in runs
    ]
    progress = []
    for process in staging:
        assert process.stderr is not None
        progress.append(process.stderr.read().decode())
        agent.answer(process)
    assert sum("installing 1 package" in told for told in progress) == 1
    for run_id in runs:
        agent.call("start", run_id=run_id)
        agent.exit_of(run_id)
        assert agent.path(run_id, "log").read_bytes() == b"tiny\n"
    environments = [path for path in (agent.root / "packages/owned").iterdir() if path.is_dir()]
    assert len(environments) == 1


def test_a_build_of_packages_that_was_cut_off_is_begun_anew(
    agent: LocalAgent, wheels: Path
) -> None:
    agent.call(
        "stage", run_id="job-one-0-1", owned=True, python_packages=["tinything"], spec=spec("tiny")
    )
    (environment,) = [path for path in (agent.root / "packages/owned").iterdir() if path.is_dir()]
    (environment / "baseload-complete").unlink()
    (environment / "bin" / "tiny").unlink()
    agent.call("stage", run_id=RUN, owned=True, python_packages=["tinything"], spec=spec("tiny"))
    agent.call("start", run_id=RUN)
    assert agent.exit_of(RUN)["exit_code"] == 0


def test_packages_that_cannot_be_installed_are_said_in_pips_words(
    agent: LocalAgent, wheels: Path
) -> None:
    with pytest.raises(Refused, match="no-such-thing") as caught:
        agent.call(
            "stage", run_id=RUN, owned=True, python_packages=["no-such-thing"], spec=spec("true")
        )
    assert caught.value.code == "packages"
    assert agent.look(RUN)["state"] == "unknown"


def test_a_package_that_looks_like_an_option_is_not_one(agent: LocalAgent, wheels: Path) -> None:
    with pytest.raises(Refused) as caught:
        agent.call("stage", run_id=RUN, owned=True, python_packages=["--help"], spec=spec("true"))
    assert caught.value.code == "packages"


def test_unused_caches_are_pruned_and_used_ones_kept(
    agent: LocalAgent, wheels: Path, tmp_path: Path
) -> None:
    kept, kept_sha256 = archives.archive(tmp_path, file("a", b"kept"))
    gone, gone_sha256 = archives.archive(tmp_path, file("a", b"gone"))
    unpack(agent, kept, kept_sha256)
    unpack(agent, gone, gone_sha256)
    agent.call("stage", run_id=RUN, owned=True, python_packages=["tinything"], spec=spec("tiny"))
    answer = agent.call("prune", keep_code=[kept_sha256], max_age_s=-1)
    assert answer["removed"] == [f"code/{gone_sha256}"]
    agent.call("end", run_id=RUN)
    answer = agent.call("prune", keep_code=[kept_sha256], max_age_s=-1)
    assert [path.partition("/")[0] for path in answer["removed"]] == ["packages"]
    assert agent.call("has_code", sha256=kept_sha256)["present"] is True


def test_apt_packages_without_root_are_refused(agent: LocalAgent) -> None:
    agent.become_ordinary()
    asked = {"apt_packages": ["no-such-package"], "spec": spec("true")}
    for allowed in (True, False):
        with pytest.raises(Refused) as caught:
            agent.call("stage", run_id=RUN, allows_apt_packages=allowed, **asked)
        assert caught.value.code == "apt-needs-root"


APT = """#!/bin/sh
# apt-get as it takes its words: NAME- removes NAME, and an unknown name is an expression.
state=%s; removes=yes; expressions=yes
[ "$1" = install ] || exit 0
for word; do
  case $word in
    --no-remove) removes=no ;;
    APT::Cmd::Pattern-Only=true) expressions=no ;;
    *-) [ $removes = yes ] && rm -f "$state/${word%%-}" ;;
    -*|install|*=*) ;;
    *) if [ -e "$state/known-$word" ] || [ $expressions = yes ]; then touch "$state/$word"; fi ;;
  esac
done
"""
APT_CACHE = """#!/bin/sh
for word; do [ -e "%s/known-$word" ] && echo "Package: $word"; done; exit 0
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root installs packages: run as root")
def test_apt_packages_are_exact_names_and_remove_nothing(node_root: Path, tmp_path: Path) -> None:
    for name, text in (("apt-get", APT), ("apt-cache", APT_CACHE)):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(text % tmp_path)
        program.chmod(0o755)
    for name in ("known-made-up-package", "made-up-server"):
        (tmp_path / name).touch()
    agent = LocalAgent(node_root, {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"})
    asked = {"allows_apt_packages": True, "spec": spec("true")}
    for name in ("made-up-server-", "made.+package", "made-up-package=1", "made-up-package:i386"):
        with pytest.raises(Refused) as caught:
            agent.call("stage", run_id=RUN, apt_packages=[name], **asked)
        assert caught.value.code == "apt"
    agent.call("stage", run_id=RUN, apt_packages=["made-up-package"], **asked)
    found = sorted(path.name for path in tmp_path.iterdir() if path.is_file())
    assert found == ["known-made-up-package", "made-up-package", "made-up-server"]
