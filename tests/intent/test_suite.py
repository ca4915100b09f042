"""Home Assistant's 900 English sentences: intents, slots and replies."""

from __future__ import annotations

import pytest

from tests.intent.shared import shared
from tests.intent.suite import Case, cases, slots_agree

OWN_WORDING = {
    # Spoken in our own name: these would say that we are Home Assistant, or that speech goes to its server.
    ("HassRespond/default.yaml", "hi home assistant"),
    ("HassRespond/default.yaml", "where does my data go?"),
    ("HassRespond/default.yaml", "what can I say?"),
    ("HassRespond/default.yaml", "who made you?"),
}
"""Every case whose reply differs from the suite's, each on purpose."""


@pytest.fixture(scope="module")
def suite() -> list[Case]:
    return list(cases(shared("intents", "en")))


@pytest.mark.shared
def test_every_sentence_means_what_the_suite_says(suite: list[Case]) -> None:
    wrong = []
    for case in suite:
        understood = case.who.match(case.sentence)
        if understood.intent != case.intent or not slots_agree(case, understood.slots, understood.said):
            wrong.append((case.file, case.sentence, understood.intent, dict(understood.slots)))
    assert wrong == []
    assert len(suite) == 900


@pytest.mark.shared
def test_every_reply_is_the_suites_except_where_we_speak_in_our_own_name(suite: list[Case]) -> None:
    different = set()
    for case in suite:
        reply = case.who.preview(case.who.match(case.sentence))
        if reply.text != case.response:
            different.add((case.file, case.sentence))
        else:
            # A refusal that happens to read like the expected reply is none, but for media that is not there.
            assert reply.ok or case.response == "Media not found", case
    assert different == OWN_WORDING
