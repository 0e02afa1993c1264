"""The command `neuron-compile`: look into NEFFs and look after the cache.

In: arguments. Out: text on the terminal, and an exit code. Invariant: loads neither torch nor
torch_mlir and runs no code of a NEFF.

Typer reads the options from the functions' signatures, so that each command is its function; Rich,
which Typer brings along, draws the tables.
"""

from __future__ import annotations

import json
import sys
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NoReturn

try:
    import typer
except ModuleNotFoundError as missing:
    raise SystemExit(
        "error: the command line needs typer, which is not installed (neuron_compile.load does "
        "without)\n  what to do: pip install typer rich filelock"
    ) from missing
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from neuron_compile import __version__, environment, options
from neuron_compile.cache import upkeep
from neuron_compile.cache.explain import differences, nearest, records
from neuron_compile.cache.layout import Found
from neuron_compile.cache.publish import ORPHAN_SECONDS
from neuron_compile.disk_cache import cache_root, open_store
from neuron_compile.errors import NeffFormatError, NeuronCompileError
from neuron_compile.listing import age, summary
from neuron_compile.neff import describe
from neuron_compile.neff.target import parse

app = typer.Typer(
    name="neuron-compile",
    help="Look into NEFFs and look after the cache of compiled graphs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
cache = typer.Typer(help="The cache of compiled graphs.", no_args_is_help=True)
app.add_typer(cache, name="cache")

Root = Annotated[
    Path | None,
    typer.Option("--root", help="The cache's directory, if not the one in use here."),
]
File = Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="A NEFF.")]
Prefix = Annotated[str, typer.Argument(help="The beginning of a graph hash, as `ls` shows it.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for other programs.")]

# Digits of a hash: those that `ls` shows, which tell a thousand graphs apart, and those of a
# command that deletes, which tell any apart.
_DIGITS = 8
_DIGITS_TO_DELETE = 12
_MOST_DIFFERENCES = 8
_NARROWEST = 40
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_DAY = 24 * 3600.0
# A younger file may belong to a process that writes it just now.
_GRACE = f"{ORPHAN_SECONDS / 60:g} minutes"


def main() -> None:
    """Run the command; an error of ours is printed without a traceback and ends with code 1."""
    try:
        app()
    except NeuronCompileError as error:
        _fail(str(error))


@app.command()
def info(file: File, as_json: AsJson = False) -> None:
    """Say what is inside a NEFF: nodes, kernels, target, provenance."""
    described = describe.describe(file)
    if as_json:
        typer.echo(json.dumps(described, indent=2, sort_keys=True, default=str))
    else:
        typer.echo(describe.as_text(described), nl=False)


@app.command()
def unpack(
    file: File,
    folder: Annotated[Path | None, typer.Argument(help="Default: the file's name.")] = None,
) -> None:
    """Write the members of a NEFF into a folder, as plain files."""
    target = folder or file.with_suffix("")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        _fail(f"{target} exists and is not an empty folder; name another one")
    for path in describe.unpack(file, target):
        typer.echo(path)


@app.command("options")
def show_options() -> None:
    """List the options of torch.compile and the environment variables."""
    for title, knobs in (
        ('torch.compile(model, backend="neuron", options={...})', options.KNOBS),
        ("environment variables", environment.KNOBS),
    ):
        typer.echo(f"{title}\n")
        for knob in knobs.values():
            marks = f"default: {knob.default!r}" + (", part of the key" if knob.in_key else "")
            typer.echo(f"  {knob.name}  ({marks})")
            typer.echo(_wrapped(knob.meaning, "      "))
        typer.echo()


@app.command("target")
def show_target() -> None:
    """Say which instruction set this machine compiles for."""
    typer.echo(environment.read().detect_target().name)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


@cache.command("ls")
def list_entries(root: Root = None, as_json: AsJson = False) -> None:
    """List the entries, the most recently used first: whose graph, its inputs, its kind."""
    place = _root(root)
    found = sorted(upkeep.entries(place), key=lambda entry: -entry.modified)
    if as_json:
        typer.echo(json.dumps([_as_data(entry) for entry in found], indent=2))
        return
    if not found:
        typer.echo(f"no entries in {place}")
    for target in sorted({entry.target for entry in found}):
        typer.echo(f"for {target}")
        Console().print(_listed([entry for entry in found if entry.target == target]))


@cache.command()
def show(prefix: Prefix, root: Root = None) -> None:
    """Describe the entries of a graph."""
    for entry in _matching(_root(root), prefix):
        typer.echo(f"{entry.path}\n")
        typer.echo(describe.as_text(_described_entry(entry)))


@cache.command("usage")
def show_usage(root: Root = None) -> None:
    """Sum up the cache: entries, bytes, leftovers."""
    place = _root(root)
    used = upkeep.usage(place)
    typer.echo(f"{place}: {used.entries} entries, {_size(used.entry_bytes)}")
    for target, count in used.targets:
        typer.echo(f"  {target}: {count}")
    if used.unfinished or used.quarantined:
        typer.echo(
            f"  {used.unfinished} unfinished and {used.quarantined} damaged files, "
            f"{_size(used.other_bytes)}; `gc` removes those that are older than {_GRACE}"
        )


@cache.command()
def verify(root: Root = None) -> None:
    """Check every entry; ends with code 1 if one is damaged. Changes nothing."""
    place = _root(root)
    if not place.is_dir():
        typer.echo(f"there is no directory {place} yet: no entry was ever stored")
        return
    targets = sorted({entry.target for entry in upkeep.entries(place)})
    faults = [
        fault for target in targets for fault in upkeep.verify(open_store(place, parse(target)))
    ]
    for fault in faults:
        typer.echo(f"{fault.path}: {fault.detail}")
    typer.echo(f"{sum(1 for _ in upkeep.entries(place))} entries, {len(faults)} damaged")
    if faults:
        raise typer.Exit(1)


@cache.command()
def explain(
    prefix: Prefix,
    other: Annotated[str, typer.Argument(help="Another graph; default: the most similar.")] = "",
    root: Root = None,
) -> None:
    """Say in which parts of its key a graph differs from another, so why both were compiled."""
    place = _root(root)
    entry = max(_matching(place, prefix), key=lambda found: found.modified)
    store = open_store(place, parse(entry.target))
    this = next(iter(records(store, [entry])), None)
    if this is None:
        _fail(f"{entry.path} is damaged or of another version; `cache verify` says what is wrong")
    candidates = _matching(place, other) if other else upkeep.entries(place)
    others = [found for found in candidates if found.path != entry.path]
    that = nearest(this, records(store, sorted(others, key=lambda found: -found.modified)))
    if that is None:
        _fail("there is no other entry to compare with")
    found_that = next(found for found in others if found.path == that.path)
    _say_pair(_line_of(entry), _line_of(found_that))
    typer.echo("" if other else "        (the most similar of the other entries)\n")
    found = differences(that, this)
    for difference in found[:_MOST_DIFFERENCES]:
        if difference.texts is None:
            typer.echo(str(difference))
            continue
        stored, wanted = difference.texts
        typer.echo(difference.title)
        _say_pair(wanted, stored)
    if len(found) > _MOST_DIFFERENCES:
        typer.echo(f"and {len(found) - _MOST_DIFFERENCES} more")


@cache.command()
def gc(
    root: Root = None,
    max_size: Annotated[str, typer.Option(help="Keep at most so much, such as 500M or 10G.")] = "",
    max_age: Annotated[float | None, typer.Option(help="Days since the last use.")] = None,
) -> None:
    """Delete what was unused the longest, and what killed processes left."""
    _report(
        upkeep.gc(
            _root(root),
            max_bytes=_bytes(max_size) if max_size else None,
            max_age=None if max_age is None else max_age * _DAY,
        )
    )


@cache.command()
def clear(
    prefix: Annotated[str, typer.Argument(help="Only graphs whose hash begins so.")] = "",
    root: Root = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete entries: all, or those of a graph."""
    place = _root(root)
    if not yes:
        what = f"the entries of {prefix}..." if prefix else "every entry"
        typer.confirm(f"Delete {what} in {place}?", abort=True)
    _report(upkeep.delete(place, prefix) if prefix else upkeep.clear(place))


def _fail(message: str) -> NoReturn:
    typer.echo(f"error: {message}", err=True)
    sys.exit(1)


def _root(named: Path | None) -> Path:
    """The directory named, which must be there, or the one in use, which the first entry makes."""
    if named is not None and not named.is_dir():
        _fail(f"there is no directory {named}")
    root = named or cache_root(environment.read())
    if root is None:
        _fail("there is no cache directory; set TORCH_NEURONX_NEFF_CACHE_DIR or pass --root")
    return root


def _matching(root: Path, prefix: str) -> list[Found]:
    found = [entry for entry in upkeep.entries(root) if entry.graph_hash.startswith(prefix)]
    if not found:
        _fail(f"no entry in {root} has a graph hash that begins with {prefix!r}")
    return found


def _described_entry(entry: Found) -> dict[str, object]:
    """As `describe`; a damaged entry may be deleted, which a file of the user's must not be."""
    try:
        return describe.describe(entry.path)
    except NeffFormatError as error:
        raise NeffFormatError(
            error.what,
            where=str(entry.path),
            why=error.why,
            remedy=f"`neuron-compile cache clear {entry.graph_hash[:_DIGITS_TO_DELETE]}` deletes "
            "the graph's entries; they are built again when they are needed",
        ) from error


def _report(removal: upkeep.Removal) -> None:
    typer.echo(f"removed {len(removal.removed)} files, {_size(removal.freed_bytes)}")
    for path, reason in removal.failed:
        typer.echo(f"not removed: {path}: {reason}", err=True)
    if removal.failed:
        raise typer.Exit(1)


def _say_pair(this: str, that: str) -> None:
    """Two texts below each other, in lines as wide as the terminal."""
    for label, text in (("  this  ", this), ("  that  ", that)):
        typer.echo(_wrapped(text, label))


def _wrapped(text: str, label: str) -> str:
    """`text` behind `label`, in lines as wide as the terminal."""
    width = max(Console().width, _NARROWEST)
    return textwrap.fill(text, width, initial_indent=label, subsequent_indent=" " * len(label))


def _line_of(entry: Found) -> str:
    described = summary(entry)
    return f"{entry.graph_hash[:_DIGITS]}  {described.title}, {described.kind}, {described.shapes}"


def _listed(found: Sequence[Found]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("graph", no_wrap=True)
    table.add_column("of", overflow="fold")
    table.add_column("inputs", overflow="fold")
    table.add_column("kind", no_wrap=True)
    table.add_column("size", no_wrap=True, justify="right")
    table.add_column("used", no_wrap=True, justify="right")
    now = time.time()
    for entry in found:
        described = summary(entry)
        table.add_row(
            entry.graph_hash[:_DIGITS],
            escape(described.title),
            escape(described.shapes),
            escape(described.kind),
            _size(entry.size),
            age(now - entry.modified),
        )
    return table


def _as_data(entry: Found) -> dict[str, object]:
    described = summary(entry)
    return {
        "of": described.title,
        "kind": described.kind,
        "inputs": list(described.inputs),
        "weights": described.weights,
        "path": str(entry.path),
        "graph": entry.graph_hash,
        "shapes": entry.shape_signature,
        "target": entry.target,
        "bytes": entry.size,
        "last_used": entry.modified,
    }


def _size(count: int) -> str:
    for unit, factor in reversed(_UNITS.items()):
        if count >= factor:
            return f"{count / factor:.1f} {unit}iB"
    return f"{count} B"


def _bytes(text: str) -> int:
    number, unit = text.strip().upper().removesuffix("IB").removesuffix("B"), 1
    if number and number[-1] in _UNITS:
        number, unit = number[:-1], _UNITS[number[-1]]
    try:
        value = float(number) * unit
    except ValueError:
        value = -1.0
    if value < 0:
        _fail(f"{text!r} is not a size; write 500M or 10G")
    return int(value)
