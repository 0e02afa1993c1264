"""`neff/compile_object.py`: objects come out, refusals carry MLIR's words, targets are obeyed."""

import glob
import re
import shutil
import subprocess
import tempfile

import pytest

from neuron_compile.errors import CodegenError
from neuron_compile.neff.compile_object import compile_object
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


def test_equal_text_gives_equal_bytes_and_leaves_no_file():
    text = FMA.format(attributes="")
    before = set(glob.glob(f"{tempfile.gettempdir()}/neuron-compile-*.o"))
    assert compile_object(text, ["run"]) == compile_object(text, ["run"])
    assert set(glob.glob(f"{tempfile.gettempdir()}/neuron-compile-*.o")) <= before


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
