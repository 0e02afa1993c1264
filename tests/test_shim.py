"""The call path: addresses, outputs, views, counters, errors."""

from __future__ import annotations

import sys
import threading
import weakref

import pytest
import torch

from neuron_compile import counters, pool
from neuron_compile.call_plan import Buffer, CallPlan, OutputRule, Returned, Source, plan
from neuron_compile.errors import ExecutionError
from neuron_compile.shim import make_callable, make_rearranger, make_unrun, span
from tests.doubles import EagerProgram, at, described
from tests.graphs import aten_graph


def compiled(function, *args, rules=None):
    """(boxed callable, the program behind it, its plan) of a static function."""
    graph = aten_graph(function, *args)
    count = len(graph.graph.output_node().args[0])
    work, call_plan = plan(graph, rules or [OutputRule()] * count)
    program = EagerProgram(work, len(call_plan.checks))
    call = make_callable(call_plan, program, counters.calls(1), uses_random=False)
    return call, program, call_plan


def test_boxed_arguments_are_emptied() -> None:
    call, _, _ = compiled(lambda x: x + 1, torch.ones(3))
    x = torch.ones(3)
    seen = weakref.ref(x)
    args = [x]
    del x
    [y] = call(args)
    assert call._boxed_call
    assert args == []
    assert seen() is None
    assert torch.equal(y, torch.full((3,), 2.0))


def test_results_in_every_form() -> None:
    def f(x, y):
        s = x + y
        return s, None, x, x.t(), s.t(), 7, s[1:]

    x, y = torch.randn(2, 3), torch.randn(2, 3)
    call, _, _ = compiled(f, x, y)
    results = call([x, y])
    for ours, theirs in zip(results, f(x, y), strict=True):
        if isinstance(theirs, torch.Tensor):
            assert torch.equal(ours, theirs)
            assert ours.stride() == theirs.stride()
        else:
            assert ours == theirs
    assert results[2] is x
    results[0].zero_()
    assert results[4].count_nonzero() == results[6].count_nonzero() == 0


def test_alias_is_no_view_but_shares_memory() -> None:
    rules = [OutputRule(no_view=True)]
    call, _, _ = compiled(lambda x: (x + 1)[1:].t(), torch.ones(3, 4), rules=rules)
    x = torch.arange(12.0).reshape(3, 4)
    [alias] = call([x])
    assert not alias._is_view()
    assert alias.stride() == (1, 4)
    assert alias.storage_offset() == 4
    assert torch.equal(alias, (x + 1)[1:].t())


def test_input_view_counts_from_where_the_input_begins() -> None:
    call, _, _ = compiled(lambda x: (x[1:], x + 1), torch.ones(3))
    base = torch.arange(6.0)
    view, _ = call([base[2:5]])
    assert view.tolist() == [3.0, 4.0]
    assert view.data_ptr() == base.data_ptr() + 12


def test_input_of_other_strides_is_brought_into_the_expected_ones() -> None:
    for example, given in (
        (torch.ones(3, 4), torch.arange(12.0).reshape(4, 3).t()),
        (torch.ones(4, 3).t(), torch.arange(12.0).reshape(3, 4)),
    ):
        call, _, _ = compiled(lambda x: x * 2, example)
        [y] = call([given])
        assert torch.equal(y, given * 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.int8])
@pytest.mark.parametrize(
    ("size", "stride"),
    [((4, 5), (0, 1)), ((4, 4), (1, 1)), ((4, 4), (2, 1)), ((2, 3, 2), (1, 0, 1))],
)
def test_elements_that_share_memory_must_be_equal(size, stride, dtype) -> None:
    memory = torch.arange(span(Buffer(dtype, size, stride))).to(dtype)
    if dtype.is_floating_point:
        memory[-1] = torch.nan
    example = memory.as_strided(size, stride)
    call, program, _ = compiled(lambda x: x.clone(), example)
    for given in (example, example.contiguous(), example.mT.contiguous().mT):
        [y] = call([given])
        torch.testing.assert_close(y, given, rtol=0, atol=0, equal_nan=True)
    runs = program.runs
    wrong = example.contiguous()
    wrong[(1,) * len(size)] = 99
    args = [wrong]
    with pytest.raises(ExecutionError, match=r"input 0 .* has strides") as caught:
        call(args)
    assert str(stride) in caught.value.why
    assert program.runs == runs
    assert args[0] is wrong


def test_pending_conjugation_is_carried_out() -> None:
    x = torch.randn(3, dtype=torch.complex64)
    call, _, _ = compiled(lambda x: x + 1, x.conj())
    [y] = call([x.conj()])
    torch.testing.assert_close(y, x.conj().resolve_conj() + 1)


def test_pending_negation_is_carried_out() -> None:
    x = torch.randn(3, dtype=torch.complex64)
    call, _, _ = compiled(lambda x: x + 1, x.conj().imag)
    [y] = call([x.conj().imag])
    torch.testing.assert_close(y, 1 - x.imag)


def test_input_without_memory_is_refused() -> None:
    call, program, _ = compiled(lambda x, y: x + y, torch.ones(3), torch.ones(3))
    x = torch.ones(3)
    x.untyped_storage().resize_(0)
    with pytest.raises(ExecutionError, match=r"input 1 .* has no memory"):
        call([torch.ones(3), x])
    assert program.runs == 0


def test_empty_inputs_and_outputs_are_fine() -> None:
    call, _, _ = compiled(lambda x: (x + 1, x.sum()), torch.ones(0, 3))
    y, total = call([torch.ones(0, 3)])
    assert y.shape == (0, 3)
    assert total == 0


def test_failed_assertion_raises_before_anything_is_returned() -> None:
    def f(x):
        torch.ops.aten._assert_async.msg((x > 0).all(), "must be positive")
        return (x + 1,)

    call, _, _ = compiled(f, torch.ones(3))
    assert torch.equal(call([torch.ones(3)])[0], torch.full((3,), 2.0))
    args = [-torch.ones(3)]
    with pytest.raises(RuntimeError, match="must be positive"):
        call(args)


def test_exception_leaves_arguments_as_they_were() -> None:
    call, program, _ = compiled(lambda x: x + 1, torch.ones(3))
    program.failure = ExecutionError("broken")
    x = torch.arange(3.0)
    args = [x]
    with pytest.raises(ExecutionError, match="broken"):
        call(args)
    assert args[0] is x
    assert x.tolist() == [0.0, 1.0, 2.0]
    program.failure = None
    assert call(args)[0].tolist() == [1.0, 2.0, 3.0]


def test_large_outputs_come_from_the_pool_and_go_back() -> None:
    n = pool.SMALLEST // 4
    call, _, _ = compiled(lambda x: x + 1, torch.ones(n))
    [y] = call([torch.ones(n)])
    address = y.data_ptr()
    [z] = call([torch.ones(n)])
    assert z.data_ptr() != address
    del y
    [again] = call([torch.zeros(n)])
    assert again.data_ptr() == address
    assert again.unique().tolist() == [1.0]
    assert z.unique().tolist() == [2.0]
    assert not again._is_view()


def test_random_state_is_the_last_input_and_follows_the_seed() -> None:
    class Recorder:
        neff = described([torch.empty(3)], [torch.empty(3)], uses_random=True)

        def __init__(self) -> None:
            self.states: list[list[int]] = []

        def run(self, addresses) -> None:
            state = at(addresses[1], torch.empty(2, dtype=torch.int64))
            self.states.append(state.tolist())

    buffer = Buffer(torch.float32, (3,), (1,))
    call_plan = CallPlan((0,), (buffer,), (buffer,), (Returned(Source.OUTPUT, 0),))
    program = Recorder()
    call = make_callable(call_plan, program, counters.calls(1), uses_random=True)
    for _ in range(2):
        torch.manual_seed(3)
        call([torch.ones(3)])
        with torch.device("meta"):
            call([torch.ones(3, device="cpu")])
    assert program.states[:2] == program.states[2:]
    assert program.states[0] != program.states[1]


def test_calls_are_counted_in_every_thread() -> None:
    graph = aten_graph(lambda x: x + 1, torch.ones(3))
    work, call_plan = plan(graph, [OutputRule()])
    counters.reset_stats()
    call = make_callable(call_plan, EagerProgram(work), counters.calls(3), uses_random=False)

    def run() -> None:
        for _ in range(25):
            call([torch.ones(3)])

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counters.stats()["launches"] == 3 * 100


X, Y = torch.empty(2, 3), torch.empty(2, 3, dtype=torch.complex64)


@pytest.mark.parametrize(
    ("inputs", "outputs", "message"),
    [
        ([X], [X, Y], "it has 1 inputs and the call 2"),
        ([X, X, X], [X, Y], "it has 3 inputs and the call 2"),
        ([X, X], [X], "it has 1 outputs and the call 2"),
        ([X, X.int()], [X, Y], "its input 1 is int32 in 24 bytes .* float32 in 24"),
        ([X, X[:1]], [X, Y], "its input 1 is float32 in 12 bytes .* float32 in 24"),
        ([X.expand(2, 2, 3), X], [X, Y], ""),
        ([X, X], [torch.empty(2, 4), Y], "its output 0 is float32 in 32 bytes .* float32 in 24"),
        ([X, X], [X, Y.real.double()], "its output 1 is float64 in 48 bytes .* float32 in 48"),
        ([X, X], [X, torch.empty(2, 3, 2)], ""),  # the parts of a complex number, side by side
    ],
)
def test_a_program_of_other_buffers_is_refused_before_it_runs(inputs, outputs, message) -> None:
    graph = aten_graph(
        lambda x, y: (x + y, torch.complex(x, y)), torch.ones(2, 3), torch.ones(2, 3)
    )
    work, call_plan = plan(graph, [OutputRule()] * 2)
    program = EagerProgram(work)
    program.neff = described(inputs, outputs)
    if not message:
        make_callable(call_plan, program, counters.calls(1), uses_random=False)
        return
    with pytest.raises(ExecutionError, match=message) as caught:
        make_callable(call_plan, program, counters.calls(1), uses_random=False)
    assert "cache clear" in caught.value.remedy
    assert program.runs == 0


class _HeldCell(list):
    """A counter whose reading waits: the call that has it is between taking and giving back."""

    taken: threading.Event | None = None
    released = threading.Event()

    def __getitem__(self, index):
        if threading.current_thread() is not threading.main_thread() and self.taken is not None:
            self.taken.set()
            assert self.released.wait(30)
        return super().__getitem__(index)


class _HeldCalls:
    def new_cell(self):
        return _HeldCell([0])


def test_another_thread_may_take_what_is_idle_between_any_two_steps_of_a_call(monkeypatch) -> None:
    """What is idle is taken, never looked at and then taken. Each trial stops a call before one of
    its steps until another thread has the last idle counter, and only then lets it go on.
    """
    graph = aten_graph(lambda x: x + 1, torch.ones(3))
    work, call_plan = plan(graph, [OutputRule()])
    program = EagerProgram(work)

    def trial(stop: int) -> bool:
        call = make_callable(call_plan, program, _HeldCalls(), uses_random=False)
        call([torch.ones(3)])  # leaves one idle counter
        taken, released, steps = threading.Event(), threading.Event(), 0
        monkeypatch.setattr(_HeldCell, "taken", taken)
        monkeypatch.setattr(_HeldCell, "released", released)
        other = threading.Thread(target=lambda: call([torch.ones(3)]))

        def step(frame, event, _argument):
            nonlocal steps
            frame.f_trace_opcodes = True
            if event == "opcode":
                steps += 1
                if steps == stop:
                    other.start()
                    assert taken.wait(30)
            return step

        before = sys.gettrace()
        sys.settrace(lambda frame, *_: step(frame, "call", None) if frame.f_code is code else None)
        code = call.__code__
        try:
            [y] = call([torch.ones(3)])
        finally:
            sys.settrace(before)
            released.set()
            if other.ident is not None:
                other.join()
        assert y.tolist() == [2.0] * 3
        return steps >= stop

    stop = 1
    while trial(stop):
        stop += 1
    assert stop > 20  # there were steps to stop at


def test_calls_overlap_in_time_when_threads_make_them() -> None:
    barrier = threading.Barrier(2, timeout=30)

    class Meeting(EagerProgram):
        def run(self, addresses) -> None:
            barrier.wait()  # passes only if two calls are in here at once
            super().run(addresses)

    graph = aten_graph(lambda x: x + 1, torch.ones(3))
    work, call_plan = plan(graph, [OutputRule()])
    call = make_callable(call_plan, Meeting(work), counters.calls(1), uses_random=False)
    results = []
    threads = [
        threading.Thread(target=lambda v=v: results.append(call([torch.full((3,), v)])[0][0]))
        for v in (1.0, 5.0)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(float(r) for r in results) == [2.0, 6.0]


def test_graph_that_computes_nothing_needs_no_program() -> None:
    graph = aten_graph(lambda x: (x.t(), None, x), torch.ones(2, 3))
    _, call_plan = plan(graph, [OutputRule()] * 3)
    call = make_rearranger(call_plan)
    x = torch.randn(2, 3)
    args = [x]
    transposed, nothing, same = call(args)
    assert torch.equal(transposed, x.t())
    assert nothing is None
    assert same is x
    assert args == []


def test_compile_only_gives_zeros_of_the_right_layout() -> None:
    graph = aten_graph(lambda x: ((x + 1).t(), x), torch.ones(2, 3))
    _, call_plan = plan(graph, [OutputRule()] * 2)
    x = torch.ones(2, 3)
    y, same = make_unrun(call_plan)([x])
    assert y.shape == (3, 2)
    assert y.stride() == (1, 3)
    assert y.count_nonzero() == 0
    assert same is x


@pytest.mark.parametrize(
    ("size", "stride", "expected"),
    [((), (), 1), ((0, 3), (3, 1), 0), ((2, 3), (3, 1), 6), ((2, 3), (16, 1), 19), ((4,), (0,), 1)],
)
def test_span_of_a_buffer(size, stride, expected) -> None:
    assert span(Buffer(torch.float32, size, stride)) == expected
