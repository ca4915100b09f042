"""Shopping and to-do lists, kept in memory; bounded."""

from __future__ import annotations

from typing import Final

__all__ = ["MAX_ITEMS", "SHOPPING_LIST", "ListBook"]

MAX_ITEMS: Final = 500
"""Items on one list."""
MAX_ITEM_CHARS: Final = 200
SHOPPING_LIST: Final = "Shopping List"
"""The list that is meant where none is named."""


class ListBook:
    """Named lists of items; names and items are compared without case."""

    def __init__(self) -> None:
        self._lists: dict[str, dict[str, tuple[str, bool]]] = {}

    def copy(self) -> ListBook:
        """A book of its own with the same items."""
        book = ListBook()
        book._lists = {name: dict(items) for name, items in self._lists.items()}
        return book

    def add(self, name: str, item: str) -> bool:
        """Put an item on a list, open; False where the list is full."""
        items = self._lists.setdefault(name.casefold(), {})
        item = item[:MAX_ITEM_CHARS]
        if item.casefold() not in items and len(items) >= MAX_ITEMS:
            for done in [key for key, (_, is_done) in items.items() if is_done]:
                del items[done]
            if len(items) >= MAX_ITEMS:
                return False
        items[item.casefold()] = (item, False)
        return True

    def complete(self, name: str, item: str) -> bool:
        """Tick an item off; False where it is not on the list, or was ticked off before."""
        items = self._lists.get(name.casefold(), {})
        key = item[:MAX_ITEM_CHARS].casefold()
        if key not in items or items[key][1]:
            return False
        items[key] = (items[key][0], True)
        return True

    def remove(self, name: str, item: str) -> bool:
        """Take an item off a list; False where it is not on it."""
        return self._lists.get(name.casefold(), {}).pop(item[:MAX_ITEM_CHARS].casefold(), None) is not None

    def open_items(self, name: str) -> tuple[str, ...]:
        """What is still to be got or done, in the order it was added."""
        return tuple(item for item, done in self._lists.get(name.casefold(), {}).values() if not done)
