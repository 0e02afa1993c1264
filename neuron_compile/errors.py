"""The error tree of the whole project; a leaf that imports nothing, so every stage may use it.

In: what happened, where (the user's file:line), why, and what to do about it. Out: one readable
message, with the four parts kept as attributes for tools. Invariant: no other exception type leaves
the compiler, the NEFF reader or the runtime on purpose.
"""

from __future__ import annotations

from collections.abc import Sequence

LEAVE_TO_PYTORCH = (
    "write the computation with other operators, or put it into a function under "
    "@torch.compiler.disable: PyTorch runs it, the rest is compiled (without fullgraph=True)"
)
"""The remedy where an operator cannot be compiled."""


class NeuronCompileError(RuntimeError):
    """Base of every error raised on purpose.

    `what` is the headline. `where` names the user's source (file:line) or the file being read,
    `why` the reason, `remedy` what the user can do. Empty parts are left out of the message.
    """

    def __init__(self, what: str, *, where: str = "", why: str = "", remedy: str = "") -> None:
        parts = [what]
        parts += [
            f"  {label}: {text}"
            for label, text in (("where", where), ("why", why), ("what to do", remedy))
            if text
        ]
        super().__init__("\n".join(parts))
        self.what = what
        self.where = where
        self.why = why
        self.remedy = remedy


class OptionError(NeuronCompileError):
    """An unknown or ill-typed option or environment variable."""


class UnsupportedOpError(NeuronCompileError):
    """The graph holds operators that cannot be lowered; `ops` lists every one of them, in order.

    `where` and `why` are those of the first. The message leaves them out: `what` says both of each.
    """

    def __init__(
        self,
        what: str,
        *,
        where: str = "",
        why: str = "",
        remedy: str = "",
        ops: Sequence[str] = (),
    ) -> None:
        super().__init__(what, remedy=remedy)
        self.where = where
        self.why = why
        self.ops = tuple(ops)


class LoweringError(NeuronCompileError):
    """FX graph -> StableHLO failed although every operator is known."""


class PassError(NeuronCompileError):
    """A StableHLO pass met a module it cannot handle, or left an invalid one."""


class CodegenError(NeuronCompileError):
    """Machine code could not be made: emitter, MLIR, LLVM or the linker refused."""


class NeffFormatError(NeuronCompileError):
    """The bytes are not a valid NEFF of ours: damaged, truncated, hostile or foreign."""


class NeffTargetError(NeuronCompileError):
    """The NEFF is sound, but holds code for another CPU than this one."""


class ExecutionError(NeuronCompileError):
    """A compiled program was called with the wrong buffers, or its image could not be set up."""


class IndexRangeError(ExecutionError, IndexError):
    """An index lies outside of what it counts. Both IndexError and RuntimeError, as eager's are."""
