"""A NEFF in, a callable on raw buffers or NumPy arrays out. Never imports torch or torch_mlir."""
