"""`neff/link.py`: layout, relocations of both machines, and refusals that name what they refuse."""

import ctypes
import struct

import pytest

from neuron_compile.errors import CodegenError
from neuron_compile.neff.check import check_image
from neuron_compile.neff.compile_object import compile_object
from neuron_compile.neff.link import link
from neuron_compile.runtime.image import LoadedImage
from tests.neff.elf import AARCH64, ALLOC, EXECUTE, TLS, WRITE, X86_64, Section, build

TEXT = ".text"


def code(*relocations, data: bytes = bytes(64)) -> Section:
    return Section(TEXT, data, ALLOC | EXECUTE, relocations=list(relocations))


def x86(*relocations, sections=(), symbols=None, data=bytes(64)):
    known = {"run": (TEXT, 0), "table": (".rodata", 8), "puts": ("", 0), **(symbols or {})}
    constants = Section(".rodata", bytes(range(32)), ALLOC)
    parts = [code(*relocations, data=data), constants, *sections]
    return link(build(X86_64, parts, known), ["run"])


def word(image, at: int, form: str = "<i") -> int:
    return struct.unpack_from(form, image.code, at)[0]


COMPILED = """module {
  llvm.func @GOMP_parallel(!llvm.ptr, !llvm.ptr, i32, i32)
  llvm.func internal @body(%p: !llvm.ptr) {
    %v = arith.constant dense<[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.5]> : vector<8xf32>
    llvm.store %v, %p : vector<8xf32>, !llvm.ptr
    llvm.return
  }
  llvm.func @run(%p: !llvm.ptr) {
    %z = llvm.mlir.constant(0 : i32) : i32
    %f = llvm.mlir.addressof @body : !llvm.ptr
    llvm.call @GOMP_parallel(%f, %p, %z, %z) : (!llvm.ptr, !llvm.ptr, i32, i32) -> ()
    llvm.return
  }
}"""


def test_parts_never_share_a_page():
    image = link(compile_object(COMPILED, ["run"]), ["run"])
    check_image(image, 4096)
    start, end = image.got_range
    assert 0 < image.text_end < start < end == len(image.code)
    assert [name for _, name in image.got] == ["GOMP_parallel"]
    constant = image.code.find(struct.pack("<8f", 1, 2, 3, 4, 5, 6, 7, 8.5))
    assert image.text_end <= constant < start
    assert not any(image.code[start:end])


def test_equal_objects_give_equal_images():
    made = compile_object(COMPILED, ["run"])
    assert link(made, ["run"]) == link(made, ["run"])


CALLER = """module {
  llvm.func @kernel(!llvm.ptr, i64)
  llvm.func @other(!llvm.ptr)
  llvm.func @run(%p: !llvm.ptr) {
    %n = llvm.mlir.constant(5 : i64) : i64
    llvm.call @kernel(%p, %n) : (!llvm.ptr, i64) -> ()
    llvm.call @other(%p) : (!llvm.ptr) -> ()
    llvm.return
  }
}"""
KERNEL = """module {
  llvm.mlir.global internal constant @local(7 : i64) : i64
  llvm.func internal @helper(%n: i64) -> i64 {
    %at = llvm.mlir.addressof @local : !llvm.ptr
    %v = llvm.load %at : !llvm.ptr -> i64
    %r = llvm.mul %n, %v : i64
    llvm.return %r : i64
  }
  llvm.func @kernel(%p: !llvm.ptr, %n: i64) {
    %r = llvm.call @helper(%n) : (i64) -> i64
    %to = llvm.load %p : !llvm.ptr -> !llvm.ptr
    llvm.store %r, %to : i64, !llvm.ptr
    llvm.return
  }
}"""
# The same names of internal functions and data as in KERNEL.
OTHER = KERNEL.replace("@kernel(%p: !llvm.ptr, %n: i64)", "@other(%p: !llvm.ptr)").replace(
    "%r = llvm.call @helper(%n)",
    "%at = llvm.load %p : !llvm.ptr -> !llvm.ptr\n"
    "    %n = llvm.load %at : !llvm.ptr -> i64\n    %r = llvm.call @helper(%n)",
)


def test_objects_call_each_other_and_keep_their_internal_names_apart():
    modules = [(CALLER, ["run"]), (KERNEL, ["kernel"]), (OTHER.replace("7 :", "3 :"), ["other"])]
    image = link([compile_object(*module) for module in modules], ["run"])
    check_image(image, 4096)
    assert image.got == ()
    result = ctypes.c_int64(0)
    loaded = LoadedImage(image)
    table = (ctypes.c_void_p * 1)(ctypes.addressof(result))
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(loaded.entry("run"))(ctypes.addressof(table))
    assert result.value == 5 * 7 * 3


def test_two_definitions_of_one_name_are_refused():
    objects = [compile_object(KERNEL, ["kernel"])] * 2
    with pytest.raises(CodegenError, match=r"two objects define .*kernel"):
        link(objects, [])


# kind, the value of the patched field given P (place), S (symbol), G (slot), GOT
X86_FIELDS = {
    "PC32": (2, "table", "<i", lambda p, s, g, got: s - p),
    "PLT32 inside": (4, "table", "<i", lambda p, s, g, got: s - p),
    "GOTPCREL": (9, "table", "<i", lambda p, s, g, got: g - p),
    "PC64": (24, "table", "<q", lambda p, s, g, got: s - p),
    "GOTOFF64": (25, "table", "<q", lambda p, s, g, got: s - got),
    "GOTPC32": (26, "table", "<i", lambda p, s, g, got: got - p),
    "GOT64": (27, "table", "<q", lambda p, s, g, got: g - got),
    "GOTPCREL64": (28, "table", "<q", lambda p, s, g, got: g - p),
    "GOTPC64": (29, "table", "<q", lambda p, s, g, got: got - p),
    "PLTOFF64": (31, "table", "<q", lambda p, s, g, got: s - got),
    "GOTPCRELX": (41, "table", "<i", lambda p, s, g, got: g - p),
    "REX_GOTPCRELX": (42, "table", "<i", lambda p, s, g, got: g - p),
}


@pytest.mark.parametrize("name", X86_FIELDS)
@pytest.mark.parametrize("addend", [0, -4, 12])
def test_x86_64_formulas(name, addend):
    kind, symbol, form, formula = X86_FIELDS[name]
    image = x86((16, kind, symbol, addend))
    got = image.got_range[0]
    table = 4096 + 8  # behind one page of text
    assert word(image, 16, form) == formula(16, table, got, got) + addend
    uses_slot = "GOT64" in name or "GOTPCREL" in name
    assert image.relocations == (((got, table),) if uses_slot else ())
    assert image.got == ()


def test_external_calls_go_through_stubs_in_the_text():
    image = x86((1, 4, "puts", -4), (11, 2, "puts", -4), data=b"\xe8" + bytes(63))
    stub = 1 + 4 + word(image, 1)
    assert stub == 11 + 4 + word(image, 11)  # one stub for all calls
    assert 64 <= stub < image.text_end
    assert image.code[stub : stub + 2] == b"\xff\x25"  # jmp *slot(%rip)
    assert stub + 6 + word(image, stub + 2) == image.got_range[0]
    assert image.got == ((image.got_range[0], "puts"),)


def test_relocated_data_is_patched_by_the_loader():
    pointers = Section(".data.rel.ro.x", bytes(16), ALLOC | WRITE, relocations=[(8, 1, "table", 3)])
    image = x86(sections=[pointers])
    start, _ = image.got_range
    assert image.relocations == ((start + 8, 4096 + 8 + 3),)
    check_image(image, 4096)


def test_what_is_not_loaded_is_left_out():
    unwinding = Section(".eh_frame", b"unwind", ALLOC, relocations=[(0, 10, "run", 0)])
    debug = Section(".debug_info", b"debug", 0, relocations=[(0, 10, "run", 0)])
    image = x86(sections=[unwinding, debug])
    assert b"unwind" not in image.code
    assert b"debug" not in image.code


REFUSED = {
    "absolute 32": (lambda: x86((16, 10, "table", 0)), "kind 10 .*\n.*table"),
    "thread-local": (lambda: x86((16, 19, "table", 0)), "kind 19"),
    "absolute 64 in code": (lambda: x86((16, 1, "table", 0)), "R_X86_64_64.*\n.*table"),
    "data of another module": (lambda: x86((16, 25, "puts", 0)), "GOTOFF64.*puts"),
    "overflow": (lambda: x86((16, 2, "table", 1 << 31)), "does not fit in 32 bits"),
    "writable": (
        lambda: x86(sections=[Section(".data", b"x", ALLOC | WRITE)]),
        ".data is writable",
    ),
    "thread-local data": (
        lambda: x86(sections=[Section(".tdata", b"x", ALLOC | WRITE | TLS)]),
        ".tdata is writable",
    ),
    "discarded": (
        lambda: x86(
            (16, 2, "gone", 0),
            sections=[Section(".eh_frame", b"x", ALLOC)],
            symbols={"gone": (".eh_frame", 0)},
        ),
        "gone",
    ),
    "no export": (lambda: link(build(X86_64, [code()], {"walk": (TEXT, 0)}), ["run"]), "'run'"),
    "export is data": (
        lambda: link(
            build(X86_64, [code(), Section(".rodata", b"x", ALLOC)], {"run": (".rodata", 0)}),
            ["run"],
        ),
        "'run'",
    ),
    "another machine": (lambda: link(build(8, [code()], {"run": (TEXT, 0)}), ["run"]), "EM_MIPS"),
    "a program": (
        lambda: link(build(X86_64, [code()], {"run": (TEXT, 0)}, kind=2), ["run"]),
        "ET_EXEC",
    ),
    "no ELF": (lambda: link(b"MZ" + bytes(100), ["run"]), "not valid ELF"),
    "not position-independent": (
        lambda: link(compile_object(COMPILED, ["run"], pic=False), ["run"]),
        "pic=True",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_name_their_cause(case):
    make, message = REFUSED[case]
    with pytest.raises(CodegenError, match=message):
        make()


# AArch64: instructions with empty fields, as an assembler leaves them.
ADRP_X0, ADD_X0, LDR_X0, LDR_Q0, BL, NOP = (
    0x90000000, 0x91000000, 0xF9400000, 0x3DC00000, 0x94000000, 0xD503201F,
)  # fmt: skip


def arm(words, *relocations):
    data = struct.pack(f"<{len(words)}I", *words)
    known = {"run": (TEXT, 0), "table": (".rodata", 0x1230), "puts": ("", 0)}
    constants = Section(".rodata", bytes(0x2000), ALLOC)
    return link(build(AARCH64, [code(*relocations, data=data), constants], known), ["run"])


def adrp(instruction: int, at: int) -> int:
    pages = (instruction >> 29 & 3) | (instruction >> 5 & 0x7FFFF) << 2
    return (at & ~0xFFF) + ((pages ^ 1 << 20) - (1 << 20) << 12)


def immediate12(instruction: int, scale: int) -> int:
    return (instruction >> 10 & 0xFFF) * scale


def branch(instruction: int, at: int) -> int:
    return at + (((instruction & 0x3FFFFFF) ^ 1 << 25) - (1 << 25)) * 4


@pytest.mark.parametrize(
    ("instruction", "kind", "scale"), [(ADD_X0, 277, 1), (LDR_X0, 286, 8), (LDR_Q0, 299, 16)]
)
def test_aarch64_addresses_of_constants(instruction, kind, scale):
    image = arm([ADRP_X0, instruction], (0, 275, "table", 0), (4, kind, "table", 0))
    table = image.text_end + 0x1230
    page, low = adrp(word(image, 0, "<I"), 0), immediate12(word(image, 4, "<I"), scale)
    assert page + low == table
    assert word(image, 4, "<I") & ~(0xFFF << 10) == instruction
    check_image(image, 65536)


def test_aarch64_addresses_through_slots():
    image = arm([ADRP_X0, LDR_X0], (0, 311, "puts", 0), (4, 312, "puts", 0))
    slot = adrp(word(image, 0, "<I"), 0) + immediate12(word(image, 4, "<I"), 8)
    assert image.got == ((slot, "puts"),)


def test_aarch64_calls_inside_and_outside():
    image = arm([NOP, BL, BL, NOP], (4, 283, "run", 0), (8, 283, "puts", 0))
    assert branch(word(image, 4, "<I"), 4) == 0
    stub = branch(word(image, 8, "<I"), 8)
    first, second, third, _ = struct.unpack_from("<4I", image.code, stub)
    assert (first & 0x9F00001F, second & 0xFFC003FF, third) == (0x90000010, 0xF9400211, 0xD61F0220)
    assert adrp(first, stub) + immediate12(second, 8) == image.got[0][0]


@pytest.mark.parametrize(
    ("kind", "addend", "message"),
    [(286, 4, "not aligned to the 8"), (263, 0, "kind 263"), (283, 1 << 28, "28 bits")],
)
def test_aarch64_refusals(kind, addend, message):
    with pytest.raises(CodegenError, match=message):
        arm([LDR_X0], (0, kind, "table", addend))
