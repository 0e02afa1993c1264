"""StableHLO texts that several tests of the passes read.

In: sizes. Out: module texts. Invariant: each computes what its name says, as a naive frontend
would write it.
"""

from __future__ import annotations


def rms_norm(rows: int = 4, size: int = 8) -> str:
    """x (bf16) and w (f32) -> x * rsqrt(mean(x*x) + eps) * w, in f32."""
    full, row = f"tensor<{rows}x{size}xf32>", f"tensor<{rows}xf32>"
    column = f"tensor<{rows}x1xf32>"
    return f"""
func.func @main(%x: tensor<{rows}x{size}xbf16>, %w: tensor<{size}xf32>) -> {full} {{
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %e = stablehlo.constant dense<1.0e-5> : {column}
  %n = stablehlo.constant dense<{float(size)}> : {row}
  %0 = stablehlo.convert %x : (tensor<{rows}x{size}xbf16>) -> {full}
  %1 = stablehlo.multiply %0, %0 : {full}
  %2 = stablehlo.reduce(%1 init: %z) applies stablehlo.add across dimensions = [1]
      : ({full}, tensor<f32>) -> {row}
  %3 = stablehlo.divide %2, %n : {row}
  %4 = stablehlo.reshape %3 : ({row}) -> {column}
  %5 = stablehlo.add %4, %e : {column}
  %6 = stablehlo.rsqrt %5 : {column}
  %7 = stablehlo.broadcast_in_dim %6, dims = [0, 1] : ({column}) -> {full}
  %8 = stablehlo.multiply %0, %7 : {full}
  %9 = stablehlo.broadcast_in_dim %w, dims = [1] : (tensor<{size}xf32>) -> {full}
  %10 = stablehlo.multiply %8, %9 : {full}
  return %10 : {full}
}}"""


def attention(
    *,
    batch: int = 2,
    heads: int = 3,
    queries: int = 5,
    keys: int = 5,
    size: int = 4,
    groups: int = 1,
    dtype: str = "f32",
    scale: bool = True,
    causal: bool = False,
    mask: str = "",
    safe: bool = False,
    softcap: bool = False,
    flat: bool = False,
    lse: bool = False,
    turned: bool = False,
    other: str = "",
) -> str:
    """softmax(q k^T) v over [batch, heads, length, size] with the usual additions.

    `groups` query heads share one key head, repeated by a broadcast; `flat` merges batch and heads
    around the dots; `lse` also returns the log-sum-exp; `turned` returns [batch, length, heads,
    size]; `other` makes it something that is not attention.
    """
    heads *= groups
    inner, shared = f"{batch}x{heads}", f"{batch}x{heads // groups}"
    q, k = f"tensor<{inner}x{queries}x{size}x{dtype}>", f"tensor<{shared}x{keys}x{size}x{dtype}>"
    full = f"tensor<{inner}x{keys}x{size}x{dtype}>"
    narrow = f"tensor<{inner}x{queries}x{keys}x{dtype}>"
    scores = f"tensor<{inner}x{queries}x{keys}xf32>"
    rows = f"tensor<{inner}x{queries}xf32>"
    flags, row_flags = scores.replace("f32", "i1"), rows.replace("f32", "i1")
    lines: list[str] = []
    names = {"q": "%q", "k": "%k", "v": "%v"}

    def line(text: str) -> str:
        lines.append(f"  %{len(lines)} = stablehlo.{text}")
        return f"%{len(lines) - 1}"

    def convert(value: str, source: str, target: str) -> str:
        if source == target:
            return value
        return line(f"convert {value} : ({source}) -> {target}")

    def dot(a: str, ta: str, b: str, tb: str, over: str, result: str) -> str:
        if flat:
            fa, fb, fr = (t.replace(inner, str(batch * heads)) for t in (ta, tb, result))
            a = line(f"reshape {a} : ({ta}) -> {fa}")
            b = line(f"reshape {b} : ({tb}) -> {fb}")
            over = " x ".join(f"[{int(d) - 1}]" for d in over.split())
            made = line(
                f"dot_general {a}, {b}, batching_dims = [0] x [0], contracting_dims = {over} "
                f": ({fa}, {fb}) -> {fr}"
            )
            return line(f"reshape {made} : ({fr}) -> {result}")
        over = " x ".join(f"[{d}]" for d in over.split())
        return line(
            f"dot_general {a}, {b}, batching_dims = [0, 1] x [0, 1], contracting_dims = {over} "
            f": ({ta}, {tb}) -> {result}"
        )

    zero = line("constant dense<0.0> : tensor<f32>")
    lowest = line("constant dense<0xFF800000> : tensor<f32>")
    if groups > 1:
        middle = f"tensor<{shared}x{groups}x{keys}x{size}x{dtype}>"
        for name in ("k", "v"):
            wide = line(f"broadcast_in_dim {names[name]}, dims = [0, 1, 3, 4] : ({k}) -> {middle}")
            names[name] = line(f"reshape {wide} : ({middle}) -> {full}")
    s = convert(dot(names["q"], q, names["k"], full, "3 3", narrow), narrow, scores)
    raw = s
    if scale:
        half = line(f"constant dense<0.5> : {scores}")
        s = line(f"multiply {s}, {half} : {scores}")
    if softcap:
        s = line(f"tanh {s} : {scores}")
    if mask == "add":
        bias = line(
            f"broadcast_in_dim %m, dims = [2, 3] : (tensor<{queries}x{keys}xf32>) -> {scores}"
        )
        s = line(f"add {s}, {bias} : {scores}")
    if mask == "select":
        kept = line(f"broadcast_in_dim %b, dims = [0, 3] : (tensor<{batch}x{keys}xi1>) -> {flags}")
        low = line(f"constant dense<-1.0e9> : {scores}")
        s = line(f"select {kept}, {s}, {low} : {flags}, {scores}")
    if causal:
        i = line(f"iota dim = 2 : {scores.replace('f32', 'i64')}")
        j = line(f"iota dim = 3 : {scores.replace('f32', 'i64')}")
        t = scores.replace("f32", "i64")
        ahead = line(f"compare GT, {j}, {i} : ({t}, {t}) -> {flags}")
        low = line(f"constant dense<0xFF800000> : {scores}")
        s = line(f"select {ahead}, {low}, {s} : {flags}, {scores}")
    over = 2 if other == "columns" else 3
    row_dims = "0, 1, 3" if over == 2 else "0, 1, 2"

    def reduce(value: str, init: str, op: str, kind: str, result: str) -> str:
        return line(
            f"reduce({value} init: {init}) applies stablehlo.{op} across dimensions = [{over}] "
            f": ({kind}, tensor<{kind.split('x')[-1]}) -> {result}"
        )

    def again(value: str) -> str:
        return line(f"broadcast_in_dim {value}, dims = [{row_dims}] : ({rows}) -> {scores}")

    extra = ""
    if other == "relu":
        none = line(f"constant dense<0.0> : {scores}")
        p = line(f"maximum {s}, {none} : {scores}")
    else:
        top = reduce(s, lowest, "maximum", scores, rows)
        wide = again(top)
        e = line(f"subtract {s}, {wide} : {scores}")
        e = line(f"exponential {e} : {scores}")
        total = reduce(e, zero, "add", scores, rows)
        wide = again(total)
        p = line(f"divide {e}, {wide} : {scores}")
        if lse:
            log = line(f"log {total} : {rows}")
            extra = line(f"add {top}, {log} : {rows}")
    if safe:
        true = line("constant dense<true> : tensor<i1>")
        low = line(f"constant dense<0xFF800000> : {scores}")
        none = line(f"constant dense<0.0> : {scores}")
        gone = line(f"compare EQ, {s}, {low} : ({scores}, {scores}) -> {flags}")
        empty = reduce(gone, true, "and", flags, row_flags)
        empty = line(f"broadcast_in_dim {empty}, dims = [0, 1, 2] : ({row_flags}) -> {flags}")
        p = line(f"select {empty}, {none}, {p} : {flags}, {scores}")
    weights = convert(p, scores, narrow)
    values = names["v"]
    if other == "values from scores":
        part = line(
            f"slice {raw} [0:{batch}, 0:{heads}, 0:{keys}, 0:{size}] : ({scores}) -> {full}"
        )
        values = line(f"add {values}, {part} : {full}")
    o = dot(weights, narrow, values, full, "3 2", q)
    result = q
    if turned:
        result = f"tensor<{batch}x{queries}x{heads}x{size}x{dtype}>"
        o = line(f"transpose {o}, dims = [0, 2, 1, 3] : ({q}) -> {result}")
    outputs, types = [o], [result]
    for value, kind in ((extra, rows), (p if other == "weights" else "", scores)):
        if value:
            outputs.append(value)
            types.append(kind)
    if other == "scores":
        outputs.append(raw)
        types.append(scores)
    body = "\n".join(lines)
    return f"""
func.func @main(%q: {q}, %k: {k}, %v: {k}, %m: tensor<{queries}x{keys}xf32>,
    %b: tensor<{batch}x{keys}xi1>) -> ({", ".join(types)}) {{
{body}
  return {", ".join(outputs)} : {", ".join(types)}
}}"""


def softmax(rows: int = 4, size: int = 8, *, log: bool = False) -> str:
    """softmax or log_softmax over the last dim."""
    full, row = f"tensor<{rows}x{size}xf32>", f"tensor<{rows}xf32>"
    last = (
        f"""  %7 = stablehlo.log %5 : {row}
  %8 = stablehlo.broadcast_in_dim %7, dims = [0] : ({row}) -> {full}
  %9 = stablehlo.subtract %3, %8 : {full}"""
        if log
        else f"""  %8 = stablehlo.broadcast_in_dim %5, dims = [0] : ({row}) -> {full}
  %9 = stablehlo.divide %4, %8 : {full}"""
    )
    return f"""
func.func @main(%x: {full}) -> {full} {{
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %l = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %1 = stablehlo.reduce(%x init: %l) applies stablehlo.maximum across dimensions = [1]
      : ({full}, tensor<f32>) -> {row}
  %2 = stablehlo.broadcast_in_dim %1, dims = [0] : ({row}) -> {full}
  %3 = stablehlo.subtract %x, %2 : {full}
  %4 = stablehlo.exponential %3 : {full}
  %5 = stablehlo.reduce(%4 init: %z) applies stablehlo.add across dimensions = [1]
      : ({full}, tensor<f32>) -> {row}
{last}
  return %9 : {full}
}}"""


def layer_norm_backward(rows: int = 4, size: int = 8) -> str:
    """Gradients of x, weight and bias from g, x, mean, 1/std and weight."""
    full, row, col = f"tensor<{rows}x{size}xf32>", f"tensor<{rows}xf32>", f"tensor<{size}xf32>"
    return f"""
func.func @main(%g: {full}, %x: {full}, %mean: {row}, %rstd: {row}, %w: {col})
    -> ({full}, {col}, {col}) {{
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %n = stablehlo.constant dense<{1 / size}> : {row}
  %0 = stablehlo.broadcast_in_dim %mean, dims = [0] : ({row}) -> {full}
  %1 = stablehlo.subtract %x, %0 : {full}
  %2 = stablehlo.broadcast_in_dim %rstd, dims = [0] : ({row}) -> {full}
  %xhat = stablehlo.multiply %1, %2 : {full}
  %3 = stablehlo.broadcast_in_dim %w, dims = [1] : ({col}) -> {full}
  %gw = stablehlo.multiply %g, %3 : {full}
  %4 = stablehlo.reduce(%gw init: %z) applies stablehlo.add across dimensions = [1]
      : ({full}, tensor<f32>) -> {row}
  %5 = stablehlo.multiply %4, %n : {row}
  %6 = stablehlo.multiply %gw, %xhat : {full}
  %7 = stablehlo.reduce(%6 init: %z) applies stablehlo.add across dimensions = [1]
      : ({full}, tensor<f32>) -> {row}
  %8 = stablehlo.multiply %7, %n : {row}
  %9 = stablehlo.broadcast_in_dim %5, dims = [0] : ({row}) -> {full}
  %10 = stablehlo.subtract %gw, %9 : {full}
  %11 = stablehlo.broadcast_in_dim %8, dims = [0] : ({row}) -> {full}
  %12 = stablehlo.multiply %xhat, %11 : {full}
  %13 = stablehlo.subtract %10, %12 : {full}
  %dx = stablehlo.multiply %13, %2 : {full}
  %14 = stablehlo.multiply %g, %xhat : {full}
  %dw = stablehlo.reduce(%14 init: %z) applies stablehlo.add across dimensions = [0]
      : ({full}, tensor<f32>) -> {col}
  %db = stablehlo.reduce(%g init: %z) applies stablehlo.add across dimensions = [0]
      : ({full}, tensor<f32>) -> {col}
  return %dx, %dw, %db : {full}, {col}, {col}
}}"""


def mlp(rows: int = 4, size: int = 8, hidden: int = 16, *, saved: bool = False) -> str:
    """linear, GELU, linear; `saved` also returns the pre-activation, as training does."""
    x, h = f"tensor<{rows}x{size}xf32>", f"tensor<{rows}x{hidden}xf32>"
    w1, w2 = f"tensor<{hidden}x{size}xf32>", f"tensor<{size}x{hidden}xf32>"
    b1, b2 = f"tensor<{hidden}xf32>", f"tensor<{size}xf32>"
    outputs, types = ("%11, %2", f"{x}, {h}") if saved else ("%11", x)
    return f"""
func.func @main(%x: {x}, %w1: {w1}, %b1: {b1}, %w2: {w2}, %b2: {b2}) -> ({types}) {{
  %half = stablehlo.constant dense<0.5> : {h}
  %one = stablehlo.constant dense<1.0> : {h}
  %r = stablehlo.constant dense<0.70710678> : {h}
  %0 = stablehlo.dot_general %x, %w1, contracting_dims = [1] x [1] : ({x}, {w1}) -> {h}
  %1 = stablehlo.broadcast_in_dim %b1, dims = [1] : ({b1}) -> {h}
  %2 = stablehlo.add %0, %1 : {h}
  %3 = stablehlo.multiply %2, %r : {h}
  %4 = chlo.erf %3 : {h} -> {h}
  %5 = stablehlo.add %4, %one : {h}
  %6 = stablehlo.multiply %2, %half : {h}
  %7 = stablehlo.multiply %6, %5 : {h}
  %8 = stablehlo.dot_general %7, %w2, contracting_dims = [1] x [1] : ({h}, {w2}) -> {x}
  %9 = stablehlo.broadcast_in_dim %b2, dims = [1] : ({b2}) -> {x}
  %10 = stablehlo.add %8, %9 : {x}
  %11 = stablehlo.add %10, %x : {x}
  return {outputs} : {types}
}}"""


def cross_entropy(rows: int = 4, classes: int = 8) -> str:
    """Mean over the rows of logsumexp(x) - x[label]."""
    full, row = f"tensor<{rows}x{classes}xf32>", f"tensor<{rows}xf32>"
    labels = f"tensor<{rows}xi64>"
    ints, flags = full.replace("f32", "i64"), full.replace("f32", "i1")
    return f"""
func.func @main(%x: {full}, %t: {labels}) -> tensor<f32> {{
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %l = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zeros = stablehlo.constant dense<0.0> : {full}
  %n = stablehlo.constant dense<{float(rows)}> : tensor<f32>
  %1 = stablehlo.reduce(%x init: %l) applies stablehlo.maximum across dimensions = [1]
      : ({full}, tensor<f32>) -> {row}
  %2 = stablehlo.broadcast_in_dim %1, dims = [0] : ({row}) -> {full}
  %3 = stablehlo.subtract %x, %2 : {full}
  %4 = stablehlo.exponential %3 : {full}
  %5 = stablehlo.reduce(%4 init: %z) applies stablehlo.add across dimensions = [1]
      : ({full}, tensor<f32>) -> {row}
  %6 = stablehlo.log %5 : {row}
  %7 = stablehlo.iota dim = 1 : {ints}
  %8 = stablehlo.broadcast_in_dim %t, dims = [0] : ({labels}) -> {ints}
  %9 = stablehlo.compare EQ, %7, %8 : ({ints}, {ints}) -> {flags}
  %10 = stablehlo.select %9, %3, %zeros : {flags}, {full}
  %11 = stablehlo.reduce(%10 init: %z) applies stablehlo.add across dimensions = [1]
      : ({full}, tensor<f32>) -> {row}
  %12 = stablehlo.subtract %6, %11 : {row}
  %13 = stablehlo.reduce(%12 init: %z) applies stablehlo.add across dimensions = [0]
      : ({row}, tensor<f32>) -> tensor<f32>
  %14 = stablehlo.divide %13, %n : tensor<f32>
  return %14 : tensor<f32>
}}"""


def conv_block(channels: int = 4, size: int = 6) -> str:
    """conv 3x3, batch norm with running statistics, residual, ReLU; NCHW."""
    x, w = f"tensor<2x{channels}x{size}x{size}xf32>", f"tensor<{channels}x{channels}x3x3xf32>"
    c = f"tensor<{channels}xf32>"
    return f"""
func.func @main(%x: {x}, %w: {w}, %mean: {c}, %var: {c}, %g: {c}, %b: {c}) -> {x} {{
  %e = stablehlo.constant dense<1.0e-5> : {c}
  %zeros = stablehlo.constant dense<0.0> : {x}
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1],
      window = {{stride = [1, 1], pad = [[1, 1], [1, 1]]}}
      {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : ({x}, {w}) -> {x}
  %1 = stablehlo.add %var, %e : {c}
  %2 = stablehlo.rsqrt %1 : {c}
  %3 = stablehlo.broadcast_in_dim %mean, dims = [1] : ({c}) -> {x}
  %4 = stablehlo.subtract %0, %3 : {x}
  %5 = stablehlo.multiply %2, %g : {c}
  %6 = stablehlo.broadcast_in_dim %5, dims = [1] : ({c}) -> {x}
  %7 = stablehlo.multiply %4, %6 : {x}
  %8 = stablehlo.broadcast_in_dim %b, dims = [1] : ({c}) -> {x}
  %9 = stablehlo.add %7, %8 : {x}
  %10 = stablehlo.add %9, %x : {x}
  %11 = stablehlo.maximum %10, %zeros : {x}
  return %11 : {x}
}}"""
