"""Lists keep what is said, once, and are bounded."""

from __future__ import annotations

from appliance.intent.skills.lists import MAX_ITEMS, ListBook
from tests.intent.homes import assistant, entity, say


def test_an_item_is_on_the_list_once_however_it_is_written() -> None:
    book = ListBook()
    assert book.add("Shopping List", "Milk")
    assert book.add("shopping list", "milk")
    assert book.open_items("SHOPPING LIST") == ("milk",)


def test_items_are_ticked_off_and_taken_off() -> None:
    book = ListBook()
    book.add("l", "milk")
    book.add("l", "bread")
    assert book.complete("l", "MILK")
    assert not book.complete("l", "milk")
    assert not book.complete("l", "eggs")
    assert book.open_items("l") == ("bread",)
    assert book.remove("l", "bread")
    assert not book.remove("l", "bread")
    assert book.add("l", "milk")
    assert book.open_items("l") == ("milk",)


def test_a_full_list_refuses_until_something_is_done() -> None:
    book = ListBook()
    assert all(book.add("l", f"item {i}") for i in range(MAX_ITEMS))
    assert not book.add("l", "one more")
    book.complete("l", "item 7")
    assert book.add("l", "one more")
    assert len(book.open_items("l")) == MAX_ITEMS


def test_a_copy_is_its_own() -> None:
    book = ListBook()
    book.add("l", "milk")
    copy = book.copy()
    copy.add("l", "bread")
    assert book.open_items("l") == ("milk",)


def test_the_list_of_the_home_and_the_list_are_one() -> None:
    who = assistant(entity("Shopping List", "todo"))
    say(who, "add oat milk to my shopping list", "a")
    say(who, "put bread on the list", "b")
    assert who.lists.open_items("Shopping List") == ("oat milk", "bread")
    assert say(who, "check off bread from my list", "c").text == "Checked off bread"
    assert say(who, "check off bread from my list", "d").text == "I could not find bread on the list"


def test_an_item_keeps_the_speakers_words() -> None:
    who = assistant(entity("Chores", "todo"))
    say(who, "Add call Aunt Mary-Jane at Twenty One to my Chores list.")
    assert who.lists.open_items("Chores") == ("call Aunt Mary-Jane at Twenty One",)
