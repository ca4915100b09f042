"""`wren run`: the appliance as a whole, from start to clean stop."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from appliance import events
from appliance.alarm import RingingAlarm
from appliance.app import Wren, WrenSettings
from appliance.audio.blocks import KeepBlock
from appliance.audio.capture import Microphone
from appliance.audio.devices import Kind
from appliance.audio.ducking import Cause, Ducking
from appliance.audio.frame import FRAME_S
from appliance.audio.frontend import Ears, EarsState, PlayedTap
from appliance.audio.keeper import DeviceState
from appliance.audio.playback import DevicePlayer, PlayerSettings
from appliance.audio.sounds import Sound, sound_seconds
from appliance.buffers import BufferSizes
from appliance.building import EngineBuilds
from appliance.controls import HouseControls
from appliance.courtesy import Courtesy
from appliance.denoising import denoiser_for
from appliance.events import Event
from appliance.machine import this_machine
from appliance.mqtt.face import Mqtt
from appliance.overrides import engine_overrides, open_store
from appliance.service import LOCAL, Service
from appliance.settings import LoadedSettings, Settings, WakeWordSettings
from appliance.telemetry.losses import RecentLosses
from appliance.voice import loop
from appliance.voice.endpoint import SilenceSettings
from appliance.voice.parts import SessionSettings
from appliance.voice.runner import LiveRunner
from appliance.voice.wake import WakeSettings
from appliance.watch import MachineWatch
from appliance.web import MachineState, serve
from models import Progress

__all__ = ["LocalAudio", "prepare_process", "run", "wren_settings"]

_LOG = logging.getLogger(__name__)

TICK_S: Final = 0.25
SWITCH_S: Final = 0.001
"""Longest that a thread which computes in Python keeps the interpreter from one with sound to carry; Python's own 5 ms
are four of the smallest blocks."""
DEVICES_S: Final = 3.0
"""Longest wait for the devices before the person who started Wren is told what to do."""
LOSSES_S: Final = 30.0
"""Between looks at what was lost: so much older may a loss be than it seems."""
MAX_WAITING: Final = 20
"""Announcements that wait for a quiet moment; beyond it the oldest is dropped, and that is logged."""

Say = Callable[[str], None]


def wren_settings(settings: Settings) -> WrenSettings:
    """What the parts take of the settings file."""
    listening, wake = settings.listening, settings.wake
    return WrenSettings(
        home_file=settings.home_file,
        area=settings.area,
        wake=WakeSettings(wake.words, wake.threshold, wake.refractory_s),
        session=SessionSettings(
            follow_up=listening.follow_up, follow_up_s=listening.follow_up_s, barge_in=listening.barge_in
        ),
        endpoint=listening.style,
        silence=SilenceSettings(
            understood_s=listening.understood_s,
            not_understood_s=listening.not_understood_s,
            no_speech_s=listening.no_speech_s,
        ),
        length_scale=settings.voice.length_scale,
        engines=engine_overrides(settings.engines),
        recogniser=settings.models.recogniser,
        denoise=settings.audio.denoise != "off",
    )


class LocalAudio:
    """The machine's own microphone and speaker, and the session between them.

    Either may be absent, be unplugged and come back; the page says so meanwhile. Muting closes the microphone.
    """

    def __init__(self, service: Service, settings: Settings) -> None:
        audio = settings.audio
        sizes = BufferSizes(service.wren.store.root.parent / "devices.json")

        def block(kind: Kind, name: str | None) -> int:
            return sizes.of(kind, name) if audio.buffer_frames == "auto" else audio.buffer_frames

        def keeper(kind: Kind) -> KeepBlock | None:
            # What a person has set is not learnt from.
            return partial(sizes.keep, kind) if audio.buffer_frames == "auto" else None

        self._sounds = audio.acknowledgement_sounds
        self._service = service
        self._lock = threading.Lock()
        self._muted = False
        self._states: dict[str, DeviceState] = {}
        self._dropped, self._gaps = RecentLosses(), RecentLosses()
        player_settings = PlayerSettings(
            volume=float(audio.volume_percent),
            block=block("speaker", audio.speaker),
            lead_in_s=audio.lead_in_ms / 1000.0,
        )
        heard = block("microphone", audio.microphone)
        players: list[DevicePlayer] = []
        self._ducking, tap = Ducking(), PlayedTap()
        denoiser = denoiser_for(service.wren.opener, audio.denoise)
        self._ears = Ears(tap, wanted=audio.echo_cancelling, denoiser=denoiser)
        self._alarm = RingingAlarm(self._play_alarm)
        self._ring_s = float(audio.timer_ring_s)

        def player(runner: LiveRunner) -> DevicePlayer:
            def played(generation: int) -> None:
                runner.post(loop.Played(generation))

            made = DevicePlayer(
                audio.speaker,
                played,
                self._on_state,
                settings=player_settings,
                keep_block=keeper("speaker"),
                ducking=self._ducking,
                # What nobody subtracts need not be copied.
                tap=tap if audio.echo_cancelling else None,
            )
            players.append(made)
            return made

        self._runner = service.open_session(LOCAL, player, wake=True, ears=self._ears, alarm=self._alarm)
        self._player = players[0]
        self._microphone = Microphone(
            audio.microphone,
            self._runner.push,
            self._on_state,
            block=heard,
            keep_block=keeper("microphone"),
            hurry=lambda: self._runner.in_a_hurry,
        )
        self._courtesy = Courtesy(self._ducking, LOCAL)
        self._unsubscribe = [service.hub.subscribe(self._acknowledge), service.hub.subscribe(self._courtesy)]
        service.microphone, service.speaker_open = self, self._speaker_open
        service.alarm = self._alarm

    def start(self) -> None:
        """Open both; returns at once."""
        self._player.start()
        self._microphone.start()

    def close(self) -> None:
        """Let go of both."""
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        self._alarm.hush()
        self._microphone.close()
        self._service.close_session(self._runner)
        self._player.close()

    def mute(self, muted: bool) -> None:
        """Close the microphone for good, or open it again."""
        with self._lock:
            if muted and not self._muted:
                self._microphone.close()
                self._runner.call(self._runner.session.stop)
            elif not muted and self._muted:
                self._microphone.start()
            self._muted = muted

    @property
    def volume(self) -> float:
        """0..100; a change is heard at once."""
        return self._player.volume

    @volume.setter
    def volume(self, percent: float) -> None:
        self._player.volume = percent

    def play(self, sound: Sound) -> bool:
        """A small sound, at once; False where there is no speaker."""
        if not self._speaker_open():
            return False
        # What is being said steps back for it: a sound that is asked for announces something.
        self._ducking.duck_for(Cause.ANNOUNCEMENT, sound_seconds(sound))
        self._player.play_sound(sound)
        return True

    def ring(self, seconds: float | None = None) -> bool:
        """Ring until "stop" is said or `hush` is called, `seconds` long at most (None: as the settings say)."""
        seconds = self._ring_s if seconds is None else seconds
        if seconds <= 0.0 or not self._speaker_open():
            return False
        self._alarm.ring(seconds)
        return True

    def _play_alarm(self, sound: Sound | None) -> None:
        self._player.play_alarm(sound)

    @property
    def ringing(self) -> bool:
        """Whether a timer or somebody's alarm rings."""
        return self._alarm.ringing

    def hush(self) -> None:
        """End the ringing."""
        self._alarm.hush()

    def _speaker_open(self) -> bool:
        speaker = self._states.get("speaker")
        return speaker is not None and speaker.phase == "running"

    def set_wake(self, wake: WakeWordSettings) -> None:
        """Listen for other words, or more or less easily, from now on."""
        settings = WakeSettings(wake.words, wake.threshold, wake.refractory_s)
        detector = self._service.wren.wake_listener(settings, self._runner.meter)
        self._runner.call(lambda: self._runner.session.set_wake(detector))

    @property
    def ears(self) -> EarsState:
        """What came of the front end so far."""
        return self._ears.state()

    @property
    def settled(self) -> bool:
        """Whether both devices have been found, or found missing."""
        return {"microphone", "speaker"} <= self._states.keys()

    def losses(self) -> tuple[int, int]:
        """Frames of the microphone and gaps in replies that were lost of late. To be asked now and then: a loss counts
        from when it is first seen."""
        return (
            self._dropped.recent(self._runner.dropped_frames),
            self._gaps.recent(self._player.stats().underruns),
        )

    def state(self) -> MachineState:
        """What the page and `doctor` show."""
        microphone, speaker = self._states.get("microphone"), self._states.get("speaker")
        degraded = []
        for state in (microphone, speaker):
            if state is not None and state.phase == "lost":
                degraded.append(state.reason)
        ears = self.ears
        if ears.missing is not None:
            degraded.append(f"Wren hears its own voice more than it should: {ears.missing}")
        if ears.noisy is not None:
            degraded.append(f"the sound is not denoised: {ears.noisy}")
        dropped, gaps = self.losses()
        if dropped:
            lost_ms = round(dropped * FRAME_S * 1000)
            degraded.append(f"{lost_ms} ms of sound were lost of late: this machine is too slow or too busy")
        if gaps:
            gap = "a gap" if gaps == 1 else f"{gaps} gaps"
            degraded.append(f"what Wren said of late had {gap}: this machine is too slow or too busy")
        if self._muted:
            return MachineState("muted", tuple(degraded))
        running = microphone is not None and microphone.phase == "running"
        return MachineState("live" if running else "absent", tuple(degraded))

    def _on_state(self, state: DeviceState) -> None:
        before = self._states.get(state.kind)
        self._states[state.kind] = state
        if state.kind == "microphone" and state.phase == "lost" and before is not None and before.phase == "running":
            # An utterance's time comes from its sound: without any, listening would never end.
            self._runner.call(self._runner.session.stop)
        if state.phase == "running":
            _LOG.info("%s %s is open", state.kind, state.name)
        elif state.phase == "lost" and (before is None or before.reason != state.reason):
            # Once per reason: a machine without sound card tries again and again.
            _LOG.warning("no %s: %s", state.kind, state.reason)

    def _acknowledge(self, event: Event) -> None:
        if event.session != LOCAL:
            return
        if isinstance(event, events.UtteranceEnded) and event.outcome == "failed":
            self._player.play_sound(Sound.ERROR)
        elif self._sounds and isinstance(event, events.WakeHeard):
            self._player.play_sound(Sound.WAKE)
        elif isinstance(event, events.ListeningStarted):
            self._player.prepare()


def prepare_process() -> None:
    """Once everything is open: no pause for the garbage of what stands for good, and no long wait for the interpreter.

    What stands for good is not looked through again: a full collection stops everything for a tenth of a second.
    """
    gc.collect()
    gc.freeze()
    sys.setswitchinterval(SWITCH_S)


async def run(loaded: LoadedSettings, progress: Progress, say: Say) -> bool:
    """Start everything, serve until SIGINT or SIGTERM, stop cleanly; True where a restart was asked for.

    `say` gets lines for the person who started it. Raises `ApplianceError`, `ModelsError`.
    """
    settings = loaded.settings
    stop, again = asyncio.Event(), asyncio.Event()
    running = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        running.add_signal_handler(number, stop.set)
    chosen, store = wren_settings(settings), open_store(settings.models)
    wren = await asyncio.to_thread(lambda: Wren.open(chosen, progress, store=store))
    prepare_process()
    service = Service(wren)
    wren.opener.emit = service.hub.emit
    watch = MachineWatch(
        store,
        wren.plan,
        service.hub.emit,
        wren.heat,
        service.quiet_s,
        user=chosen.engines,
        may_measure=settings.engines.measure,
        builds=EngineBuilds(wren.opener, service.hub.emit),
    )
    # In a thread: a device that is met for the first time is tried for its buffer size, which takes seconds.
    local = await asyncio.to_thread(LocalAudio, service, settings)
    tasks = [asyncio.create_task(_watch_timers(service, local.ring)), asyncio.create_task(_watch_losses(local))]
    try:
        async with contextlib.AsyncExitStack() as stack:
            troubles: list[Callable[[], tuple[str, ...]]] = []
            machine = _machine_state(local, watch, service, troubles)
            if settings.mqtt.enabled:

                def restart() -> None:
                    running.call_soon_threadsafe(again.set)
                    running.call_soon_threadsafe(stop.set)

                controls = HouseControls(service, local, machine, settings, loaded.path, restart)
                # Both may wait for other programs: where the store cannot be written, the machine is probed anew.
                model = (await asyncio.to_thread(this_machine, store)).model
                mqtt = await asyncio.to_thread(Mqtt, settings.mqtt, service, controls, model)
                stack.push_async_callback(asyncio.to_thread, mqtt.close)
                troubles.append(lambda: mqtt.degraded)
            if settings.web.enabled:
                server = await stack.enter_async_context(serve(service, settings, machine))
                say(f"Wren's page: {server.link}")
            if wren.bias is not None:
                wren.bias.current()  # has the phrases made, now that people can see that Wren is there
            wren.prime()
            local.start()
            watch.start()
            say(f"{await _greeting(local, settings)} Ctrl-C ends Wren.")
            await stop.wait()
            say("Wren is stopping.")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.to_thread(watch.close)
        await asyncio.to_thread(local.close)
        service.close()
        wren.close()
    return again.is_set()


def _machine_state(
    local: LocalAudio, watch: MachineWatch, service: Service, troubles: Sequence[Callable[[], tuple[str, ...]]]
) -> Callable[[], MachineState]:
    """What the page shows: sound devices, engines, heat and what else may have trouble, together."""

    def state() -> MachineState:
        heard, seen = local.state(), watch.state()
        others = (sentence for trouble in troubles for sentence in trouble())
        degraded = (*heard.degraded, *service.wren.degraded, *seen.degraded, *others)
        readings = tuple((row.name, row.value, row.unit) for row in seen.readings)
        return replace(heard, degraded=degraded, readings=readings, better_plan=seen.better)

    return state


async def _greeting(local: LocalAudio, settings: Settings) -> str:
    """What a person can do now: depends on whether there is a microphone, which takes a moment to find out."""
    deadline_s = time.monotonic() + DEVICES_S
    while not local.settled and time.monotonic() < deadline_s:
        await asyncio.sleep(TICK_S / 5)
    if local.state().microphone == "live":
        return f"Say “{settings.wake.words[0].replace('_', ' ')}” and a command."
    page = "open the page and talk to it there" if settings.web.enabled else "plug one in; it is taken at once"
    return f"No microphone here: {page}."


async def _watch_losses(local: LocalAudio) -> None:
    """Else those of a night would pass for new in the morning, when somebody opens the page."""
    while True:
        local.losses()
        await asyncio.sleep(LOSSES_S)


async def _watch_timers(service: Service, ring: Callable[[], bool]) -> None:
    """Ring and say it when a timer ends; what cannot be said at once waits for a quiet moment."""
    waiting: deque[str] = deque(maxlen=MAX_WAITING)
    while True:
        assistant = service.wren.assistant
        # Mostly there is none: waking another thread four times a second is much of what an idle Wren does.
        for timer, reply in await asyncio.to_thread(assistant.tick) if assistant.has_timers else ():
            ring()
            if len(waiting) == MAX_WAITING:
                _LOG.warning("too many announcements wait; the oldest is dropped")
            waiting.append(reply.text if reply is not None else _timer_text(timer.name))
        while waiting and service.announce(waiting[0]):
            waiting.popleft()
            break
        await asyncio.sleep(TICK_S)


def _timer_text(name: str | None) -> str:
    return f"Your {name} timer is done." if name else "Your timer is done."
