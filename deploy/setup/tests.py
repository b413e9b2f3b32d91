"""Installs what only the tests need: Debian packages, the time-skipping Temporal server, tctl."""

import os
import shutil
import tempfile
from pathlib import Path

from console import CACHE, CHECKOUT, SetupError, locked, main_of, need_disk, run, say
from sums import check_folder
from tctl import LINK, set_up_tctl

TEST_SERVER = CACHE / "temporal-test-server-1.38.0"
PIN = CHECKOUT / "deploy" / "test-server" / "pom.xml"
SUMS = PIN.with_name("jars.sha256")
PACKAGES = {
    "openssh-server": "/usr/sbin/sshd",
    "openssh-client": "/usr/bin/ssh-keygen",
    "podman": "/usr/bin/podman",
    "runc": "/usr/sbin/runc",
    "crun": "/usr/bin/crun",
    "docker-registry": "/usr/bin/docker-registry",
    "curl": "/usr/bin/curl",
    "iproute2": "/usr/sbin/ip",
    "nftables": "/usr/sbin/nft",
    "procps": "/usr/bin/pgrep",
    "postgresql": "/usr/lib/postgresql/*/bin/initdb",
    "systemd-sysv": "/usr/sbin/init",
    "dbus": "/usr/bin/dbus-daemon",
    "nfs-ganesha": "/usr/bin/ganesha.nfsd",
    "nfs-ganesha-vfs": "/usr/lib/*/ganesha/libfsalvfs.so",
    "rpcbind": "/usr/sbin/rpcbind",
    "libnfs-utils": "/usr/bin/nfs-ls",
    "nfs-common": "/usr/sbin/showmount",
    "samba": "/usr/sbin/smbd",
    "smbclient": "/usr/bin/smbclient",
    "cifs-utils": "/usr/sbin/mount.cifs",
    "avahi-daemon": "/usr/sbin/avahi-daemon",
    "avahi-utils": "/usr/bin/avahi-resolve",
    "miniupnpd-nftables": "/usr/sbin/miniupnpd",
    "live-build": "/usr/bin/lb",
    "shellcheck": "/usr/bin/shellcheck",
    "python3-torch": "/usr/lib/python3/dist-packages/torch/__init__.py",
    "python3-venv": "/usr/lib/python3/dist-packages/../../python3*/venv/__init__.py",
}
WRAPPER = """\
#!/bin/sh
exec java -XX:TieredStopAtLevel=1 -cp "{folder}/lib/*" io.temporal.testserver.TestServer "$@"
"""


def set_up_tests() -> None:
    """Install what is missing; a line names what cannot be installed, whose tests are skipped."""
    _packages()
    _test_server()
    _tctl()


def _tctl() -> None:
    """The program that the runbooks are tested with."""
    if LINK.exists():
        return
    try:
        set_up_tctl()
    except SetupError as error:
        say(f"no tctl, so the runbooks are not tested: {error}")


def _packages() -> None:
    missing = [name for name, path in PACKAGES.items() if not _exists(path)]
    if not missing:
        return
    if shutil.which("apt-get") is None or os.getuid() != 0:
        say(f"some tests will be skipped. As root: apt-get install {' '.join(missing)}")
        return
    with locked(CACHE, "packages"):
        say(f"installing {' '.join(missing)}")
        quiet = {"DEBIAN_FRONTEND": "noninteractive"}
        run(["apt-get", "update", "-q"], "apt-get update", environment=quiet)
        run(
            ["apt-get", "install", "-qy", "--no-install-recommends", *missing],
            "installing Debian packages",
            environment=quiet,
        )


def _exists(pattern: str) -> bool:
    return any(Path("/").glob(pattern.removeprefix("/")))


def _test_server() -> None:
    if TEST_SERVER.exists():
        return
    if not shutil.which("mvn") or not shutil.which("java"):
        _java()
    with locked(CACHE, TEST_SERVER.name):
        if TEST_SERVER.exists():
            return
        need_disk(CACHE, 0.5, "the time-skipping test server")
        say("fetching the time-skipping Temporal test server")
        with tempfile.TemporaryDirectory(dir=CACHE, prefix="build-") as building:
            folder = Path(building) / "server"
            run(
                [
                    "mvn", "-q", "-B", "--strict-checksums", "-f", PIN,
                    "dependency:copy-dependencies",
                    f"-DoutputDirectory={folder}/lib", "-DincludeScope=runtime",
                ],
                "fetching the test server",
                advice="Maven needs its repository, or a mirror of it in ~/.m2/settings.xml",
            )  # fmt: skip
            check_folder(folder / "lib", SUMS, "Maven's repository")
            wrapper = folder / "temporal-test-server"
            wrapper.write_text(WRAPPER.format(folder=TEST_SERVER))
            wrapper.chmod(0o755)
            folder.chmod(0o755)
            folder.replace(TEST_SERVER)


def _java() -> None:
    if shutil.which("apt-get") is None or os.getuid() != 0:
        raise SetupError(
            "no Java for the time-skipping test server. As root: apt-get install maven"
        )
    say("installing maven and a Java runtime")
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    run(["apt-get", "update", "-q"], "apt-get update", environment=quiet)
    packages = ["maven", "default-jre-headless"]
    run(
        ["apt-get", "install", "-qy", "--no-install-recommends", *packages],
        "installing",
        environment=quiet,
    )


if __name__ == "__main__":
    main_of(set_up_tests)
