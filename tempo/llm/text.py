"""Between text and tokens: `tokenizer.json`, read by the `tokenizers` library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tempo.llm.errors import CheckpointError


@dataclass(frozen=True)
class Tokenizer:
    """`library` is a `tokenizers.Tokenizer`."""

    library: Any

    @staticmethod
    def open(folder: Path, vocabulary: int) -> Tokenizer:
        """That of a model that knows so many tokens.

        Raises `CheckpointError` where there is none, or one that has more, and `ImportError` without `tokenizers`.
        """
        path = folder / "tokenizer.json"
        if not path.exists():
            raise CheckpointError(f"{folder} holds no tokenizer.json", hint="give tokens instead: lists of integers")
        try:
            from tokenizers import Tokenizer as Library
        except ImportError as error:
            raise ImportError("texts need the library tokenizers: python -m pip install tempo-sdg[llm]") from error
        try:
            library = Library.from_file(str(path))
        except Exception as error:  # the library raises nothing narrower
            raise CheckpointError(f"{path} is no tokenizer: {error}") from error
        largest = max(library.get_vocab(with_added_tokens=True).values(), default=-1)
        if largest >= vocabulary:
            raise CheckpointError(
                f"{path} makes tokens up to {largest}, but the model knows {vocabulary}: they belong to two models"
            )
        return Tokenizer(library)

    def encode(self, text: str, around: bool = True) -> list[int]:
        """With what the model expects `around` a text, such as a token that begins it."""
        return list(self.library.encode(text, add_special_tokens=around).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """Without special tokens."""
        return str(self.library.decode(list(tokens), skip_special_tokens=True))


@dataclass(eq=False)
class Detokenizer:
    """The text of tokens that come one by one: `text` so far.

    What tokens add is what they have more than those before them, decoded together with the last that were shown, since
    a tokenizer may treat the first of a text differently. A character whose bytes are not all there yet comes with the
    last of them.
    """

    tokenizer: Tokenizer
    tokens: list[int] = field(default_factory=list)
    text: str = ""
    _shown: tuple[int, int] = (0, 0)  # the last piece is that of these tokens

    def add(self, token: int) -> str:
        """What the token adds to the text; nothing where more has to follow."""
        self.tokens.append(token)
        piece = self._new()
        return "" if piece.endswith("\N{REPLACEMENT CHARACTER}") else self._show(piece)

    def end(self) -> str:
        """What was held back."""
        return self._show(self._new())

    def _new(self) -> str:
        start, end = self._shown
        before = self.tokenizer.decode(self.tokens[start:end])
        return self.tokenizer.decode(self.tokens[start:])[len(before) :]

    def _show(self, piece: str) -> str:
        if piece:
            self.text += piece
            self._shown = self._shown[1], len(self.tokens)
        return piece
