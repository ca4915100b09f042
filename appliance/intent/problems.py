"""Why something was not done, as a key with values; the sentence is the language's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from appliance.intent.grammar import Grammar
from appliance.intent.templating import render

__all__ = ["Problem", "sentence_for"]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that stands in the way of a command."""

    key: str
    """Names the sentence: one of the package's errors or of our own problems."""
    values: Mapping[str, object] = field(default_factory=dict)


def sentence_for(problem: Problem, grammar: Grammar) -> str:
    """The sentence that says the problem."""
    return render(grammar.problems[problem.key], problem.values)
