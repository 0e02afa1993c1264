"""Code generation: outlined StableHLO groups in, LLVM-dialect text of one native module out."""
