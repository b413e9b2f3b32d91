"""What is sealed opens only under its key, about its own thing, unaltered."""

import re
import shutil
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from activities.db.session import Database
from activities.db.tables import KeyFingerprint
from activities.secrets.key_fingerprints import claim_keys
from activities.secrets.sealing import (
    MasterKeyError,
    SealBrokenError,
    make_master_key,
    run_name_key,
    secret_box,
    site_box,
    site_key,
)
from activities.settings import StartRefusedError, settings


@pytest.fixture(autouse=True)
def keyed(home: Path) -> Path:
    make_master_key(settings().master_key_path)
    return home


def test_what_is_sealed_opens_again() -> None:
    sealed = secret_box("variables").seal(b"hunter2", b"job-1")
    assert secret_box("variables").open(sealed, b"job-1") == b"hunter2"
    assert b"hunter2" not in sealed


def test_a_value_moved_to_another_place_does_not_open() -> None:
    sealed = secret_box("variables").seal(b"hunter2", b"projects/prj-1/token")
    with pytest.raises(SealBrokenError):
        secret_box("variables").open(sealed, b"projects/prj-2/token")


@pytest.mark.parametrize("position", [0, 5, 20, -1])
def test_a_flipped_bit_is_noticed(position: int) -> None:
    sealed = bytearray(secret_box("variables").seal(b"hunter2", b"job-1"))
    sealed[position] ^= 1
    with pytest.raises(SealBrokenError):
        secret_box("variables").open(bytes(sealed), b"job-1")


def test_one_site_cannot_open_what_is_for_another() -> None:
    sealed = site_box("reg-1").seal(b"order", b"place")
    with pytest.raises(SealBrokenError):
        site_box("reg-2").open(sealed, b"place")
    with pytest.raises(SealBrokenError):
        secret_box("variables").open(sealed, b"place")


def test_a_site_with_its_own_key_needs_no_master_key(keyed: Path) -> None:
    sealed = site_box("reg-1").seal(b"order", b"place")
    own_key = site_key("reg-1").hex()
    shutil.rmtree(keyed / "keys")
    (keyed / "keys").mkdir()
    (keyed / "keys" / "site-reg-1.key").write_text(own_key)
    assert site_box("reg-1").open(sealed, b"place") == b"order"
    with pytest.raises(MasterKeyError, match="no master key"):
        site_box("reg-2")


def test_the_master_key_is_its_owners_alone_and_is_never_made_twice() -> None:
    path = settings().master_key_path
    first = path.read_text()
    make_master_key(path)
    assert path.read_text() == first
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_broken_master_key_says_where_it_is() -> None:
    path = settings().master_key_path
    path.write_text("not hex")
    with pytest.raises(MasterKeyError, match=str(path)):
        secret_box("variables")


def test_a_key_from_the_environment_beats_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    sealed = secret_box("variables").seal(b"hunter2", b"job-1")
    monkeypatch.setenv("BASELOAD_SECRETS_KEY", "ab" * 32)
    settings.cache_clear()
    with pytest.raises(SealBrokenError):
        secret_box("variables").open(sealed, b"job-1")


def test_a_value_of_another_kind_or_account_does_not_open() -> None:
    sealed = secret_box("answers", "acc-1").seal(b"hunter2", b"job-1")
    assert secret_box("answers", "acc-1").open(sealed, b"job-1") == b"hunter2"
    for kind, account_id in (("variables", "acc-1"), ("answers", "acc-2"), ("answers", "")):
        with pytest.raises(SealBrokenError):
            secret_box(kind, account_id).open(sealed, b"job-1")


def test_what_an_earlier_release_has_sealed_opens_as_well() -> None:
    # Its values do not say their key, and are bound to their name alone.
    master = bytes.fromhex("ab" * 32)
    settings().master_key_path.write_text(master.hex())
    key = HKDF(algorithm=SHA256(), length=32, salt=None, info=b"rows").derive(master)
    sealed = b"\x01" + b"n" * 12 + AESGCM(key).encrypt(b"n" * 12, b"hunter2", b"job-1")
    assert secret_box("variables").open(sealed, b"job-1") == b"hunter2"
    with pytest.raises(SealBrokenError):
        secret_box("variables").open(sealed, b"job-2")


def test_the_master_key_is_rotated_by_a_new_first_line(keyed: Path) -> None:
    path = settings().master_key_path
    earlier = path.read_text()
    in_row = secret_box("variables").seal(b"hunter2", b"job-1")
    for_site = site_box("reg-1").seal(b"order", b"place")
    path.write_text("cd" * 32 + "\n" + earlier)
    assert secret_box("variables").open(in_row, b"job-1") == b"hunter2"
    assert site_box("reg-1").open(for_site, b"place") == b"order"
    newer = secret_box("variables").seal(b"hunter3", b"job-1")
    path.write_text("cd" * 32)
    assert secret_box("variables").open(newer, b"job-1") == b"hunter3"
    with pytest.raises(SealBrokenError):
        secret_box("variables").open(in_row, b"job-1")


def test_a_rotation_leaves_the_keys_that_machines_know() -> None:
    path = settings().master_key_path
    before = (site_key("reg-1"), run_name_key("reg-1"))
    path.write_text("cd" * 32 + "\n" + path.read_text())
    assert (site_key("reg-1"), run_name_key("reg-1")) == before


def claimed(migrated: Database) -> None:
    """A start of a process; what it records is committed."""
    with migrated.write() as session:
        claim_keys(session, settings())


def test_an_installation_knows_its_rotated_key_again(migrated: Database) -> None:
    path = settings().master_key_path
    earliest = path.read_text()
    claimed(migrated)
    path.write_text("cd" * 32 + "\n" + earliest)
    claimed(migrated)
    path.write_text("ef" * 32 + "\n" + "cd" * 32 + "\n" + earliest)
    claimed(migrated)
    path.write_text("ef" * 32 + "\n" + earliest)
    claimed(migrated)
    path.write_text("cd" * 32 + "\n" + earliest)
    with pytest.raises(StartRefusedError, match=r"^master key"):
        claimed(migrated)


def test_a_start_without_the_earliest_key_is_refused(migrated: Database) -> None:
    path = settings().master_key_path
    earliest = path.read_text()
    path.write_text("cd" * 32 + "\n" + earliest)
    claimed(migrated)
    path.write_text("cd" * 32 + "\n")
    with pytest.raises(StartRefusedError) as refused:
        claimed(migrated)
    assert re.search(
        rf"^earliest master key: .* has the fingerprint \w+; found \w+ at the end of {path}; "
        r".*restore it from a copy",
        str(refused.value),
    )
    path.write_text("cd" * 32 + "\n" + earliest)
    claimed(migrated)


def test_a_start_with_the_keys_in_another_order_is_refused(migrated: Database) -> None:
    path = settings().master_key_path
    earliest = path.read_text()
    path.write_text("cd" * 32 + "\n" + earliest)
    claimed(migrated)
    path.write_text(earliest + "cd" * 32 + "\n")
    with pytest.raises(StartRefusedError, match="key 1 of 2 there has it: move it to the end"):
        claimed(migrated)
    path.write_text("ef" * 32 + "\n" + "cd" * 32 + "\n" + earliest)
    claimed(migrated)


def test_an_installation_of_an_earlier_release_records_its_earliest_key(
    migrated: Database,
) -> None:
    path = settings().master_key_path
    earliest = path.read_text()
    claimed(migrated)
    with migrated.write() as session:  # The release before has recorded two keys alone.
        session.delete(session.get_one(KeyFingerprint, "earliest master key"))
    path.write_text("cd" * 32 + "\n" + earliest)
    claimed(migrated)
    path.write_text("cd" * 32 + "\n")
    with pytest.raises(StartRefusedError, match=r"^earliest master key"):
        claimed(migrated)
