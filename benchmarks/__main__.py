"""Command line of the benchmarks: `python -m benchmarks [names] [--check] [--json FILE]`."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path


def arguments() -> argparse.Namespace:
    """Options, see --help."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", help="cases, or `startup` and `overhead`; default: all")
    parser.add_argument("--list", action="store_true", help="name the cases and stop")
    parser.add_argument("--check", action="store_true", help="fail if a threshold is missed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the record here")
    parser.add_argument("--seconds", type=float, default=3.0, help="per case and competitor")
    parser.add_argument("--threads", type=int, help="for all competitors; default: torch's own")
    return parser.parse_args()


def main() -> int:
    """Run the cases; 0 unless --check found a miss."""
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        # Compile times are cold: neither competitor may find what an earlier run left. These are
        # set before torch is imported, as TorchInductor reads its own once.
        os.environ["TORCH_NEURONX_NEFF_CACHE_DIR"] = f"{folder}/neuron"
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = f"{folder}/inductor"
        from benchmarks import session

        if options.list:
            print("\n".join(session.NAMES))
            return 0
        return session.run(
            options.names, options.seconds, options.threads, options.json, options.check
        )


if __name__ == "__main__":
    sys.exit(main())
