"""What all searches share: how a text reads in the grammar, where a phrase may begin, what was found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from appliance.voice.asr.bias_tokens import Letters
from appliance.voice.asr.protocol import Bias, BiasState, Hypothesis, Reach

__all__ = ["Found", "LeadSettings", "Reading", "hypothesis_of"]


@dataclass(frozen=True, slots=True)
class LeadSettings:
    """When something may be left out in front of a phrase: a breath or a rest of the wake word heard as words."""

    tokens: int = 4
    """At most so many of the free text; 0: nothing is left out."""
    cost: float = 3.0
    """What that costs, in natural logarithm."""
    words: int = 3
    """Such a phrase has at least so many words: a single name is too easily found in anything."""


class Reading:
    """A text's way through a grammar, token by token."""

    def __init__(self, bias: Bias, letters: Letters, tokens: Iterable[int] = ()) -> None:
        self._bias = bias
        self._letters = letters
        self._text = ""
        """What it has read, the token that left the grammar included."""
        self.state: BiasState | None = bias.start
        """Where it stands; None where it has left the grammar."""
        self.passed: set[BiasState] = set()
        """Where it has been and gone on from: a phrase that ends there leaves out what was said after it ("what's the
        temperature" of "what's the temperature of the …")."""
        for token in tokens:
            self.take(token)

    def take(self, token: int) -> None:
        """One token on."""
        if self.state is None:
            return
        letters = self._letters.of(token)
        if letters is None or letters.strip():
            self.passed.add(self.state)
        self.state = None if letters is None else self._bias.step(self.state, letters)
        self._text += letters or " "

    @property
    def began_otherwise(self) -> bool:
        """Whether its first word already was none of the grammar: what comes before a phrase may be left out then.
        Behind a word that phrases begin with, it would be a part of the command."""
        return self.state is None and " " not in self._text.strip()


@dataclass(frozen=True, slots=True)
class Found:
    """Free text and best phrase as ids."""

    ids: tuple[int, ...]
    logp: float
    """Of all that was decided for the text, its end or its blanks included."""
    phrase: tuple[int, ...] | None = None
    """None where no whole phrase is near."""
    phrase_logp: float = 0.0
    phrase_state: BiasState | None = None
    """Where the phrase ends in the grammar."""


def hypothesis_of(
    found: Found, text: Callable[[Sequence[int]], str], bias: Bias | None, cut: str | None = None
) -> Hypothesis:
    """What a search found, as text. `cut` as in `Hypothesis`."""
    said = text(found.ids)
    heard = Hypothesis(said, found.logp, len(found.ids), cut=cut)
    if bias is None:
        return heard
    heard = replace(heard, reach=bias.look(said))
    if found.phrase is None or found.phrase_state is None:
        return heard
    return replace(
        heard,
        phrase=text(found.phrase),
        phrase_logp=found.phrase_logp,
        phrase_reach=Reach(True, True, bias.extension(found.phrase_state)),
    )
