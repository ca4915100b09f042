"""The shopping-list and to-do intents on a list book."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from appliance.intent.outcome import Outcome
from appliance.intent.problems import Problem
from appliance.intent.skills.lists import SHOPPING_LIST, ListBook
from appliance.intent.types import Understanding

__all__ = ["LIST_INTENTS"]


def _item(change: Callable[[ListBook, str, str], bool], refusal: str) -> Callable[[ListBook, Understanding], Outcome]:
    def handle(book: ListBook, understood: Understanding) -> Outcome:
        name = str(understood.slots.get("name", SHOPPING_LIST))
        item = str(understood.slots["item"])
        if not change(book, name, item):
            return Outcome(problem=Problem(refusal, {"item": item}))
        return Outcome(key=understood.response_key)

    return handle


LIST_INTENTS: Final[Mapping[str, Callable[[ListBook, Understanding], Outcome]]] = {
    "HassShoppingListAddItem": _item(ListBook.add, "list_full"),
    "HassShoppingListCompleteItem": _item(ListBook.complete, "item_not_on_list"),
    "HassListAddItem": _item(ListBook.add, "list_full"),
    "HassListCompleteItem": _item(ListBook.complete, "item_not_on_list"),
    "HassListRemoveItem": _item(ListBook.remove, "item_not_on_list"),
}
"""What each list intent does; the book is changed, the outcome says how it went."""
