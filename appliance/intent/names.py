"""How the names of a home are said: every spoken form of a name, as plain words.

Names come from people and from other programs. Nothing in them is ever read as template syntax, and one odd name
cannot spoil the others.
"""

from __future__ import annotations

import re
import unicodedata

from appliance.intent.language import Language
from appliance.intent.normalise import normalise_name

__all__ = ["spoken_forms", "without_area"]

_LETTER_DIGIT = re.compile(r"(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])")
_JOINED = re.compile(r"(?<=\w)[-./_](?=\w)")
_INITIALS = re.compile(r"\b(?:[^\W\d_]\.){2,}")
_LONGEST_NAME = 100
"""Characters of a name that are looked at; a longer one is not said in full."""


def spoken_forms(name: str, language: Language) -> tuple[str, ...]:
    """Every way the name may come out of a recogniser, the plainest first; empty only for a blank name.

    "Wi-Fi" is said as two words and written as one; "Anna's" may lose its apostrophe; "PM2.5" may be cut
    between letters and digits; "A.C." may come as letters or as a word.
    """
    name = name[:_LONGEST_NAME]
    said = normalise_name(name, language)
    forms = [
        said,
        said.replace("'", ""),
        _LETTER_DIGIT.sub(" ", said),
        " ".join(w for w in said.split() if not _is_symbol(w)),
    ]
    if _JOINED.search(name):
        forms.append(normalise_name(_JOINED.sub("", name), language))
        forms.append(normalise_name(_INITIALS.sub(lambda m: m[0].replace(".", " "), name), language))
    known = dict.fromkeys(" ".join(f.split()) for f in forms)
    return tuple(form for form in known if form)


def without_area(form: str, area_forms: tuple[str, ...], language: Language) -> str | None:
    """The rest of a name that begins with its area: "office main light" in the office is a "main light".

    None where nothing is left but words for kinds of things: "kitchen light" must not become "light".
    """
    for area in sorted(area_forms, key=len, reverse=True):
        rest = form.removeprefix(f"{area} ")
        if rest != form and not all(w in language.class_words for w in rest.split()):
            return rest
    return None


def _is_symbol(word: str) -> bool:
    return all(unicodedata.category(c)[0] == "S" for c in word)
