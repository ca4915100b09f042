"""Wishes for silence: which texts are one, and the same as a bias, so that a muffled "stop" is not heard as "stars"."""

from __future__ import annotations

import re
from typing import Final

from appliance.voice.asr.protocol import BiasState, Extension, Hypothesis, Reach

__all__ = ["SilenceBias", "asks_for_silence", "wishes_silence"]

GAP: Final = 3.5
"""A wish for silence whose log-probability is so much less than that of the free text is still taken for what was said:
in mid-reply it is likelier than what anybody else might say, and all that it ends is a sound."""

_WORDS: Final = re.compile(r"[a-z']+")
_WISHES: Final = frozenset({"stop", "quiet", "silence", "enough", "hush", "cancel"})
_PHRASES: Final = frozenset({"shut up", "never mind", "shush"})
_BESIDES: Final = frozenset(
    {
        *("please", "okay", "ok", "now", "it", "this", "that", "that's", "thats", "the", "be", "just", "hey", "oh"),
        *("talking", "speaking", "ringing", "alarm", "timer", "thanks", "thank", "you", "all", "right", "wren", "nabu"),
    }
)
_MOST_WORDS: Final = 6
_SAID: Final = (
    *("stop", "stop it", "stop that", "stop please", "please stop", "stop stop", "okay stop", "stop now"),
    *("stop talking", "stop the alarm", "stop the timer", "be quiet", "quiet", "quiet please"),
    *("enough", "that's enough", "shut up", "never mind", "cancel", "hush", "silence"),
)


def wishes_silence(text: str) -> bool:
    """Whether a text asks for silence and for nothing else."""
    words = _WORDS.findall(text.lower())
    if not words or len(words) > _MOST_WORDS:
        return False
    rest = " ".join(words)
    for phrase in _PHRASES:
        rest = rest.replace(phrase, "stop")
    words = rest.split()
    return not _WISHES.isdisjoint(words) and all(word in _WISHES or word in _BESIDES for word in words)


def asks_for_silence(hypothesis: Hypothesis) -> bool:
    """Whether what was heard is a wish for silence, or near enough to one."""
    if wishes_silence(hypothesis.text):
        return True
    phrase_logp = hypothesis.phrase_logp
    # Where nothing was read, nobody spoke: any phrase would be as near.
    near = bool(hypothesis.text) and phrase_logp is not None and hypothesis.logp - phrase_logp <= GAP
    return near and hypothesis.phrase is not None and wishes_silence(hypothesis.phrase)


class SilenceBias:
    """The wishes that people utter, as a `Bias`: a place is the letters so far."""

    version = 0
    start: BiasState = ""

    def step(self, state: BiasState, letters: str) -> BiasState | None:
        """See `Bias`."""
        said = " ".join(f"{state}{letters}|".split()).removesuffix("|").removeprefix(" ")
        return said if any(phrase.startswith(said) or phrase == said.strip() for phrase in _SAID) else None

    def complete(self, state: BiasState) -> bool:
        """See `Bias`."""
        return str(state).strip() in _SAID

    def extension(self, state: BiasState) -> Extension:
        """See `Bias`: nobody waits for more."""
        return Extension.NONE

    def look(self, text: str) -> Reach:
        """See `Bias`."""
        said = " ".join(_WORDS.findall(text.lower()))
        return Reach(any(phrase.startswith(said) for phrase in _SAID), said in _SAID, Extension.NONE)
