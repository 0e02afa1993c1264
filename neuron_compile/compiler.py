"""The compiler on one screen: key -> look up -> lower -> passes -> build -> store -> load.

In: a `Job` (a static graph and what belongs to its key). Out: a loaded executable. Invariants: a
hit imports neither torch_mlir nor code generation; threads and processes that want the same graph
compile it once; what cannot be hashed is compiled without the cache and says why.
"""

from __future__ import annotations

import contextlib
import io
import logging
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch.fx

from neuron_compile import counters, options
from neuron_compile.agreement import require_agreement
from neuron_compile.cache.explain import Explanation, explain
from neuron_compile.cache.key import Key
from neuron_compile.cache.once import get_or_build
from neuron_compile.cache.store import Hit, Store
from neuron_compile.cache.warn_once import warn_once
from neuron_compile.debug import Artifacts, artifacts
from neuron_compile.disk_cache import cache_root, open_store
from neuron_compile.environment import Environment
from neuron_compile.graph_key import Unhashable, make_graph_key
from neuron_compile.graph_notes import notes
from neuron_compile.graph_text import graph_text
from neuron_compile.neff import reader
from neuron_compile.neff.schema import Neff
from neuron_compile.neff.target import Target, detect
from neuron_compile.options import Options
from neuron_compile.runtime.executable import Executable

# At level INFO it says, for every miss, what differs from the most similar entry.
_LOG = logging.getLogger("neuron_compile.cache")

# Executables kept for graphs that come again: other captures, other threads, after
# torch._dynamo.reset().
_KEPT = 128


@dataclass(frozen=True, slots=True)
class Job:
    """One graph to compile. `kind` is forward, backward or inference; `aot` more facts for the
    key; `checks` what to say of the graph's last outputs, booleans, where they are false; `updates`
    pairs (output, input) that calls may give the same memory.
    """

    graph: torch.fx.GraphModule
    kind: str
    options: Options
    environment: Environment
    aot: Mapping[str, object]
    checks: tuple[str, ...] = ()
    updates: tuple[tuple[int, int], ...] = ()

    @property
    def target(self) -> Target:
        if self.options.target:
            return detect(self.options.target, where="option 'target'")
        return self.environment.detect_target()

    @property
    def name(self) -> str:
        return self.options.model_name or "graph"


def executable(job: Job) -> Executable:
    """The loaded executable of the job's graph, from memory, from disk, or compiled now.

    Raises UnsupportedOpError, LoweringError, PassError or CodegenError where it cannot be compiled.
    """
    key, files = _start(job)
    if key is None:
        return _load(_build(job, {}, files))
    with _one_at_a_time(key):
        found = _MEMORY.get(key)
        if found is not None:
            counters.add("memory_hits")
            return found
        loaded = _load(_bytes_of(job, key, files))
        _MEMORY.put(key, loaded)
        return loaded


def compile_only(job: Job) -> None:
    """Have the job's graph in the cache on disk, without loading it: it may be for another CPU."""
    key, files = _start(job)
    if key is None:
        _build(job, {}, files)
        return
    with _one_at_a_time(key):
        _bytes_of(job, key, files)


def _start(job: Job) -> tuple[Key | None, Artifacts]:
    with counters.timed("key"):
        key = _key(job)
    graph_hash = key.graph_hash if key else "unhashed"
    files = artifacts(job.environment.artifact_dir, job.name, job.kind, graph_hash)
    files.write("fx_graphs", ".txt", lambda: str(job.graph.graph))
    return key, files


def _bytes_of(job: Job, key: Key, files: Artifacts) -> Neff | bytes:
    """From disk, or built and stored there. An entry that does not fit the graph's buffers counts
    as damaged, whatever key it records: its code would write past their end.
    """

    def read(data: bytes) -> Neff:
        neff = reader.read(data)
        require_agreement(neff, job.graph)
        return neff

    store = _store(job, read)
    if store is None:
        counters.add("bypasses")
        return _build(job, _records(job, key), files)

    def build() -> bytes:
        if _LOG.isEnabledFor(logging.INFO) and (every := _store(job)) is not None:
            _LOG.info("%s (%s): %s", job.name, job.kind, _explained(every, key, job))
        return _build(job, _records(job, key), files)

    with counters.timed("cache"):
        found = get_or_build(store, key, build, lock_timeout=job.environment.lock_timeout)
    counters.add("disk_hits" if isinstance(found, Hit) else "disk_misses")
    return found.checked if isinstance(found, Hit) else found.data


def _explained(store: Store[Neff], key: Key, job: Job) -> Explanation:
    return explain(store, key, graph=graph_text(job.graph))


def _records(job: Job, key: Key) -> dict[str, str]:
    """What the entry says of its key, and for people of its graph."""
    return {**key.provenance(), **notes(job.graph).provenance()}


def _build(job: Job, provenance: Mapping[str, str], files: Artifacts) -> bytes:
    """Lower -> passes -> build; the only function that needs torch_mlir, so it imports it."""
    with counters.timed("lower"):
        from neuron_compile.lowering import lower
        from neuron_compile.neff.build import build
        from neuron_compile.passes import run_pipeline

        lowered = lower(job.graph)
    module = lowered.module
    files.write("stablehlo", ".before.mlir", lambda: str(module))
    with counters.timed("passes"):
        portable = io.BytesIO()
        module.operation.write_bytecode(portable)
        run_pipeline(module)
    files.write("stablehlo", ".after.mlir", lambda: str(module))
    with counters.timed("build"):
        data = build(
            module,
            target=job.target,
            name=job.name,
            provenance=provenance,
            portable=portable.getvalue(),
            uses_random=lowered.uses_random,
            checks=job.checks,
            updates=job.updates,
            watch=lambda name, text: files.write("kernels", f".{name}.mlir", lambda: text),
        )
    files.write("neff", ".neff", lambda: data)
    counters.add("compiles")
    return data


def _load(neff: Neff | bytes) -> Executable:
    with counters.timed("load"):
        loaded = Executable(neff if isinstance(neff, Neff) else reader.read(neff))
    counters.add("kernels", len(loaded.neff.plan.kernels))
    return loaded


def _key(job: Job) -> Key | None:
    try:
        return make_graph_key(
            job.graph,
            options_in_key=dict(options.key_items(job.options)),
            target=job.target.name,
            aot={"kind": job.kind, "checks": job.checks, "updates": job.updates, **job.aot},
        )
    except Unhashable as reason:
        counters.add("bypasses")
        warn_once(f"unhashable:{reason}", f"a graph is compiled without the cache: {reason}")
        return None


def _store(job: Job, read: Callable[[bytes], Neff] = reader.read) -> Store[Neff] | None:
    environment = job.environment
    root = None if environment.disable_cache else cache_root(environment)
    if root is None:
        return None
    return open_store(root, job.target, environment.local_cache_dir, read=read)


class _Memory:
    """The executables used most recently, by key."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._recent: OrderedDict[Key, Executable] = OrderedDict()

    def get(self, key: Key) -> Executable | None:
        with self._lock:
            if key in self._recent:
                self._recent.move_to_end(key)
            return self._recent.get(key)

    def put(self, key: Key, executable: Executable) -> None:
        with self._lock:
            self._recent[key] = executable
            if len(self._recent) > _KEPT:
                self._recent.popitem(last=False)

    def clear(self) -> None:
        with self._lock:
            self._recent.clear()


_MEMORY = _Memory()


def forget_executables() -> None:
    """Empty the cache in memory, so that the next graph is looked up on disk."""
    _MEMORY.clear()


_locks_guard = threading.Lock()
_locks: weakref.WeakValueDictionary[Key, _KeyLock] = weakref.WeakValueDictionary()


class _KeyLock:
    """A lock that a weak dictionary can hold."""

    __slots__ = ("__weakref__", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()


@contextlib.contextmanager
def _one_at_a_time(key: Key) -> Iterator[None]:
    with _locks_guard:
        entry = _locks.setdefault(key, _KeyLock())
    with entry.lock:
        yield
