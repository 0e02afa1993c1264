"""The path of every call: addresses in, native code, tensors out.

In: a `CallPlan` and an executable, once; then the boxed arguments of each call. Out: the list of
results. Invariants: nothing is decided per call that could be decided before; an exception leaves
every argument as it was; several threads may call at once.

Measured for 10 inputs and one output: see benchmarks (`shim`); no logging and no look-up by name
here.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from neuron_compile import pool
from neuron_compile.agreement import disagreement
from neuron_compile.call_plan import Buffer, CallPlan, Returned, Source
from neuron_compile.counters import Calls
from neuron_compile.errors import ExecutionError
from neuron_compile.neff.schema import Neff, row_major
from neuron_compile.views import Layout, overlaps_itself

_Tensor = torch._C.TensorBase
_address = _Tensor.data_ptr
_is_contiguous = _Tensor.is_contiguous
_strides_of = _Tensor.stride

# torch.empty_strided without its argument parser, as Inductor's generated code uses it: 0.6 against
# 2 us.
_fast_empty = getattr(torch._C._dynamo.guards, "_empty_strided_cpu", None)


def _empty(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    if _fast_empty is not None:
        return _fast_empty(size, stride, dtype)
    return torch.empty_strided(size, stride, dtype=dtype, device="cpu")


class Program(Protocol):
    """What the shim needs of a loaded executable.

    `neff.plan` says what its buffers are. `run` takes the addresses of inputs, then outputs, blocks
    until all is written, and may be called from several threads at once. It returns 0, or the
    number of the check that is not met.
    """

    @property
    def neff(self) -> Neff: ...

    def run(self, addresses: list[int]) -> int: ...


def make_callable(
    plan: CallPlan, program: Program, calls: Calls, *, uses_random: bool
) -> Callable[[list[Any]], list[Any]]:
    """A boxed callable (`_boxed_call`): it empties the list of arguments, so that they can be
    freed.

    Raises ExecutionError if the program's buffers are not those of the plan.
    """
    _demand_agreement(program, plan)
    pick = _picker(plan.arguments)
    allocators = tuple(_allocator(buffer) for buffer in plan.outputs)
    expected = _LayoutCheck(plan.inputs)
    resolve = plan.resolve
    finish = _finisher(plan.returned)
    checks = plan.checks
    in_place = tuple(pair for pair in plan.updates if pair in program.neff.plan.in_place)
    allocators = _without(allocators, [output for output, _ in in_place])
    run = program.run
    cells: list[list[int]] = []  # counters not in use at the moment; pop and append are atomic

    def call(args: list[Any]) -> list[Any]:
        tensors = pick(args)
        if resolve:
            tensors = _resolved(tensors, resolve)
        if not expected.holds(tensors):
            tensors = expected.enforce(tensors)
        if uses_random:
            tensors = (*tensors, _random_state())
        outputs = [allocate() for allocate in allocators]
        for output, source in in_place:
            outputs[output] = tensors[source]
        addresses = [*map(_address, tensors), *map(_address, outputs)]
        if not all(addresses):
            _refuse_null(tensors)
        failed = run(addresses)
        if failed:
            raise checks[failed - 1].error(args)
        try:
            cell = cells.pop()
        except IndexError:  # not asked beforehand: another thread may take the last one meanwhile
            cell = calls.new_cell()
        cell[0] += 1
        cells.append(cell)
        results = finish(args, outputs)
        args.clear()
        return results

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


def _demand_agreement(program: Program, plan: CallPlan) -> None:
    found = disagreement(program.neff.plan, plan.inputs, plan.outputs)
    if found:
        raise ExecutionError(
            f"the program {program.neff.name!r} is not one of the graph to run: {found}",
            why="its code would read or write past the end of the call's buffers",
            remedy="clear the cache of compiled graphs (`neuron-compile cache clear`); if it was "
            "compiled just now, this is a defect of the backend: please report it",
        )


def make_rearranger(plan: CallPlan) -> Callable[[list[Any]], list[Any]]:
    """The callable of a graph that computes nothing: its results are its arguments, views of them,
    constants.
    """
    finish = _finisher(plan.returned)

    def call(args: list[Any]) -> list[Any]:
        results = finish(args, [])
        args.clear()
        return results

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


def make_unrun(plan: CallPlan) -> Callable[[list[Any]], list[Any]]:
    """The callable under TORCH_NEURONX_COMPILE_ONLY: outputs are zeros of the right layout."""
    allocators = tuple(_allocator(buffer) for buffer in plan.outputs)
    finish = _finisher(plan.returned)

    def call(args: list[Any]) -> list[Any]:
        results = finish(args, [allocate().zero_() for allocate in allocators])
        args.clear()
        return results

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


def _picker(positions: tuple[int, ...]) -> Callable[[list[Any]], Sequence[torch.Tensor]]:
    if len(positions) > 1:
        return operator.itemgetter(*positions)
    if not positions:
        return lambda _args: ()
    (only,) = positions
    return lambda args: (args[only],)


def _without(
    allocators: Sequence[Callable[[], Any]], outputs: Sequence[int]
) -> tuple[Callable[[], Any], ...]:
    """Nothing is allocated for outputs that are written in place."""
    return tuple((lambda: None) if i in outputs else a for i, a in enumerate(allocators))


def _allocator(buffer: Buffer) -> Callable[[], torch.Tensor]:
    size, stride, dtype = buffer.size, buffer.stride, buffer.dtype
    nbytes = span(buffer) * dtype.itemsize
    if nbytes < pool.SMALLEST:
        return lambda: _empty(size, stride, dtype)
    take = pool.POOL.take
    # A tensor of its own over pooled memory, not a view: a view would share its version counter
    # with all earlier tensors on the same memory, and autograd would see changes that are none.
    return lambda: _empty((0,), (1,), dtype).set_(take(nbytes), 0, size, stride)


def span(buffer: Buffer) -> int:
    """Elements from the first to the last one, both included."""
    if 0 in buffer.size:
        return 0
    return 1 + sum((n - 1) * step for n, step in zip(buffer.size, buffer.stride, strict=True))


class _LayoutCheck:
    """Do the inputs lie in memory as the code expects?

    Dynamo's guards and AOTAutograd's handling of tangents say yes; a tensor whose `.data` was
    exchanged for one of other strides, or a gradient from foreign code, says no, and reading it as
    if would give wrong numbers.
    """

    def __init__(self, buffers: Sequence[Buffer]) -> None:
        self._buffers = tuple(buffers)
        self._all_contiguous = all(b.stride == row_major(b.size) for b in buffers)
        self._strides = [b.stride for b in buffers]

    def holds(self, tensors: Sequence[torch.Tensor]) -> bool:
        if self._all_contiguous:
            return all(map(_is_contiguous, tensors))
        return list(map(_strides_of, tensors)) == self._strides

    def enforce(self, tensors: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        return [
            tensor if tensor.stride() == buffer.stride else _laid_out(i, tensor, buffer)
            for i, (tensor, buffer) in enumerate(zip(tensors, self._buffers, strict=True))
        ]


def _laid_out(number: int, tensor: torch.Tensor, buffer: Buffer) -> torch.Tensor:
    """A copy with the buffer's strides. Raises ExecutionError if elements that share memory there
    differ (in any bit: NaN equals itself, zeros of two signs differ).
    """
    size, stride, dtype = buffer.size, buffer.stride, buffer.dtype
    if not overlaps_itself(Layout(size, stride, 0)):
        return _empty(size, stride, dtype).copy_(tensor)
    places = torch.arange(span(buffer), device="cpu").as_strided(size, stride)
    memory = _empty((span(buffer),), (1,), dtype)
    memory[places] = tensor
    copy = memory.as_strided(size, stride)
    if not torch.equal(_bits(copy), _bits(tensor)):
        raise ExecutionError(
            f"input {number} ({dtype}, shape {size}) has strides {tensor.stride()}",
            why=f"the code is compiled for strides {stride}, where several elements share one "
            "place in memory, and the tensor has different values for such elements",
            remedy="call with a tensor of these strides (tensor.expand), or compile for a "
            "contiguous one (tensor.contiguous())",
        )
    return copy


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)


def _resolved(tensors: Sequence[torch.Tensor], pending: tuple[int, ...]) -> Sequence[torch.Tensor]:
    resolved = list(tensors)
    for i in pending:
        resolved[i] = resolved[i].resolve_conj().resolve_neg()
    return resolved


def _random_state() -> torch.Tensor:
    # 63 random bits in each word, from the generator that torch.manual_seed sets.
    return torch.empty(2, dtype=torch.int64, device="cpu").random_()


def _refuse_null(tensors: Sequence[torch.Tensor]) -> None:
    for i, tensor in enumerate(tensors):
        if tensor.numel() and not tensor.data_ptr():
            raise ExecutionError(
                f"input {i} ({tensor.dtype}, shape {tuple(tensor.shape)}) has no memory",
                why="its storage was freed or resized to nothing",
                remedy="give the tensor its storage back before the call",
            )


_Finish = Callable[[list[Any], list[torch.Tensor]], list[Any]]


def _finisher(returned: Sequence[Returned]) -> _Finish:
    """How the results are put together from arguments and computed outputs."""
    in_order = [Returned(Source.OUTPUT, i) for i in range(len(returned))]
    if list(returned) == in_order:
        return lambda _args, outputs: outputs
    makers = tuple(_maker(item) for item in returned)

    def finish(args: list[Any], outputs: list[torch.Tensor]) -> list[Any]:
        return [make(args, outputs) for make in makers]

    return finish


def _maker(item: Returned) -> Callable[[list[Any], list[torch.Tensor]], Any]:
    index, value, layout = item.index, item.value, item.layout
    if item.source is Source.GIVEN:
        return lambda _args, _outputs: value
    if item.source is Source.ARGUMENT:
        return lambda args, _outputs: args[index]
    if item.source is Source.OUTPUT:
        return lambda _args, outputs: outputs[index]
    if layout is None:
        raise ExecutionError(f"call plan without a layout for a view ({item})")
    size, stride, offset = layout.size, layout.stride, layout.offset
    if item.source is Source.OUTPUT_VIEW:
        return lambda _args, outputs: outputs[index].as_strided(size, stride, offset)
    if item.source is Source.OUTPUT_ALIAS:
        return lambda _args, outputs: _alias(outputs[index], size, stride, offset)

    def argument_view(args: list[Any], _outputs: list[torch.Tensor]) -> torch.Tensor:
        base = args[index]
        return base.as_strided(size, stride, base.storage_offset() + offset)

    return argument_view


def _alias(
    base: torch.Tensor, size: tuple[int, ...], stride: tuple[int, ...], offset: int
) -> torch.Tensor:
    return _empty((0,), (1,), base.dtype).set_(base.untyped_storage(), offset, size, stride)
