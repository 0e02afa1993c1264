"""Random bits: the published test vectors, the same stream however it is vectorised, the new state."""

# Lines of MLIR are not wrapped.
# ruff: noqa: E501

from __future__ import annotations

import numpy as np
import pytest

from neuron_compile.neff.target import detect
from tests.neff.codegen.native import outlined, run

WORD = 0xFFFFFFFF


def philox(key: int, counter: int) -> list[int]:
    """One block of Philox4x32-10, written from the paper's definition."""
    c = [counter >> (32 * i) & WORD for i in range(4)]
    k = [key & WORD, key >> 32]
    for r in range(10):
        if r:
            k = [(k[0] + 0x9E3779B9) & WORD, (k[1] + 0xBB67AE85) & WORD]
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & WORD, (a >> 32) ^ c[3] ^ k[1], a & WORD]
    return c


def threefry(key: int, counter: int) -> list[int]:
    """One block of Threefry2x32-20."""
    ks = [key & WORD, key >> 32]
    ks.append(0x1BD11BDA ^ ks[0] ^ ks[1])
    x, y = (counter + ks[0]) & WORD, ((counter >> 32) + ks[1]) & WORD
    for i in range(20):
        x = (x + y) & WORD
        r = (13, 15, 26, 6, 17, 29, 16, 24)[i % 8]
        y = ((y << r | y >> (32 - r)) & WORD) ^ x
        if i % 4 == 3:
            s = i // 4 + 1
            x, y = (x + ks[s % 3]) & WORD, (y + ks[(s + 1) % 3] + s) & WORD
    return [x, y]


def test_the_definitions_give_the_published_vectors() -> None:
    """From the known-answer tests of Random123."""
    assert philox(0, 0) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert philox((1 << 64) - 1, (1 << 128) - 1) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    assert threefry(0, 0) == [0x6B200159, 0x99BA4EFE]
    assert threefry((1 << 64) - 1, (1 << 64) - 1) == [0x1CB996FC, 0xBB002BE7]


def generator(algorithm: str, shape: str, elem: str, state: int = 2) -> str:
    s, t = f"tensor<{state}xui64>", f"tensor<{shape}x{elem}>"
    return f"""(%s: {s}) -> ({s}, {t}) {{
  %n, %r = stablehlo.rng_bit_generator %s, algorithm = {algorithm} : ({s}) -> ({s}, {t})
  return %n, %r : {s}, {t}
}}
"""


def stream(algorithm: str, state: list[int], count: int) -> list[int]:
    """The first `count` words."""
    block, modulus = (threefry, 1 << 64) if algorithm == "THREE_FRY" else (philox, 1 << 128)
    key, counter = state[0], sum(x << (64 * i) for i, x in enumerate(state[1:]))
    if len(state) == 2:
        modulus = 1 << 64
    words: list[int] = []
    i = 0
    while len(words) < count:
        words += block(key, (counter + i) % modulus)
        i += 1
    return words[:count]


STATES = [[1, 2], [(1 << 64) - 1, (1 << 64) - 3], [0x123456789ABCDEF0, 1 << 40]]


@pytest.mark.parametrize("target", ["native", "x86-64-v3"])
@pytest.mark.parametrize("shape", ["1", "7", "64", "1000", "6x37", "5x64"])
@pytest.mark.parametrize("algorithm", ["PHILOX", "THREE_FRY"])
def test_words_in_order(algorithm: str, shape: str, target: str) -> None:
    for state in STATES:
        new, got = run(
            outlined(generator(algorithm, shape, "ui32"), "random"),
            [np.array(state, np.uint64)],
            detect(target),
        )
        want = stream(algorithm, state, got.size)
        np.testing.assert_array_equal(got.reshape(-1), np.array(want, np.uint32))
        used = -(-got.size // (2 if algorithm == "THREE_FRY" else 4))
        assert new.tolist() == [state[0], (state[1] + used) % (1 << 64)]


@pytest.mark.parametrize("algorithm", ["PHILOX", "THREE_FRY"])
@pytest.mark.parametrize("elem", ["ui8", "i16", "i32", "ui64", "i64"])
def test_other_widths(algorithm: str, elem: str) -> None:
    state = [77, 5]
    new, got = run(
        outlined(generator(algorithm, "103", elem), "random"), [np.array(state, np.uint64)]
    )
    wide = elem.endswith("64")
    words = stream(algorithm, state, 103 * (2 if wide else 1))
    if wide:
        words = [a | b << 32 for a, b in zip(words[::2], words[1::2], strict=True)]
    np.testing.assert_array_equal(got, np.array(words, np.uint64).astype(got.dtype))
    assert new[1] == 5 + -(
        -len(words if not wide else got.repeat(2)) // (2 if algorithm == "THREE_FRY" else 4)
    )


def test_a_counter_of_128_bits_carries() -> None:
    state = [9, (1 << 64) - 2, 7]
    new, got = run(
        outlined(generator("PHILOX", "40", "ui32", 3), "random"), [np.array(state, np.uint64)]
    )
    np.testing.assert_array_equal(got, np.array(stream("PHILOX", state, 40), np.uint32))
    assert new.tolist() == [9, 8, 8]


DROPOUT = """(%x: tensor<33x70xf32>, %s: tensor<2xui64>) -> (tensor<33x70xf32>) {
  %n, %r = stablehlo.rng_bit_generator %s, algorithm = PHILOX : (tensor<2xui64>) -> (tensor<2xui64>, tensor<33x70xui32>)
  %c = stablehlo.constant dense<2147483648> : tensor<33x70xui32>
  %k = stablehlo.compare LT, %r, %c : (tensor<33x70xui32>, tensor<33x70xui32>) -> tensor<33x70xi1>
  %z = stablehlo.constant dense<0.0> : tensor<33x70xf32>
  %o = stablehlo.select %k, %x, %z : tensor<33x70xi1>, tensor<33x70xf32>
  return %o : tensor<33x70xf32>
}
"""


def test_bits_are_used_where_they_are_made() -> None:
    x = np.arange(1, 33 * 70 + 1, dtype=np.float32).reshape(33, 70)
    (got,) = run(outlined(DROPOUT, "random"), [x, np.array([3, 4], np.uint64)])
    bits = np.array(stream("PHILOX", [3, 4], x.size), np.uint32).reshape(x.shape)
    np.testing.assert_array_equal(got, np.where(bits < 1 << 31, x, 0))
