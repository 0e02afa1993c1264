"""Outlined StableHLO in, NEFF file out; and the validating reader of such files.

Reading (`schema`, `reader`, `target`) needs only the standard library and NumPy; building
(`build`, `compile_object`, `link`, `codegen`) needs torch_mlir. This file imports neither.
"""
