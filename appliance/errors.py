"""Errors of the appliance: one base class with a stable code, a few named ones."""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "ApplianceError",
    "AudioFormatError",
    "DeviceFaultError",
    "HomeFileError",
    "IntentError",
    "NoDeviceError",
    "ProgramMissingError",
    "SettingsError",
    "SpeechError",
    "UsageError",
    "WindowError",
]


class ApplianceError(Exception):
    """Base of every error raised by `appliance`; the message says what was wrong and what to do.

    `code` is stable and machine-readable; `retry` says whether trying the same again can help.
    """

    code: ClassVar[str] = "appliance"
    retry: ClassVar[bool] = False


class UsageError(ApplianceError):
    """The command line was used wrongly (exit code 2)."""

    code = "appliance.usage"


class AudioFormatError(ApplianceError):
    """A file is not audio, is empty or truncated, or holds samples that are not numbers."""

    code = "audio.format"


class WindowError(ApplianceError):
    """Frames, hops and windows that do not add up to the sound that went in."""

    code = "audio.window"


class NoDeviceError(ApplianceError):
    """There is no microphone or speaker, or not the one that was asked for. It may be plugged in at any time."""

    code = "audio.no-device"
    retry = True


class DeviceFaultError(ApplianceError):
    """A microphone or speaker is there but cannot be opened, or failed."""

    code = "audio.device"
    retry = True


class HomeFileError(ApplianceError):
    """A home file cannot be read or does not have the agreed shape."""

    code = "intent.home"


class IntentError(ApplianceError):
    """The grammar could not be loaded, or an intent could not be carried out."""

    code = "intent"


class ProgramMissingError(ApplianceError):
    """A separate program that Wren runs (espeak-ng, flite) is not installed."""

    code = "appliance.program"


class SettingsError(ApplianceError):
    """The settings file cannot be read or written, or holds a value that is not allowed."""

    code = "appliance.settings"


class SpeechError(ApplianceError):
    """Speech could not be recognised or synthesised."""

    code = "voice"
    retry = True
