"""`python -m neuron_compile`: the command line, for those whose PATH does not reach the script."""

from neuron_compile.cli import main

if __name__ == "__main__":
    main()
