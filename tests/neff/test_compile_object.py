"""`neff/compile_object.py`: objects come out, refusals carry MLIR's words, targets are obeyed."""

import re
import shutil
import subprocess
import threading

import pytest

from neuron_compile.errors import CodegenError
from neuron_compile.neff import compile_object as module
from neuron_compile.neff.compile_object import ObjectCompiler, compile_object
from neuron_compile.neff.target import make

FMA = """module {{
llvm.func @run(%a: !llvm.ptr, %b: !llvm.ptr) attributes {{{attributes}}} {{
  %x = llvm.load %a {{alignment = 4 : i64}} : !llvm.ptr -> vector<16xf32>
  %y = llvm.load %b {{alignment = 4 : i64}} : !llvm.ptr -> vector<16xf32>
  %z = math.fma %x, %y, %x : vector<16xf32>
  %i = arith.fptosi %z : vector<16xf32> to vector<16xi32>
  %w = arith.sitofp %i : vector<16xi32> to vector<16xf32>
  llvm.store %w, %a {{alignment = 4 : i64}} : vector<16xf32>, !llvm.ptr
  llvm.return
}}
}}"""


def disassemble(code: bytes, folder) -> str:
    path = folder / "code.o"
    path.write_bytes(code)
    tool = shutil.which("objdump") or shutil.which("llvm-objdump")
    assert tool is not None, "this test needs objdump (binutils) or llvm-objdump"
    return subprocess.run(
        [tool, "-d", "--no-show-raw-insn", str(path)], capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize(
    ("isa", "register", "forbidden"),
    [("x86-64-v3", "%ymm", "%zmm|%k[0-7]|mm(1[6-9]|2[0-9]|3[01])"), ("x86-64-v4", "%zmm", "%ymm")],
)
def test_code_is_for_the_target_not_for_the_host(tmp_path, isa, register, forbidden):
    text = FMA.format(attributes=make(isa).llvm_attributes())
    listing = disassemble(compile_object(text, ["run"]), tmp_path)
    assert re.search(rf"vfmadd\w+ .*{register}", listing)
    assert not re.search(forbidden, listing)


# Modules of different sizes and constants, one of them twice.
FACTORS = """module {{
llvm.func @run(%a: !llvm.ptr) {{
  {lines}
  llvm.return
}}
}}"""
FACTOR = """
  %c{n} = arith.constant {n}.25 : f32
  %x{n} = llvm.load %a : !llvm.ptr -> f32
  %y{n} = arith.mulf %x{n}, %c{n} : f32
  llvm.store %y{n}, %a : f32, !llvm.ptr"""


def factors(count: int) -> str:
    return FACTORS.format(lines="".join(FACTOR.format(n=n) for n in range(count)))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_bytes_do_not_depend_on_threads_nor_on_what_else_is_compiled(threads):
    texts = [factors(count) for count in (3, 40, 1, 40, 7)]
    alone = [compile_object(text, ["run"]) for text in texts]
    assert alone[1] == alone[3]
    for order in ([0, 1, 2, 3, 4], [4, 2, 3, 0, 1]):
        with ObjectCompiler(threads) as compiler:
            for i in order:
                compiler.add(texts[i], ["run"])
            assert compiler.objects() == [alone[i] for i in order]


def test_the_first_refusal_is_raised_and_no_thread_stays():
    before = threading.active_count()
    with ObjectCompiler(2) as compiler:
        for name in ("run", "first", "second"):
            compiler.add(factors(2), [name])
        with pytest.raises(CodegenError, match="no code for first"):
            compiler.objects()
    assert threading.active_count() == before


def compiled_by_a_caller_that_fails() -> None:
    with ObjectCompiler(2) as compiler:
        for _ in range(20):
            compiler.add(factors(20), ["run"])
        raise KeyboardInterrupt


def test_an_error_of_the_caller_ends_the_threads():
    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        compiled_by_a_caller_that_fails()
    assert threading.active_count() == before


@pytest.mark.parametrize("here", [True, False])
def test_functions_that_only_llvm_names_are_left_to_the_loader(here, monkeypatch):
    """Whether the process has them or not."""
    if not here:
        monkeypatch.setattr(module, "_not_in_this_process", lambda: module._IMPLICIT_EXTERNALS)
    text = """module {
    llvm.func @run(%a: !llvm.ptr, %n: i64, %b: i8) {
      %x = llvm.load %a : !llvm.ptr -> f32
      %y = arith.remf %x, %x : f32
      llvm.store %y, %a : f32, !llvm.ptr
      "llvm.intr.memset"(%a, %b, %n) <{isVolatile = false}> : (!llvm.ptr, i8, i64) -> ()
      llvm.return
    }
    }"""
    made = compile_object(text, ["run"])
    assert b"fmodf" in made
    assert b"memset" in made


def test_declared_functions_are_left_to_the_loader():
    text = """module {
      llvm.func @GOMP_parallel(!llvm.ptr)
      llvm.func @run(%p: !llvm.ptr) {
        llvm.call @GOMP_parallel(%p) : (!llvm.ptr) -> ()
        llvm.return
      }
    }"""
    assert b"GOMP_parallel" in compile_object(text, ["run"])


MALFORMED = {
    "unknown dialect": ("foo.bar", "foo"),
    "wrong type": (
        "%0 = arith.addi %a, %a : i64",
        r"expects different type.*\n.*line 3: %0 = arith.addi",
    ),
    "no translation": ("%0 = tensor.empty() : tensor<4xf32>", "tensor.empty"),
    "no intrinsic": (
        'llvm.call_intrinsic "llvm.x86.no"() : () -> ()',
        r"could not find LLVM intrinsic.*\n.*line 3",
    ),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_refusals_say_what_and_where(case):
    line, expected = MALFORMED[case]
    text = f"module {{\nllvm.func @run(%a: i32) {{\n  {line}\n  llvm.return\n}}\n}}"
    with pytest.raises(CodegenError, match=expected):
        compile_object(text, ["run"])


def test_a_missing_export_is_named():
    with pytest.raises(CodegenError, match="no code for run"):
        compile_object("module { llvm.func @other() { llvm.return } }", ["run"])
