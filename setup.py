"""In: the folder list of the checkout. Out: setuptools' list of packages and where each lies.

The four stage folders stand at the top of the repository and are installed below neuron_compile.
"""

from setuptools import find_packages, setup

STAGES = ("lowering", "passes", "neff", "cache")


def installed_packages() -> dict[str, str]:
    """Installed package name -> folder, for every folder that holds an `__init__.py`."""
    roots = {"neuron_compile": "neuron_compile"}
    roots |= {f"neuron_compile.{stage}": stage for stage in STAGES}
    packages = dict(roots)
    for name, folder in roots.items():
        for inner in find_packages(folder):
            packages[f"{name}.{inner}"] = f"{folder}/{inner.replace('.', '/')}"
    return packages


if __name__ == "__main__":
    setup(package_dir=installed_packages(), packages=sorted(installed_packages()))
