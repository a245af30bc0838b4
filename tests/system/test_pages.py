"""The pages run as they stand: python blocks in order, and text blocks are what was printed.

    python tests/system/test_pages.py docs/one_program.md

runs a page and writes anew what its blocks print.
"""

from __future__ import annotations

import contextlib
import io
import json
import linecache
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tempo as tp
from tempo.plugins import PluginManager

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WHERE = re.compile(r"<[\w.]+\.md:\d+>:(\d+)")  # as a location is told: the line in its block

SKETCHES = {"docs/design/internals.md"}
"""What is python there declares the seams between parts, and is no program."""

NEEDS = {
    "docs/devices.md": ("jax",),
    "docs/from_jax.md": ("jax",),
    "docs/from_pytorch.md": ("torch",),
    "docs/inside_frameworks.md": ("jax", "torch", "tempo_jax", "tempo_torch"),
    "docs/language_models.md": ("jax", "torch", "tempo_jax", "tempo_torch", "tokenizers", "jinja2"),
    "docs/training.md": ("safetensors",),
    "docs/tutorial.md": ("safetensors",),
    "docs/guides/checkpoints.md": ("safetensors",),
    "docs/guides/language_model.md": ("tokenizers", "safetensors"),
}
ALONE = {"docs/devices.md"}
"""In a process of its own, in which nobody has used JAX yet."""

SLOW = {"docs/language_models.md"}


def pages() -> list[str]:
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    named = [page.relative_to(ROOT).as_posix() for page in found if "_build" not in page.parts]
    return [page for page in named if page not in SKETCHES and "```python\n" in (ROOT / page).read_text()]


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.slow if page in SLOW else ()) for page in pages()]
)
def test_page(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in NEEDS.get(page, ()):
        pytest.importorskip(module)
    monkeypatch.chdir(tmp_path)
    for name in ("TEMPO_BACKEND", "TEMPO_SCHEDULER"):  # pages have the defaults
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("tempo.plugins.manager._DEFAULT", PluginManager())  # what pages register goes with them
    if page not in ALONE:
        assert ran(page, **given(page)) == (ROOT / page).read_text()
        return
    found = subprocess.run([sys.executable, __file__, "--check", page], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


def given(page: str) -> dict[str, Any]:
    """What a page says that its reader has: of language models a checkpoint, and data to train on."""
    if page != "docs/language_models.md":
        return {}
    from tokenizers import Tokenizer, models, pre_tokenizers

    config = {
        "model_type": "llama", "vocab_size": 20, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2,
        "num_attention_heads": 2, "tie_word_embeddings": True, "max_position_embeddings": 1024,
    }  # fmt: skip
    draw = np.random.default_rng(0)
    weights = {
        name: draw.normal(size=(*(2 for _ in weight.dims), *weight.shape)).astype(np.float32)
        for name, weight in tp.llm.read_family(tp.llm.Config(config)).weights().items()
    }
    tokenizer = Tokenizer(models.WordLevel({f"w{number}": number for number in range(20)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    ends = {"eos_token_id": list(range(20))}  # whatever is said first
    tp.llm.save("Llama-3.2-1B", config, weights, tokenizer=tokenizer, generation=ends)
    template = {"chat_template": "{% for message in messages %}{{ message['content'] }} {% endfor %}"}
    Path("Llama-3.2-1B", "tokenizer_config.json").write_text(json.dumps(template))
    batches = (draw.integers(0, 20, (8, 64), dtype=np.int32) for _ in range(100))
    return {"config": config, "tokenizer": tokenizer, "batches": batches}


def ran(page: str, **given: Any) -> str:
    """The page's text with what its blocks print, where it has these names."""
    path = ROOT / page
    text = path.read_text()
    names: dict[str, Any] = {"__name__": "page", **given}
    parts, end = list[str](), 0
    printed: str | None = None
    for match in BLOCK.finditer(text):
        if match[1] == "python":
            printed = run_block(path, match[2], text[: match.start()].count("\n") + 1, names)
        elif printed is not None:
            shown = WHERE.sub(r"program.py:\1", printed.strip("\n")).replace(f"{Path.cwd()}/", "")
            lines = "".join(f"{line.rstrip()}\n" for line in shown.splitlines())
            parts += [text[end : match.start(2)], lines]
            end, printed = match.end(2), None
    return "".join([*parts, text[end:]])


def run_block(path: Path, source: str, line: int, names: dict[str, Any]) -> str:
    """Execute one block; errors point at the line of the page."""
    name = f"<{path.name}:{line}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, name, "exec"), names)
    return printed.getvalue()


LINK = re.compile(r"\]\((?P<path>[^)#:\s]*)(?:#(?P<anchor>[^)\s]+))?\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


@pytest.mark.parametrize(
    "page", [*sorted((ROOT / "docs").rglob("*.md")), *ROOT.glob("*.md")], ids=lambda page: page.stem
)
def test_links_lead_somewhere(page: Path) -> None:
    """As on a code host: paths from the page's folder, headings by their words."""
    for found in LINK.finditer(page.read_text()):
        target = (page.parent / found["path"]).resolve() if found["path"] else page
        assert target.exists(), found[0]
        if found["anchor"]:
            assert found["anchor"] in set(anchors(target)), found[0]


def anchors(page: Path) -> Iterator[str]:
    for heading in HEADING.findall(page.read_text()):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def is_error(name: str) -> bool:
    kind = getattr(tp, name)
    return isinstance(kind, type) and issubclass(kind, tp.TempoError | Warning)


def test_the_reference_has_every_public_name() -> None:
    text = "\n".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    told = set(re.findall(r"auto(?:function|class):: (?:[\w.]+\.)?(\w+)", text)) | set(re.findall(r"`tp\.(\w+)`", text))
    assert {name for name in tp.__all__ if not is_error(name)} <= told
    for library in (tp.nn, tp.optim, tp.rl, tp.llm):
        assert set(library.__all__) <= told | {"init", "FAMILIES"}


def test_every_public_error_has_an_entry() -> None:
    headings = re.findall(r"^## (\w+)$", (ROOT / "docs" / "errors.md").read_text(), re.MULTILINE)
    assert sorted(headings) == sorted(filter(is_error, tp.__all__))


def test_the_page_of_commands_has_every_variable() -> None:
    python = [path for place in ("tempo", "schedulers", "backends") for path in (ROOT / place).rglob("*.py")]
    sources = [path for path in python if "tests" not in path.parts[len(ROOT.parts) :]]
    read = {name for path in sources for name in re.findall(r'"(TEMPO_[A-Z_]+)"', path.read_text())}
    told = set(re.findall(r"TEMPO_[A-Z_]+", (ROOT / "docs" / "reference" / "commands.md").read_text()))
    assert read - {"TEMPO_", "TEMPO_MESH_PROCESS"} == told


def main(page: str, check: bool) -> int:
    path = Path(page).resolve().relative_to(ROOT).as_posix() if not check else page
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        text = ran(path, **given(path))
    if check:
        return int(text != (ROOT / path).read_text())
    (ROOT / path).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[-1], "--check" in sys.argv[1:-1]))
