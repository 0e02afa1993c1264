"""`neuron_compile/__init__.py`: light to import, public names load what they name."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import neuron_compile
from neuron_compile import errors
from neuron_compile.runtime.numpy_api import load

ROOT = Path(__file__).resolve().parent.parent


def test_importing_the_package_imports_nothing_heavy():
    script = (
        "import sys, neuron_compile; "
        "print(sorted({name.split('.')[0] for name in sys.modules} & "
        "{'torch', 'torch_mlir', 'numpy', 'elftools', 'filelock', 'rich', 'typer'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_names_are_loaded_on_first_use():
    assert neuron_compile.load is load
    assert set(neuron_compile._LAZY) < set(neuron_compile.__all__)
    assert dir(neuron_compile) == sorted(neuron_compile.__all__)
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        neuron_compile.lode  # noqa: B018


def test_no_public_function_has_the_name_of_a_module():
    """Importing such a module would put it in the function's place."""
    modules = {path.stem for path in (ROOT / "neuron_compile").iterdir()}
    modules |= {path.stem for path in ROOT.iterdir() if (path / "__init__.py").exists()}
    assert not modules & set(neuron_compile._LAZY)


def test_every_error_is_public_and_has_one_base():
    tree = [value for value in vars(errors).values() if isinstance(value, type)]
    for error in tree:
        if issubclass(error, Exception):
            assert issubclass(error, neuron_compile.NeuronCompileError)
            assert getattr(neuron_compile, error.__name__) is error


def test_messages_have_their_parts_in_order():
    error = errors.LoweringError("it broke", where="a.py:3", why="no", remedy="wait")
    assert str(error) == "it broke\n  where: a.py:3\n  why: no\n  what to do: wait"
    assert str(errors.PassError("it broke", why="no")) == "it broke\n  why: no"
    assert errors.UnsupportedOpError("two", ops=["a", "b"]).ops == ("a", "b")


@pytest.mark.parametrize("kind", [errors.LoweringError, errors.UnsupportedOpError])
def test_errors_cross_process_boundaries(kind):
    error = kind("it broke", where="a.py:3", why="no")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.what, again.where) == (str(error), "it broke", "a.py:3")
