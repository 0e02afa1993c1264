"""What the processes of the cache's tests do: `python -m tests.cache.worker <task> <root> ...`.

In: a task, a cache root, arguments. Out: one JSON line; exit status 0 unless something raised.
Invariant: only what the task's name says is out of the ordinary.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from neuron_compile.cache import publish
from neuron_compile.cache.location import default_root
from neuron_compile.cache.lock import LockState
from neuron_compile.cache.once import Built, get_or_build
from neuron_compile.cache.store import Hit
from neuron_compile.cache.upkeep import clear, entries
from tests.cache.entries import entry_bytes, key_of, store_at

KEY = key_of("the graph")


def build_once(root: Path, log: str, seconds: str, lock_root: str = "") -> object:
    """Compile for `seconds` and note it in the file `log`; begins when `<log>.go` exists."""
    store = store_at(root, lock_root=Path(lock_root) if lock_root else None)
    _wait_for(Path(log + ".go"))
    began = time.monotonic()
    found = get_or_build(store, KEY, _compiler(log, float(seconds)), lock_timeout=30.0)
    return {"built": isinstance(found, Built), "seconds": time.monotonic() - began}


def _compiler(log: str, seconds: float) -> Callable[[], bytes]:
    def build() -> bytes:
        with open(log, "a", encoding="utf-8") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(seconds)
        return entry_bytes(KEY, "compiled")

    return build


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(path)
        time.sleep(0.005)


def die_before_rename(root: Path) -> object:
    """Killed by SIGKILL when the data is written and the entry is not yet there."""
    publish.os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    store_at(root).put(KEY, entry_bytes(KEY, "never seen"))
    return "still alive"


def die_while_compiling(root: Path, log: str) -> object:
    """Killed by SIGKILL while holding the lock."""
    get_or_build(
        store_at(root),
        KEY,
        lambda: os.kill(os.getpid(), signal.SIGKILL) or b"",
        lock_timeout=30.0,
    )
    return log


def hang_while_compiling(root: Path, marker: str) -> object:
    """Holds the lock and never finishes; `marker` exists once it does."""

    def build() -> bytes:
        Path(marker).touch()
        time.sleep(600)
        return b""

    get_or_build(store_at(root), KEY, build, lock_timeout=30.0)
    return None


def write_on(root: Path, payload: str, rounds: str) -> object:
    store = store_at(root)
    return {"stored": sum(store.put(KEY, entry_bytes(KEY, payload)) for _ in range(int(rounds)))}


def read_on(root: Path, stop: str) -> object:
    """Read until the file `stop` exists: what was seen, by payload or reason of the miss."""
    store = store_at(root)
    seen: dict[str, int] = {}
    while not Path(stop).exists():
        found = store.get(KEY)
        name = found.checked.payload if isinstance(found, Hit) else found.reason
        seen[name] = seen.get(name, 0) + 1
        for entry in entries(root):
            assert entry.path.suffix == ".neff"
    return seen


def clear_on(root: Path, stop: str) -> object:
    removed = 0
    while not Path(stop).exists():
        removal = clear(root)
        assert not removal.failed, removal
        removed += len(removal.removed)
        time.sleep(0.001)
    return {"removed": removed}


def with_a_full_disk(root: Path, limit: str) -> object:
    """No file may grow beyond `limit` bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
    return _compile_and_look(root)


def without_permission(root: Path) -> object:
    """As a user who owns nothing here, where the tests run as the superuser."""
    _become_nobody()
    return _compile_and_look(root)


def plainly(root: Path) -> object:
    return _compile_and_look(root)


def without_home(_: Path, temporary: str) -> object:
    os.environ.pop("HOME", None)
    os.environ.pop("XDG_CACHE_HOME", None)
    os.environ["TMPDIR"] = temporary
    _become_nobody()
    root = default_root()
    assert root is not None
    return {"root": str(root), **_compile_and_look(root)}


def fork_while_holding(root: Path) -> object:
    """A child forked inside the locked block leaves it; the parent must still hold the lock."""
    store = store_at(root)
    with store.lock(KEY, 5.0) as outer:
        child = os.fork()
        if child:
            _, status = os.waitpid(child, 0)
            with store.lock(KEY, 0.2) as inner:
                pass
    if child == 0:
        os._exit(0)
    with store.lock(KEY, 5.0) as after:
        pass
    return {"child": status, "states": [state.value for state in (outer, inner, after)]}


def fork_and_compile(root: Path, log: str, children: str) -> object:
    """Children forked from one process, which has used the store before, compile the same key."""
    store = store_at(root)
    store.get(KEY)
    pids = []
    for _ in range(int(children)):
        pid = os.fork()
        if pid == 0:
            found = get_or_build(store, KEY, _compiler(log, 0.3), lock_timeout=30.0)
            os._exit(0 if found.data == entry_bytes(KEY, "compiled") else 1)
        pids.append(pid)
    return {"statuses": [os.waitpid(pid, 0)[1] for pid in pids]}


def _become_nobody() -> None:
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(54321)
        os.setuid(54321)


def _compile_and_look(root: Path) -> dict[str, object]:
    store = store_at(root)
    built = get_or_build(store, KEY, lambda: entry_bytes(KEY, "x" * 5000), lock_timeout=0.5)
    assert built.data == entry_bytes(KEY, "x" * 5000)
    with store.lock(KEY, 0.5) as state:
        assert isinstance(state, LockState)
    again = store.get(KEY)
    return {
        "lock": state.value,
        "built": isinstance(built, Built),
        "stored": isinstance(built, Built) and built.stored,
        "again": "hit" if isinstance(again, Hit) else again.reason,
    }


TASKS = (
    build_once,
    clear_on,
    die_before_rename,
    die_while_compiling,
    fork_and_compile,
    fork_while_holding,
    hang_while_compiling,
    plainly,
    read_on,
    with_a_full_disk,
    without_home,
    without_permission,
    write_on,
)

if __name__ == "__main__":
    tasks = {task.__name__: task for task in TASKS}
    print(json.dumps(tasks[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])))
