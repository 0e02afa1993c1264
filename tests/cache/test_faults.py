"""Disks that are full, read-only, forbidden, damaged or strange: one warning, and on it goes."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from neuron_compile.cache import layout, publish, store, upkeep
from neuron_compile.cache.layout import quarantine_path, walk
from neuron_compile.cache.lock import LockState
from neuron_compile.cache.once import Built, get_or_build
from neuron_compile.cache.store import Hit, Miss, Store
from tests.cache.entries import TARGET, entry_bytes, key_of, store_at
from tests.cache.processes import run
from tests.cache.worker import KEY

WHOLE = entry_bytes(KEY, "payload")

# `unshare` gives mounts that vanish with the process; it needs privileges that some machines
# withhold.
UNSHARE = shutil.which("unshare")
MAY_MOUNT = (
    UNSHARE is not None
    and subprocess.run([UNSHARE, "-m", "true"], capture_output=True, check=False).returncode == 0
)
needs_mounts = pytest.mark.skipif(
    not MAY_MOUNT, reason="may not mount here; the tests without mounts hold the same behaviour"
)


def refused_write(answer) -> None:
    """What a cache that cannot be written looks like: compiled, not stored, not found again."""
    assert answer.code == 0, answer.log
    assert answer.value["built"]
    assert not answer.value["stored"]


def assert_one_warning(answer, *parts: str) -> None:
    """One for reading, locking and writing together, which says what, where, why, what to do."""
    assert len(answer.warnings) == 1, answer.log
    assert [part for part in parts if part not in answer.log] == []
    labels = [line.split(":")[0].strip() for line in answer.log.splitlines() if line[:2] == "  "]
    assert labels == ["where", "why", "what to do"]


def test_disk_full_by_a_limit(tmp_path):
    answer = run("with_a_full_disk", tmp_path, 1000)
    refused_write(answer)
    assert answer.value["again"] == "absent"
    assert_one_warning(answer, "cannot write to the cache", str(tmp_path), "File too large")
    assert list(walk(tmp_path)) == []  # the unfinished file is gone


@needs_mounts
def test_disk_full_for_real(tmp_path):
    mount = f'mount -t tmpfs -o size=4k,mode=777 none "{tmp_path}" && exec "$@"'
    answer = run("plainly", tmp_path, before=[str(UNSHARE), "-m", "sh", "-c", mount, "sh"])
    refused_write(answer)
    assert_one_warning(answer, str(tmp_path), "No space left", "gc --max-size")


@needs_mounts
def test_read_only_file_system(tmp_path):
    store_at(tmp_path).put(key_of("other"), entry_bytes(key_of("other"), "x"))
    at = f'"{tmp_path}"'
    mount = f'mount --bind {at} {at} && mount -o remount,ro,bind {at} && exec "$@"'
    before = [str(UNSHARE), "-m", "sh", "-c", mount, "sh"]
    answer = run("plainly", tmp_path, before=before)
    refused_write(answer)
    assert answer.value["lock"] == LockState.UNAVAILABLE.value
    assert_one_warning(answer, "cannot write to the cache", str(tmp_path), "CACHE_DIR")
    # What is there can be used all the same.
    store_at(tmp_path).put(KEY, entry_bytes(KEY, "x" * 5000))
    answer = run("plainly", tmp_path, before=before)
    assert answer.value["again"] == "hit"
    assert not answer.value["built"]


def test_no_permission(tmp_path):
    root = tmp_path / "forbidden"
    root.mkdir()
    root.chmod(0)
    try:
        answer = run("without_permission", root)
    finally:
        root.chmod(0o700)
    refused_write(answer)
    assert answer.value["again"] == "unreadable"
    assert answer.value["lock"] == LockState.UNAVAILABLE.value
    assert_one_warning(answer, "cannot read the cache", str(root), "Permission denied", "CACHE_DIR")


def test_no_home(tmp_path):
    """In a container that runs under a number without an account there is no home at all."""
    if os.getuid() != 0:
        pytest.skip("only the superuser can become a user without an account; see test_location.py")
    with tempfile.TemporaryDirectory() as temporary:
        os.chmod(temporary, 0o777)  # pytest's own directories are closed to other users
        answer = run("without_home", tmp_path, temporary)
        assert answer.code == 0, answer.log
        root = Path(answer.value["root"])
        assert root == Path(temporary) / "neuron-compile-54321"
        assert root.stat().st_mode & 0o777 == 0o700
        assert answer.value["again"] == "hit"
        assert len(answer.warnings) == 1
        assert "no home directory" in answer.warnings[0]


def put_file(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("in the way")


def put_directory(path: Path) -> None:
    path.mkdir(parents=True)


def put_pipe(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)


def put_loop(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(path.name)


@pytest.mark.parametrize("level", range(6))
@pytest.mark.parametrize("obstacle", [put_file, put_directory, put_pipe, put_loop])
def test_something_else_stands_at_the_path(
    tmp_path: Path, caplog, level: int, obstacle: Callable[[Path], None]
):
    """From the root (level 5) down to the entry itself (level 0)."""
    place = store_at(tmp_path / "cache")
    entry = place.path(KEY)
    where = [entry, *entry.parents][level]
    obstacle(where)
    found = place.get(KEY)
    assert isinstance(found, Miss)
    stored = place.put(KEY, WHOLE)
    harmless = obstacle is put_directory and level > 0
    replaced = level == 0 and obstacle is not put_directory
    assert stored == (harmless or replaced)
    assert isinstance(place.get(KEY), Hit) == stored
    place.get(KEY)
    place.put(KEY, WHOLE)
    assert len({record.getMessage() for record in caplog.records}) == len(caplog.records) <= 2
    assert bool(caplog.records) != harmless


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, len(WHOLE) // 2, len(WHOLE) - 1])
def test_t131_a_truncated_entry_is_a_miss_and_is_replaced(tmp_path, caplog, size):
    place = store_at(tmp_path)
    place.put(KEY, WHOLE)
    place.path(KEY).write_bytes(WHOLE[:size])
    assert place.get(KEY) == Miss("damaged", "the checksum is wrong")
    assert place.get(KEY) == Miss("absent")  # it was set aside
    assert quarantine_path(place.path(KEY)).read_bytes() == WHOLE[:size]
    assert len(caplog.records) == 1
    assert place.put(KEY, WHOLE)
    assert isinstance(place.get(KEY), Hit)


def test_every_flipped_bit_is_seen(tmp_path):
    place = store_at(tmp_path)
    for index in range(0, len(WHOLE) * 8, 7):
        damaged = bytearray(WHOLE)
        damaged[index // 8] ^= 1 << index % 8
        place.put(KEY, bytes(damaged))
        assert isinstance(place.get(KEY), Miss)
    assert sorted(found.kind for found in walk(tmp_path)) == ["quarantined"]


def test_t141_an_entry_at_the_place_of_another_key_is_refused(tmp_path, caplog):
    place = store_at(tmp_path)
    other = key_of("another graph")
    place.put(KEY, entry_bytes(other, "wrong"))
    assert place.get(KEY) == Miss("misplaced", "it was made for another graph or other shapes")
    assert len(caplog.records) == 1
    same_graph = key_of("the graph", "input 0: float32[3]")
    place.put(same_graph, WHOLE)
    assert isinstance(place.get(same_graph), Miss)


def test_an_entry_whose_record_cannot_be_hashed_costs_a_compile_and_no_more(tmp_path, caplog):
    """A lone surrogate, which JSON can spell and UTF-8 cannot."""
    place = store_at(tmp_path)
    place.put(KEY, entry_bytes(replace(KEY, signature="\ud800"), "x"))
    found = get_or_build(place, KEY, lambda: WHOLE, lock_timeout=1)
    assert found == Built(
        WHOLE, Miss("misplaced", "it was made for another graph or other shapes"), stored=True
    )
    assert isinstance(place.get(KEY), Hit)
    assert len(caplog.records) == 1


def test_an_entry_that_the_check_cannot_read_is_a_miss_and_stays(tmp_path, caplog):
    """No memory to map a copy, say: the next process may have it."""

    def refuse(data: bytes) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    store_at(tmp_path).put(KEY, WHOLE)
    place = Store(tmp_path, TARGET, refuse)
    for _ in range(2):
        assert place.get(KEY) == Miss("unreadable", "Cannot allocate memory")
    assert [record.getMessage().splitlines() for record in caplog.records] == [
        [
            "a cached graph cannot be read and is compiled again",
            f"  where: {place.path(KEY)}",
            "  why: Cannot allocate memory",
        ]
    ]
    assert isinstance(store_at(tmp_path).get(KEY), Hit)


def test_a_damaged_entry_that_another_process_has_replaced_is_not_set_aside(tmp_path, monkeypatch):
    place = store_at(tmp_path)
    place.put(KEY, b"damaged")
    real = store._quarantine

    def replaced_meanwhile(path: Path, seen: os.stat_result) -> None:
        store_at(tmp_path).put(KEY, WHOLE)
        real(path, seen)

    monkeypatch.setattr(store, "_quarantine", replaced_meanwhile)
    assert isinstance(place.get(KEY), Miss)
    monkeypatch.undo()
    assert isinstance(place.get(KEY), Hit)


class Failing:
    """Stands for a function of `os`: raises `code` for paths ending in `suffix`, `times` times."""

    def __init__(
        self, real: Callable[..., object], code: int, suffix: str, times: int = 1000
    ) -> None:
        self.real, self.code, self.suffix, self.times = real, code, suffix, times

    def __call__(self, path, *arguments, **named):
        if str(path).endswith(self.suffix) and self.times > 0:
            self.times -= 1
            raise OSError(self.code, os.strerror(self.code), str(path))
        return self.real(path, *arguments, **named)


def test_t132_a_stale_handle_is_tried_again(tmp_path, monkeypatch, caplog):
    place = store_at(tmp_path)
    place.put(KEY, WHOLE)
    monkeypatch.setattr(store.os, "open", Failing(os.open, errno.ESTALE, ".neff", times=2))
    assert isinstance(place.get(KEY), Hit)
    monkeypatch.setattr(store.os, "open", Failing(os.open, errno.ESTALE, ".neff"))
    assert place.get(KEY).reason == "unreadable"
    assert place.get(KEY).reason == "unreadable"
    assert len(caplog.records) == 1


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES, errno.EMFILE, errno.ENXIO])
def test_an_entry_that_cannot_be_read_is_a_miss_and_stays(tmp_path, monkeypatch, code):
    place = store_at(tmp_path)
    place.put(KEY, WHOLE)
    monkeypatch.setattr(store.os, "open", Failing(os.open, code, ".neff"))
    assert place.get(KEY).reason == "unreadable"
    monkeypatch.undo()
    assert isinstance(place.get(KEY), Hit)


@pytest.mark.parametrize("code", [errno.EBUSY, errno.ESTALE, errno.EPERM, errno.EIO])
def test_t132_what_cannot_be_deleted_is_reported_and_the_rest_goes(tmp_path, monkeypatch, code):
    place = store_at(tmp_path)
    keys = [key_of(name) for name in ("a", "b", "c")]
    for key in keys:
        place.put(key, entry_bytes(key, "x"))
    busy = place.path(keys[1])
    monkeypatch.setattr(layout.os, "unlink", Failing(os.unlink, code, str(busy)))
    removal = upkeep.clear(tmp_path)
    assert removal.failed == ((busy, f"[Errno {code}] {os.strerror(code)}: '{busy}'"),)
    assert len(removal.removed) == 2
    assert isinstance(place.get(keys[1]), Hit)


@pytest.mark.parametrize("name", ["listdir", "unlink", "stat", "utime"])
@pytest.mark.parametrize("code", [errno.EBUSY, errno.ENOENT, errno.ESTALE])
def test_t133_after_publishing_nothing_fails(tmp_path, monkeypatch, caplog, name, code):
    """Whatever of `os` fails from the rename on, the entry is there and nobody hears of it."""
    place = store_at(tmp_path)
    place.put(KEY, WHOLE)
    orphan = layout.temporary_path(place.path(KEY))
    orphan.write_text("left behind")
    os.utime(orphan, (1, 1))
    real = os.replace

    def replace_and_break(source, destination):
        real(source, destination)
        monkeypatch.setattr(os, name, Failing(getattr(os, name), code, ""))

    monkeypatch.setattr(publish.os, "replace", replace_and_break)
    assert place.put(KEY, WHOLE)
    monkeypatch.undo()
    assert isinstance(place.get(KEY), Hit)
    assert caplog.records == []


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("open", errno.ENOSPC),
        ("open", errno.EROFS),
        ("open", errno.EDQUOT),
        ("write", errno.ENOSPC),
        ("write", errno.EIO),
        ("close", errno.EDQUOT),
        ("replace", errno.EBUSY),
        ("replace", errno.ESTALE),
        ("fstat", errno.ESTALE),
    ],
)
def test_a_write_that_fails_anywhere_stores_nothing_and_leaves_nothing(
    tmp_path, monkeypatch, caplog, name, code
):
    place = store_at(tmp_path)
    real = getattr(os, name)
    if name == "close":  # a network file system reports a late error, and the descriptor is closed

        def fail(*arguments, **named):
            real(*arguments, **named)
            raise OSError(code, os.strerror(code))
    else:

        def fail(*arguments, **named):
            raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(publish.os, name, fail)
        stored = [place.put(KEY, WHOLE), place.put(KEY, WHOLE)]
    assert stored == [False, False]
    assert len(caplog.records) == 1
    assert list(walk(tmp_path)) == []
    assert place.put(KEY, WHOLE)


def test_short_writes_are_continued(tmp_path, monkeypatch):
    real = os.write
    monkeypatch.setattr(publish.os, "write", lambda fd, data: real(fd, data[:7]))
    place = store_at(tmp_path)
    assert place.put(KEY, WHOLE)
    monkeypatch.undo()
    assert isinstance(place.get(KEY), Hit)


def test_an_interrupted_write_leaves_nothing(tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(publish.os, "write", interrupt)
    with pytest.raises(KeyboardInterrupt):
        store_at(tmp_path).put(KEY, WHOLE)
    assert list(walk(tmp_path)) == []


def test_a_directory_that_is_cleaned_away_is_made_again(tmp_path, monkeypatch):
    place = store_at(tmp_path)
    directory = place.path(KEY).parent
    real, turns = os.open, []

    def cleaned_first(path, *arguments, **named):
        if not turns:
            turns.append(path)
            directory.rmdir()
        return real(path, *arguments, **named)

    monkeypatch.setattr(publish.os, "open", cleaned_first)
    assert place.put(KEY, WHOLE)
    assert len(turns) == 1


def test_an_entry_that_claims_to_be_huge_is_not_read(tmp_path):
    place = store_at(tmp_path)
    place.put(KEY, WHOLE)
    os.truncate(place.path(KEY), store.MAX_ENTRY_BYTES + 1)  # sparse: takes no space
    assert place.get(KEY).reason == "unreadable"
