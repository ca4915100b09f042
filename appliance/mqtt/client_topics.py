"""Topics and topic filters: which are allowed, and what matches what (MQTT 5, section 4.7). Pure."""

from __future__ import annotations

from typing import Final

__all__ = ["check_filter", "check_topic", "matches", "overlap"]

MAX_BYTES: Final = 1024
"""Of one topic; the standard allows 65,535, and nobody needs it."""


def check_topic(topic: str) -> None:
    """Raises `ValueError` where nothing may be published to it."""
    _check_text(topic, "topic")
    if "+" in topic or "#" in topic:
        raise ValueError(f"topic {topic!r} holds a wildcard; only filters may")


def check_filter(topic_filter: str) -> None:
    """Raises `ValueError` where it is no filter."""
    _check_text(topic_filter, "filter")
    levels = topic_filter.split("/")
    for position, level in enumerate(levels):
        alone = level in {"+", "#"} or not ("+" in level or "#" in level)
        if not alone or (level == "#" and position != len(levels) - 1):
            raise ValueError(f"filter {topic_filter!r}: '+' stands for a whole level, '#' for all that follow")


def matches(topic_filter: str, topic: str) -> bool:
    """Whether a (right) filter takes a topic."""
    wanted, given = topic_filter.split("/"), topic.split("/")
    if topic.startswith("$") and wanted[0] in {"+", "#"}:
        return False  # the broker's own topics are not for wildcards
    for position, level in enumerate(wanted):
        if level == "#":
            return True
        if position >= len(given) or level not in {"+", given[position]}:
            return False
    return len(wanted) == len(given)


def overlap(one: str, other: str) -> bool:
    """Whether some topic matches both (right) filters."""
    first, second = one.split("/"), other.split("/")
    for left, right in zip(first, second, strict=False):
        if "#" in (left, right):
            return True
        if left != right and "+" not in (left, right):
            return False
    rest = first[len(second) :] or second[len(first) :]
    return rest in ([], ["#"])


def _check_text(text: str, what: str) -> None:
    if not text or "\0" in text:
        raise ValueError(f"{what} {text!r} is empty or holds a zero character")
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise ValueError(f"{what} {text[:40]!r}… is longer than {MAX_BYTES} bytes")
    text.encode("utf-8")  # a lone surrogate is a UnicodeEncodeError, which is a ValueError
