"""Benchmarks against eager PyTorch and TorchInductor: `python -m benchmarks [names] [--check]`.

In: named cases. Out: tables of ratios, and a JSON record with versions and machine. Invariant: what
is compared runs in one process, interleaved, on the same inputs, and has given equal results.
"""
