"""A model's tokens as letters, so that a grammar of letters can say which tokens may follow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from appliance.intent.phrase_text import plain_letters
from appliance.voice.asr.protocol import Bias, BiasState

__all__ = ["Letters"]


class Letters:
    """Letters of every token of a vocabulary. Immutable; one for each model."""

    def __init__(self, pieces: Iterable[str | None]) -> None:
        """`pieces`: text of each token, its spaces included; None for control tokens and parts of characters."""
        self._letters = tuple(None if piece is None else plain_letters(piece) for piece in pieces)

    def of(self, token: int) -> str | None:
        """Letters of a token, "" for punctuation; None where it can be in no phrase."""
        return self._letters[token] if token < len(self._letters) else None

    def words(self, tokens: Sequence[int]) -> int:
        """Number of words in some tokens."""
        return len("".join(self.of(token) or "" for token in tokens).split())

    def step(self, bias: Bias, state: BiasState, token: int) -> BiasState | None:
        """Where a token leads in a grammar; None: nowhere."""
        letters = self.of(token)
        return None if letters is None else bias.step(state, letters)
