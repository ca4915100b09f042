"""Reply templates, rendered in a sandbox: they can read what they are given and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from appliance.errors import IntentError

if TYPE_CHECKING:
    from jinja2 import Template
    from jinja2.sandbox import ImmutableSandboxedEnvironment

__all__ = ["MAX_REPLY_CHARS", "render"]

MAX_REPLY_CHARS = 600
"""Half a minute of speech; no reply is meant to be longer, whatever the names in it."""


def render(source: str, variables: Mapping[str, object]) -> str:
    """Render one template to a single line. Raises IntentError where the template is broken."""
    from jinja2 import TemplateError

    pieces = []
    length = 0
    try:
        for piece in _template(source).generate(variables):
            pieces.append(piece)
            length += len(piece)
            if length > 4 * MAX_REPLY_CHARS:  # templates are indented: most of a long one is white space
                break
    except (TemplateError, TypeError, ValueError, ArithmeticError) as error:
        raise IntentError(f"a reply template cannot be rendered ({error}): {source[:60]!r}") from error
    line = " ".join("".join(pieces).split())
    return line if len(line) <= MAX_REPLY_CHARS else line[:MAX_REPLY_CHARS].rsplit(" ", 1)[0]


@cache
def _template(source: str) -> Template:
    # The sources are the package's and ours, a few hundred at most: the cache cannot grow beyond them.
    return _environment().from_string(source)


@cache
def _environment() -> ImmutableSandboxedEnvironment:
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    return ImmutableSandboxedEnvironment()
