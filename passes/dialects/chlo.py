"""Makes `torch_mlir` find the dialect chlo at once; see the package docstring."""
