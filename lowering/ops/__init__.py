"""StableHLO emitters, one file per family of operators; each registers with `registry.emits`."""
