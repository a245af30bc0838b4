"""What continues rows of tokens greedily: Tempo's models, and what they are compared with.

Each is made from a model's folder. `generate` gives the `count` tokens that follow each row, all rows of one length;
`logprobs` the natural logarithm of the probability of each token of a text but the first.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np

Rows = list[list[int]]


class Continuing(Protocol):
    def generate(self, rows: Rows, count: int) -> Rows: ...

    def logprobs(self, row: Sequence[int]) -> np.ndarray: ...


@dataclass
class Ours:
    """`model` is of `tempo.llm`."""

    model: Any

    def generate(self, rows: Rows, count: int) -> Rows:
        return [list(made.tokens) for made in self.model.generate(rows, max_new_tokens=count)]

    def stream(self, row: list[int], count: int) -> str:
        return "".join(self.model.stream(row, max_new_tokens=count))

    def text(self, row: list[int], count: int) -> str:
        return str(self.model.generate(row, max_new_tokens=count)[0].text)

    def logprobs(self, row: Sequence[int]) -> np.ndarray:
        return np.array(self.model.score(list(row))[0].logprobs)


def ours(folder: Path, backend: str, device: str, quantize: str | None = None) -> Ours:
    import tempo as tp

    return Ours(tp.llm.load(folder, backend=backend, device=device, quantize=quantize))


@dataclass
class Transformers:
    """`cache`: None is the one that grows by a token each step, "static" the one that is as long as the whole run."""

    model: Any
    cache: str | None

    def generate(self, rows: Rows, count: int) -> Rows:
        torch = import_module("torch")
        given = torch.tensor(rows, device=self.model.device)
        kind = {"cache_implementation": self.cache} if self.cache else {}
        made = self.model.generate(
            given,
            attention_mask=torch.ones_like(given),
            max_new_tokens=count,
            do_sample=False,
            pad_token_id=0,
            **kind,
        )
        found: Rows = made[:, len(rows[0]) :].tolist()
        return found

    def logprobs(self, row: Sequence[int]) -> np.ndarray:
        torch = import_module("torch")
        with torch.inference_mode():
            logits = self.model(torch.tensor([list(row)], device=self.model.device)).logits[0]
        return of_tokens(logits, row)


def of_tokens(logits: Any, row: Sequence[int]) -> np.ndarray:
    """Of PyTorch's logits (positions, vocabulary), what was said of the tokens that did follow."""
    torch = import_module("torch")
    said = torch.log_softmax(logits[:-1].float(), -1)
    found: np.ndarray = said[torch.arange(len(row) - 1), torch.tensor(row[1:])].cpu().numpy()
    return found


def _transformers(cache: str | None, folder: Path, device: str) -> Transformers:
    library = import_module("transformers")
    library.logging.disable_progress_bar()
    library.logging.set_verbosity_error()
    return Transformers(library.LlamaForCausalLM.from_pretrained(folder, dtype="auto").to(device), cache)


def _compiled_loop(folder: Path, device: str) -> Continuing:
    from benchmarks.llm.compiled_loop import CompiledLoop

    return CompiledLoop.read(folder, device)


def _llama_cpp(folder: Path, device: str) -> Continuing:
    from benchmarks.llm.llama_cpp_peer import LlamaCpp

    return LlamaCpp.read(folder)


# -- what there is to compare with -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Peer:
    """`make` takes a folder and a device. `needs`: libraries; `why_not` says what else is wanting, if anything is."""

    make: Callable[[Path, str], Continuing]
    needs: tuple[str, ...]
    why_not: Callable[[], str | None] = lambda: None
    rows: int | None = None  # how many it takes at most

    def missing(self) -> str | None:
        """Why it cannot be compared with here."""
        absent = [name for name in self.needs if importlib.util.find_spec(name) is None]
        return f"{' and '.join(absent)} not installed" if absent else self.why_not()


def _no_compiler() -> str | None:
    """PyTorch's own code generator for processors writes C++."""
    return None if any(map(shutil.which, ("g++", "clang++"))) else "torch.compile needs a C++ compiler"


PEERS = {
    "transformers, dynamic": Peer(partial(_transformers, None), ("torch", "transformers")),
    "transformers, static": Peer(partial(_transformers, "static"), ("torch", "transformers")),
    "compiled loop": Peer(_compiled_loop, ("torch", "safetensors"), _no_compiler),
    "llama.cpp": Peer(_llama_cpp, ("llama_cpp", "gguf"), rows=1),
}


def peers(names: Sequence[str]) -> Iterator[tuple[str, Peer]]:
    """Those that are there; of the others it is told why they are left out."""
    for name in names:
        missing = PEERS[name].missing()
        if missing is None:
            yield name, PEERS[name]
        else:
            print(f"\n{name} is left out: {missing}")
