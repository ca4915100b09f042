"""Errors of the hw package: one base class with a stable code. Probing raises none of them to its caller."""

from __future__ import annotations

from typing import ClassVar

__all__ = ["HwError", "PlanError", "UnreadableError"]


class HwError(Exception):
    """Base of every error raised by `hw`; the message says what was wrong."""

    code: ClassVar[str] = "hw"
    retry: ClassVar[bool] = False


class PlanError(HwError):
    """A task names no backend that any rule offers."""

    code = "hw.plan"


class UnreadableError(HwError):
    """A file or folder of the machine is absent, of the wrong kind, leads out of the root, or fails to read."""

    code = "hw.unreadable"
