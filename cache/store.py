"""The cache on disk: look up, publish, lock.

In: a `Key`, and NEFF bytes to publish. Out: `Hit` or `Miss` with its reason. Invariants: a hit's
bytes passed the caller's check and record this very key; nothing that the file system does raises;
publishing is atomic.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from neuron_compile.cache.key import Key, recorded_key
from neuron_compile.cache.layout import entry_path, lock_path, path_target, quarantine_path
from neuron_compile.cache.lock import LockState, hold
from neuron_compile.cache.notes import Notes, recorded_notes
from neuron_compile.cache.publish import publish
from neuron_compile.cache.warn_once import warn_once
from neuron_compile.errors import NeffFormatError, NeffTargetError

# Inputs and weights are arguments of a NEFF, not part of it: no honest entry comes near this.
MAX_ENTRY_BYTES = 4 << 30

# A hit renews the entry's time, for `gc` removes what was unused the longest; once in six hours is
# enough.
_RENEW_SECONDS = 6 * 3600.0

# A stale NFS handle means that the server replaced the file: opening it anew finds the new one.
_READ_ATTEMPTS = 3

_FULL = (errno.ENOSPC, errno.EDQUOT)
_MAKE_ROOM = "`neuron-compile cache gc --max-size 1G` keeps what was used last, up to 1 GiB"
_ANOTHER_DIRECTORY = (
    "set TORCH_NEURONX_NEFF_CACHE_DIR to a directory you may write to, or "
    "TORCH_NEURONX_NEFF_DISABLE_CACHE=1"
)
_UNREADABLE = "cannot read the cache of compiled graphs; compilation goes on without it"
_UNWRITABLE = "cannot write to the cache of compiled graphs; compilation goes on without it"

Checked = TypeVar("Checked")


@dataclass(frozen=True, slots=True)
class Hit(Generic[Checked]):
    """`checked` is what the store's check made of `data`; the file at `path` may be gone."""

    data: bytes
    checked: Checked
    path: Path


@dataclass(frozen=True, slots=True)
class Miss:
    """`reason` is `absent`, `unreadable`, `damaged`, `misplaced` or `foreign` (another CPU)."""

    reason: str
    detail: str = ""


class Store(Generic[Checked]):
    """Entries of one target below `root`.

    `check` takes an entry's bytes, returns anything (the parsed NEFF, say), and raises
    NeffFormatError or NeffTargetError, or OSError if it cannot tell. `provenance_of` takes what
    `check` returned and gives the texts recorded in the entry; with it, an entry copied or renamed
    to another key's place is refused. `lock_root` is where lock files go if not below `root`: a
    directory of this host for caches on a network file system.

    A store holds no descriptor and no lock of its own: threads and forked children may share it.
    """

    def __init__(
        self,
        root: Path,
        target: str,
        check: Callable[[bytes], Checked],
        *,
        provenance_of: Callable[[Checked], Mapping[str, str]] | None = None,
        lock_root: Path | None = None,
    ) -> None:
        self.root = root
        self.target = target
        self.lock_root = root if lock_root is None else lock_root
        self._check = check
        self._provenance_of = provenance_of

    def path(self, key: Key) -> Path:
        return entry_path(self.root, self.target, key)

    def get(self, key: Key) -> Hit[Checked] | Miss:
        """The entry of `key`. Never raises for the state of the disk or of the entry.

        A damaged entry is set aside, so that the next process need not read it again.
        """
        path = self.path(key)
        found, status = self._look(path)
        if isinstance(found, Miss) and found.reason == "unreadable":
            self._warn_unreadable(path, found.detail)
        elif isinstance(found, Hit) and status is not None:
            _renew(path, status)
        elif isinstance(found, Miss) and status is not None:
            warn_once(
                f"unusable:{path}",
                f"ignoring the cached NEFF {path}: {found.detail}; it is compiled again",
            )
            if found.reason != "foreign":  # another kind of host may be glad of that one
                _quarantine(path, status)
        return found

    def peek(self, path: Path) -> Hit[Checked] | Miss:
        """The entry at `path`, which lies below this store's root; nothing is changed or logged."""
        return self._look(path)[0]

    def recorded(self, path: Path) -> tuple[Key, Notes] | None:
        """What the entry at `path` records; None if there is no key that can be trusted."""
        found = self.peek(path)
        if isinstance(found, Miss) or self._provenance_of is None:
            return None
        provenance = self._provenance_of(found.checked)
        key = recorded_key(provenance)
        return None if key is None else (key, recorded_notes(provenance))

    def _look(self, path: Path) -> tuple[Hit[Checked] | Miss, os.stat_result | None]:
        """With the status of the file, unless it could not be read at all."""
        try:
            data, status = _read(path)
        except FileNotFoundError:
            return Miss("absent"), None
        except OSError as error:
            return Miss("unreadable", _why(error)), None
        try:
            checked = self._check(data)
        except NeffFormatError as error:
            return Miss("damaged", str(error)), status
        except NeffTargetError as error:
            return Miss("foreign", str(error)), status
        except OSError as error:  # no memory to map it, say: the entry itself may be sound
            return Miss("unreadable", _why(error)), None
        if self._provenance_of is not None:
            recorded = recorded_key(self._provenance_of(checked))
            # The path is made of the key's hashes: a copied or renamed entry is seen here (T141).
            if recorded is None or entry_path(self.root, path_target(path), recorded) != path:
                return Miss("misplaced", "it was made for another graph or other shapes"), status
        return Hit(data, checked, path), status

    def put(self, key: Key, data: bytes) -> bool:
        """Publish `data` as the entry of `key`; False, with one warning, if it cannot be."""
        path = self.path(key)
        try:
            publish(path, data)
        except OSError as error:
            remedy = _MAKE_ROOM if error.errno in _FULL else _ANOTHER_DIRECTORY
            self._warn(_UNWRITABLE, self.root, _why(error), remedy)
            return False
        return True

    @contextlib.contextmanager
    def lock(self, key: Key, timeout: float) -> Iterator[LockState]:
        """Wait up to `timeout` seconds to be the one that compiles `key`; see `LockState`."""
        path = self.path(key)
        before = _identity(path)

        def published() -> bool:
            # A damaged entry that could not be set aside stays where it is: it is not news.
            return _identity(path) not in (None, before)

        with hold(
            lock_path(self.lock_root, self.target, key),
            timeout=timeout,
            published=published,
            excuse=self._topic,
        ) as state:
            yield state

    @property
    def _topic(self) -> str:
        """One for all that can be wrong with the directory: the remedies are the same."""
        return f"cache:{self.root}"

    def _warn(self, what: str, where: Path, why: str, remedy: str) -> None:
        text = f"{what}\n  where: {where}\n  why: {why}\n  what to do: {remedy}"
        warn_once(self._topic, text)

    def _warn_unreadable(self, path: Path, why: str) -> None:
        if os.path.isdir(self.root) and os.access(self.root, os.R_OK | os.X_OK):
            warn_once(
                f"entries:{self.root}",
                f"a cached graph cannot be read and is compiled again\n  where: {path}\n"
                f"  why: {why}",
            )
        else:
            self._warn(_UNREADABLE, self.root, why, _ANOTHER_DIRECTORY)


def _read(path: Path) -> tuple[bytes, os.stat_result]:
    """The bytes and the status of the regular file at `path`. Raises OSError."""
    for attempt in range(1, _READ_ATTEMPTS + 1):
        try:
            return _read_now(path)
        except OSError as error:
            if error.errno != errno.ESTALE or attempt == _READ_ATTEMPTS:
                raise
    raise AssertionError("the last attempt returns or raises")


def _read_now(path: Path) -> tuple[bytes, os.stat_result]:
    # Not blocking: somebody's named pipe at this path must not hang us.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if status.st_size > MAX_ENTRY_BYTES:
            raise OSError(errno.EFBIG, "too large for a NEFF", str(path))
        return file.read(), status


def _why(error: OSError) -> str:
    """Without the path, which is long and stands elsewhere."""
    return error.strerror or str(error)


def _identity(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns


def _quarantine(path: Path, seen: os.stat_result) -> None:
    """Set the damaged file aside, unless another process has already put a new one in its place."""
    with contextlib.suppress(OSError):
        if os.path.samestat(path.stat(), seen):
            os.replace(path, quarantine_path(path))


def _renew(path: Path, seen: os.stat_result) -> None:
    if time.time() - seen.st_mtime > _RENEW_SECONDS:
        with contextlib.suppress(OSError):
            os.utime(path)
