"""Carries commands out and answers them; refuses what comes too fast, stood at the broker, or makes no sense.

Owned by one thread. A command that is refused changes nothing and is answered on the error topic; one that was
carried out is answered on the result topic, speech only when its last sample has been heard.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Final

from appliance.audio.sounds import Sound
from appliance.errors import ApplianceError, NoDeviceError
from appliance.mqtt import commands
from appliance.mqtt.commands import COMMANDS, Command, CommandError, parse_command, request_id
from appliance.mqtt.commands_speech import Speech, SpeechQueue
from appliance.mqtt.controls import Controls, Speaker, TimerView

__all__ = ["Answer", "Bucket", "CommandRouter"]

_LOG = logging.getLogger(__name__)

PER_SECOND: Final = 5.0
"""Of one command; a slider that is dragged sends about as many."""
BURST: Final = 20.0
ALARM_S: Final = 600.0
"""An alarm that nobody ends has been heard or will not be."""
ERRORS_PER_SECOND: Final = 2.0
"""A flood is not answered by a flood."""

Answer = Mapping[str, object]
"""JSON object: `command`, `id`, and what became of it."""


class Bucket:
    """Lets through so many a second, and a burst after a pause."""

    def __init__(self, per_second: float, burst: float) -> None:
        self._per_second, self._burst = per_second, burst
        self._left = burst
        self._at_s: float | None = None

    def take(self, now_s: float) -> bool:
        """Whether one more may pass."""
        if self._at_s is not None:
            self._left = min(self._burst, self._left + (now_s - self._at_s) * self._per_second)
        self._at_s = now_s
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


class CommandRouter:
    """See the module."""

    def __init__(
        self,
        speaker: Speaker,
        controls: Controls,
        on_result: Callable[[Answer], None],
        on_error: Callable[[Answer], None],
    ) -> None:
        self._speaker, self._controls = speaker, controls
        self._on_result, self._on_error = on_result, on_error
        self.speech = SpeechQueue(speaker, controls.play)
        # Each its own, so that `stop` and `mute` still work while a slider runs wild.
        self._buckets = {name: Bucket(PER_SECOND, BURST) for name in (*COMMANDS, "")}
        self._errors = Bucket(ERRORS_PER_SECOND, BURST)
        self.unanswered = 0
        """Refusals that were not answered, because too many were."""

    @property
    def busy(self) -> bool:
        """`tick` has something to do soon."""
        return self.speech.busy

    def take(self, name: str, payload: bytes, *, retained: bool, now_s: float) -> bool:
        """Carry a command out, or refuse it; whether it was carried out (or waits to be said)."""
        bucket = self._buckets.get(name) or self._buckets[""]
        if not bucket.take(now_s):
            return self.refuse(name, payload, "mqtt.rate", f"at most {PER_SECOND:.0f} a second of one command", now_s)
        if retained:
            why = "this command is retained at the broker, so nobody asks for it now; send it without retain"
            return self.refuse(name, payload, "mqtt.retained", why, now_s)
        try:
            command = parse_command(name, payload)
            self._carry_out(name, command)
        except CommandError as error:
            return self.refuse(name, payload, error.reason, str(error), now_s)
        except ApplianceError as error:
            return self.refuse(name, payload, error.code, str(error), now_s)
        except Exception:  # noqa: BLE001 - see below
            # A fault of ours in one command must end neither the thread nor the commands after it.
            _LOG.exception("MQTT command %s could not be carried out", name)
            return self.refuse(name, payload, "internal", "this could not be done; the log says more", now_s)
        return True

    def refuse(self, name: str, payload: bytes, code: str, message: str, now_s: float) -> bool:
        """Answer a command that is not carried out; always False."""
        if self._errors.take(now_s):
            self._on_error({"command": name[:64], "id": request_id(payload), "code": code, "message": message})
        else:
            self.unanswered += 1
        return False

    def tick(self, now_s: float) -> None:
        """Say what is due."""
        self.speech.tick(now_s)

    def _carry_out(self, name: str, command: Command) -> None:  # noqa: PLR0912 - a case a command
        told: Answer = {}
        match command:
            case commands.Say():
                return self._say(Speech(command.text, self._spoken(name, command)))
            case commands.Announce():
                urgent = command.priority == "high"
                answer = self._spoken(name, command)
                return self._say(Speech(command.text, answer, command.pre_announce, urgent))
            case commands.Listen():
                # Without sound there is no end of speech: it would listen for ever.
                if self._controls.view().microphone != "live" or not self._speaker.listen():
                    raise CommandError("mqtt.no_microphone", "this machine's own microphone is muted, or not there")
            case commands.Stop():
                self._controls.hush()
                self.speech.drop()
                self._speaker.stop()
            case commands.Volume():
                self._controls.set_volume(command.percent)
            case commands.Mute():
                self._controls.mute(command.muted)
            case commands.WakeSensitivity():
                self._controls.set_wake_sensitivity(command.percent)
            case commands.WakeWord():
                self._choose(command.name, self._controls.view().wake_word_options, self._controls.set_wake_word)
            case commands.Voice():
                self._choose(command.name, self._controls.view().voices, self._controls.set_voice)
            case commands.Language():
                self._choose(command.code, self._controls.view().languages, self._controls.set_language)
            case commands.TimerStart():
                told = {"timer": _told(self._controls.start_timer(command.seconds, command.name))}
            case commands.TimerCancel():
                if not self._controls.cancel_timer(command.timer):
                    raise CommandError("mqtt.no_timer", f"there is no timer {command.timer}; `timers` lists them")
            case commands.Timers():
                told = {"timers": [_told(timer) for timer in self._controls.timers()]}
            case commands.Alarm():
                if command.state == "ON":
                    self._controls.ring(ALARM_S if command.duration is None else command.duration)
                else:
                    self._controls.hush()
            case commands.TestSound():
                self._controls.play(Sound.TEST)
            case commands.InstallModels():
                if not self._controls.view().models_can_install:
                    raise CommandError("mqtt.nothing_new", "all model packs are here: there is nothing to install")
                self._controls.install_models()
            case commands.Restart():
                self._controls.restart()
        return self._on_result({"command": name, "id": command.id, "outcome": "done", **told})

    def _say(self, speech: Speech) -> None:
        if not self._speaker.audible():
            raise NoDeviceError("nobody would hear it: this machine has no speaker that is open, and no page is open")
        if not self.speech.add(speech):
            raise CommandError("mqtt.busy", "as many messages wait to be said as Wren takes; try again later")

    def _spoken(self, name: str, command: Command) -> Callable[[str], None]:
        return lambda outcome: self._on_result({"command": name, "id": command.id, "outcome": outcome})

    @staticmethod
    def _choose(name: str, options: tuple[str, ...], choose: Callable[[str], None]) -> None:
        if name not in options:
            raise CommandError("mqtt.no_such", f"there is no {name!r} here, only {', '.join(options) or 'nothing'}")
        choose(name)


def _told(timer: TimerView) -> Answer:
    return {**asdict(timer), "left_s": round(timer.left_s, 1)}
