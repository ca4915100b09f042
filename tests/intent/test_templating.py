"""Replies are one bounded line, and a template can do nothing but read."""

from __future__ import annotations

import pytest

from appliance.errors import IntentError
from appliance.intent.templating import MAX_REPLY_CHARS, render
from tests.intent.homes import assistant, entity, say


def test_a_reply_is_one_line() -> None:
    assert render("  Turned\n\n on {{ x }}  ", {"x": "the\tlight"}) == "Turned on the light"


def test_a_reply_is_bounded() -> None:
    assert len(render("{{ x }}", {"x": "word " * 10_000})) <= MAX_REPLY_CHARS
    assert len(render("{% for i in range(99999) %}word {% endfor %}", {})) <= MAX_REPLY_CHARS


@pytest.mark.parametrize(
    "source",
    [
        "{{ x.__class__.__mro__ }}",
        "{{ ''.__class__.__subclasses__() }}",
        "{% set _ = items.append(1) %}",
        "{% for i in range(99999999) %}{% endfor %}",
        "{{ 1 / 0 }}",
        "{{ broken",
        "{{ missing.attribute.of_it }}",
    ],
)
def test_a_template_that_reaches_further_is_refused(source: str) -> None:
    with pytest.raises(IntentError, match="reply template"):
        render(source, {"x": 1, "items": []})


def test_a_name_is_never_a_template() -> None:
    name = "{{ 7 * 7 }} {% if %}"
    who = assistant(entity(name, "siren"))
    assert say(who, f"turn on {name}").text == f"Turned on {name}"


def test_numbers_come_back_as_they_were_said() -> None:
    who = assistant()
    assert say(who, "set a timer for twenty five minutes", "a").text == "Timer set for twenty five minutes"
    assert say(who, "set a timer for 25 minutes", "b").text == "Timer set for 25 minutes"
    assert say(who, "set a timer for one hour", "c").text == "Timer set for one hour"
    assert say(who, "set a timer for an hour", "d").text == "Timer set for 1 hour"
