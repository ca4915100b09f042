"""`wren understand`: what a text means in this home, and what would be answered. Acts on nothing."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from appliance.cli.common import add_home_options, print_json, settings_from

if TYPE_CHECKING:
    from appliance.intent.types import Reply

__all__ = ["add", "run"]


def add(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Its options."""
    parser = subparsers.add_parser("understand", help="what a text means in this home; acts on nothing")
    parser.add_argument("text", nargs="+", metavar="TEXT")
    parser.add_argument("--json", action="store_true", help="one JSON object a text")
    add_home_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Match each text and show what the reply would be."""
    from appliance.app import open_assistant

    settings = settings_from(arguments)
    assistant, area = open_assistant(settings)
    for text in arguments.text:
        reply = assistant.preview(assistant.match(text, area))
        if arguments.json:
            print_json(reply_record(text, reply))
        else:
            _show(text, reply)
    return 0


def reply_record(text: str, reply: Reply) -> dict[str, object]:
    """`text, intent, slots, reply` of one text."""
    understanding = reply.understanding
    return {"text": text, "intent": understanding.intent, "slots": dict(understanding.slots), "reply": reply.text}


def _show(text: str, reply: Reply) -> None:
    understanding = reply.understanding
    slots = ", ".join(f"{name}={value}" for name, value in understanding.slots.items())
    print(
        f"{text}\n  intent  {understanding.intent or '-'}"
        + (f"  ({slots})" if slots else "")
        + f"\n  reply   {reply.text}"
    )
