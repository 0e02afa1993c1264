"""Makes `torch_mlir` find the dialect stablehlo at once; see the package docstring."""
