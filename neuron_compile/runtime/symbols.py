"""Addresses of the few library functions that compiled code may call.

In: a symbol's name. Out: its address in this process. Invariant: one OpenMP runtime per process
(torch's own, found without importing torch); no name outside the tables below is looked up.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.machinery
import os
import pathlib
import sys

from neuron_compile.errors import ExecutionError

_OPENMP = frozenset(
    {"GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads", "omp_get_max_threads"}
)
_LIBGOMP = "libgomp.so.1"
_LIBC = frozenset({"memcpy", "memmove", "memset"})
_LIBM = frozenset(
    name + suffix
    for name in (
        "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh",
        "acosh", "atanh", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "pow", "cbrt",
        "hypot", "fmod", "remainder", "fma", "erf", "erfc", "tgamma", "lgamma", "round",
        "roundeven", "rint", "nearbyint", "trunc", "floor", "ceil", "sincos", "ldexp", "nextafter",
    )
    for suffix in ("", "f")
)  # fmt: skip
# Conversions between narrow and wide floats that CPUs without the instruction leave to a library.
_LIBGCC = frozenset(
    {"__truncsfhf2", "__truncdfhf2", "__extendhfsf2", "__truncsfbf2", "__truncdfbf2"}
)
_LIBRARY = {name: file for names, file in (
    (_LIBC, "libc.so.6"), (_LIBM, "libm.so.6"), (_LIBGCC, "libgcc_s.so.1"),
) for name in names}  # fmt: skip


@functools.cache
def resolve(name: str) -> int:
    """The address of a known function; raises ExecutionError for an unknown or missing one."""
    if name in _OPENMP:
        library = _openmp()
        return _SERIAL[name] if library is None else _address(library, name)
    file = _LIBRARY.get(name)
    if file is None:
        raise ExecutionError(
            f"compiled code asks for {name!r}, which it may not call",
            why="the runtime knows OpenMP's parallel regions and some of libc, libm and libgcc",
            remedy="the NEFF was built by a newer or modified version; build it again",
        )
    return _address(ctypes.CDLL(file), name)


def openmp_is_parallel() -> bool:
    """False if no libgomp was found, so that kernels run on the calling thread only."""
    return _openmp() is not None


def _address(library: ctypes.CDLL, name: str) -> int:
    try:
        address = ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    except AttributeError:
        address = None
    if not address:
        raise ExecutionError(
            f"compiled code needs {name!r}, which {library._name} of this machine lacks",
            remedy="build the NEFF again on this machine",
        )
    return address


@functools.cache
def _openmp() -> ctypes.CDLL | None:
    """The libgomp that torch uses or would use, else the system's.

    Two OpenMP runtimes in one process would fight over the cores, and torch.set_num_threads would
    reach only one. The search goes around import hooks and never runs torch's code.
    """
    if "torch" in sys.modules:
        try:
            return ctypes.CDLL(_LIBGOMP, mode=os.RTLD_NOW | os.RTLD_NOLOAD)
        except OSError:
            pass  # torch brought it under another name: look beside torch
    spec = importlib.machinery.PathFinder.find_spec("torch", sys.path)
    folders = list(spec.submodule_search_locations or ()) if spec else []
    for folder in map(pathlib.Path, folders):
        beside = (folder / "lib", folder.parent / "torch.libs")
        files = [file for place in beside for file in sorted(place.glob("libgomp*.so*"))]
        if files:
            return ctypes.CDLL(str(files[0]))
    try:
        return ctypes.CDLL(_LIBGOMP)
    except OSError:
        return None


_Body = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def _call_once(body: int, data: int, _threads: int, _flags: int) -> None:
    _Body(body)(data)


# Stand-ins with the signatures of libgomp's functions; kept here: native code points at them.
_KEPT = {
    "GOMP_parallel": ctypes.CFUNCTYPE(
        None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint
    )(_call_once),
    "omp_get_thread_num": ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 0),
    "omp_get_num_threads": ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 1),
    "omp_get_max_threads": ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 1),
}
_SERIAL = {name: ctypes.cast(f, ctypes.c_void_p).value or 0 for name, f in _KEPT.items()}
