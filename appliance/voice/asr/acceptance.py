"""Free text or phrase: which of the two a recognition stands for, and how sure that is. Pure.

Where the numbers are from: Moonshine base (INT8) on the 94 commands of `shared/speech`, clean and in kitchen noise at
10 dB, on the 135 recordings that are none, and on near misses (each command with its rarest word taken out of the
grammar, so that another meaning is wrong); `benchmarks/bias_bench.py` repeats it. Looked for far and wide, 33 of the 35
right phrases that stood in for a text that meant nothing had gaps of at most 5.3 (the others 6.7 and 9.9). Wrong ones
began at 0.6 ("on" for an "off" lost in noise), but opposites and numbers at 6.1: "lock" for "unlock" 6.1, "100" for
"10" 6.7, "6" for "5" 9.4. The line is drawn below those. At 8, near misses go beyond 2 % and no clean command is won.

The line was drawn on the clips that it is judged by, of few speakers: expect less on others. On the same cases the gap
a word kept fewer right phrases for the same number of wrong ones (25 to 31 of 35 against 27 to 33), and taking the free
text's own log-probability off it was now better, now worse by two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from appliance.intent.types import Understanding
from appliance.voice.asr.protocol import Extension, Hypothesis, Reach

__all__ = ["ACCEPT_GAP", "CLEAR_LOGP", "EARLY_GAP", "Accepted", "accepted_text", "clearly_heard"]

ACCEPT_GAP: Final = 6.0
"""A phrase counts where it is at most this much less probable than the free text (natural logarithm)."""
EARLY_GAP: Final = 2.0
"""The same for ending an utterance early: a wrong end cuts somebody off, so the evidence must be stronger."""
CLEAR_LOGP: Final = -0.22
"""Mean log-probability of a text's tokens, its end among them, from which it was clearly heard. Of the commands of
`shared/speech`, 65 of the 74 that were read word for word reach it. With a pause put in, 14 looked whole before it: six
reach it, all of them sentences as they stand ("what's the date" of "… today"); eight do not, stopped in mid-word."""

_NOWHERE: Final = Reach(False, False, Extension.NONE)


@dataclass(frozen=True, slots=True)
class Accepted:
    """What a recognition is taken for."""

    understanding: Understanding
    """What it means; `intent` is None where neither text nor phrase means anything."""
    text: str
    """The words that it was read from: those of `understanding`."""
    source: Literal["free", "phrase"]
    gap: float
    """How much less probable the phrase is than the free text, >= 0; 0 where the text is a phrase itself, infinite
    where no phrase is near."""
    complete: bool
    """Whether it is a whole sentence that means something."""
    extension: Extension
    """What may still follow."""

    @property
    def extendable(self) -> bool:
        """Whether something people pause before may follow: then it is worth waiting a little."""
        return self.extension is Extension.LIKELY

    @property
    def certain(self) -> bool:
        """Whether the evidence is strong enough to end the utterance early."""
        return self.complete and self.gap <= EARLY_GAP


def clearly_heard(hypothesis: Hypothesis) -> bool:
    """Whether the recogniser was sure of the free text."""
    return hypothesis.logp >= CLEAR_LOGP * (hypothesis.tokens + 1)


def accepted_text(hypothesis: Hypothesis, understood: Callable[[str], Understanding]) -> Accepted:
    """The free text where it means something, else the phrase where it is near enough, else the free text.

    `understood` gives a text's meaning without side effects (`Thinker.match` with the session's area); it is called
    once or twice. Without a bias the free text is all there is, and `gap` is infinite: never `certain`.
    """
    reach = hypothesis.reach or _NOWHERE
    gap = _gap(hypothesis, reach)
    meaning = understood(hypothesis.text)
    if meaning.intent is not None:
        return Accepted(meaning, hypothesis.text, "free", gap, True, _extension(hypothesis.text, reach))
    phrase = hypothesis.phrase
    if phrase is not None and phrase != hypothesis.text and gap <= ACCEPT_GAP:
        of_phrase = understood(phrase)
        if of_phrase.intent is not None:
            phrase_reach = hypothesis.phrase_reach or _NOWHERE
            return Accepted(of_phrase, phrase, "phrase", gap, True, _extension(phrase, phrase_reach))
    return Accepted(meaning, hypothesis.text, "free", gap, False, reach.extension)


def _extension(text: str, reach: Reach) -> Extension:
    """What may follow. Behind a number its unit or its next figure ("100" "percent"): people pause before those."""
    ends_in_number = text.rstrip(" .!?")[-1:].isdigit()
    return Extension.LIKELY if ends_in_number and reach.extension is Extension.RARE else reach.extension


def _gap(hypothesis: Hypothesis, reach: Reach) -> float:
    if reach.complete:
        return 0.0
    if hypothesis.phrase_logp is None:
        return float("inf")
    return max(0.0, hypothesis.logp - hypothesis.phrase_logp)
