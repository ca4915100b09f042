"""What can be set, with ranges and defaults. The docstring under a field is what `wren config show` says about it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, StringConstraints, field_validator, model_validator

from appliance.voice.wake import WAKE_WORDS

__all__ = [
    "DEFAULT_PORT",
    "AudioSettings",
    "EngineSettings",
    "ListeningSettings",
    "ModelSettings",
    "MqttSettings",
    "Settings",
    "VoiceSettings",
    "WakeWordSettings",
    "WebSettings",
]

DEFAULT_PORT: Final = 10380
"""Beside the Wyoming ports (10200, 10300, 10400, 10700) and Home Assistant's 8123, and taken by none of them."""
LEAST_TOKEN_LENGTH: Final = 16
"""Characters of a token that somebody chose; ours has 43."""
_CLIENT_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TOPIC: Final = re.compile(r"(?=.{1,100}\Z)[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*")
_TOKEN: Final = re.compile(rf"[A-Za-z0-9_-]{{{LEAST_TOKEN_LENGTH},200}}")

Name = Annotated[str, StringConstraints(min_length=1, max_length=200, strip_whitespace=True)]
HostName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$", max_length=253)]


class _Group(BaseModel):
    # Unknown keys are ignored here: the file keeps them, and `config check` names them (a newer Wren may know them).
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True, use_attribute_docstrings=True)


class WakeWordSettings(_Group):
    """The words that wake."""

    words: tuple[str, ...] = Field(default=("okay_nabu",), min_length=1, strict=False)
    """Wake words listened for: okay_nabu, hey_jarvis, alexa, hey_mycroft."""
    threshold: float | None = Field(default=None, gt=0.0, lt=1.0)
    """How sure the detector must be, between 0 and 1; none takes each model's own."""
    refractory_s: float = Field(default=1.5, ge=0.0, le=10.0)
    """Seconds after a wake word in which nothing wakes again."""

    @field_validator("words")
    @classmethod
    def _known(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        names = tuple(dict.fromkeys(word.strip().lower().replace(" ", "_") for word in words))
        for name in names:
            if name not in WAKE_WORDS:
                raise ValueError(f"there is no wake word {name!r}, only {', '.join(WAKE_WORDS)}")
        return names


class VoiceSettings(_Group):
    """How Wren speaks."""

    length_scale: float = Field(default=1.0, ge=0.5, le=2.0)
    """Length of the speech: 1 is the voice's own pace, above 1 is slower."""


class AudioSettings(_Group):
    """Microphone and speaker of this machine."""

    microphone: Name | None = None
    """Name of the microphone as `wren devices` prints it; none takes the system's default."""
    speaker: Name | None = None
    """Name of the speaker as `wren devices` prints it; none takes the system's default."""
    buffer_frames: Annotated[int, Field(ge=64, le=480)] | Literal["auto"] = "auto"
    """Sample frames of one device buffer, 64 to 480; auto probes the device. Less than 10 ms of a microphone's sound
    makes answers some milliseconds sooner, and takes more of the processor all day long."""
    volume_percent: int = Field(default=80, ge=0, le=100)
    """Volume of replies and sounds."""
    acknowledgement_sounds: bool = True
    """A short sound when Wren begins to listen and when it has not understood."""
    echo_cancelling: bool = True
    """Take Wren's own voice out of what its microphone hears."""
    denoise: Literal["off", "dtln"] = "off"
    """dtln takes noise out of what wake words hear, and of nothing else; takes 8 % of a core, and needs its pack."""
    timer_ring_s: int = Field(default=30, ge=0, le=600)
    """Seconds that a timer rings when it has ended, unless somebody says stop; 0: it is only said."""
    lead_in_ms: int = Field(default=0, ge=0, le=3000)
    """Faint noise before a reply, for speakers that lose its start while they wake up (USB, Bluetooth)."""


class ListeningSettings(_Group):
    """When Wren takes a sentence for finished."""

    style: Literal["quick", "patient", "plain"] = "quick"
    """quick ends a whole sentence at once, patient gives more time, plain waits for a fixed silence."""
    follow_up: bool = False
    """Listen again after a reply, without the wake word."""
    follow_up_s: float = Field(default=5.0, ge=1.0, le=30.0)
    """Seconds in which a follow-up must begin."""
    barge_in: Literal["wake", "stop", "speech"] = "stop"
    """What interrupts Wren: wake only its wake word, stop the word stop too, speech whatever is said."""
    understood_s: float = Field(default=0.7, ge=0.2, le=5.0)
    """Style plain: seconds of silence that end a sentence which means something."""
    not_understood_s: float = Field(default=1.5, ge=0.3, le=10.0)
    """Style plain: seconds of silence that end one which does not (yet)."""
    no_speech_s: float = Field(default=6.0, ge=1.0, le=60.0)
    """Seconds after which Wren gives up where nobody speaks."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.not_understood_s < self.understood_s:
            raise ValueError(
                f"not_understood_s ({self.not_understood_s:g}) must not be less than understood_s"
                f" ({self.understood_s:g}): a sentence that means nothing yet is given more time"
            )
        return self


class EngineSettings(_Group):
    """What runs the models; see `wren plan --explain`."""

    backend: Literal["auto", "tensorrt", "ort-cuda", "ort-cpu", "numpy"] = "auto"
    """What runs the models: auto chooses by what the machine is and what was measured on it."""
    precision: Literal["auto", "fp32", "fp16", "int8"] = "auto"
    """Bits of the models' weights: auto takes the fastest that passed the accuracy gate."""
    threads: Annotated[int, Field(ge=1, le=16)] | Literal["auto"] = "auto"
    """Threads of an engine; auto measures."""
    memory_mb: int | None = Field(default=None, ge=300)
    """Megabytes that Wren may take in all; none leaves room for the system by the machine's size."""
    measure: bool = True
    """Time the engines once in the background, while nobody speaks, and keep the result."""


class ModelSettings(_Group):
    """Which models, and where they come from."""

    recogniser: Name | None = None
    """A pack (moonshine-tiny-en is lighter) or a transducer's folder, see docs/recognisers.md; none: Moonshine base."""
    mirror: Name | None = None
    """Folder or https address asked for models before all else; WREN_MODELS_MIRROR goes before it."""
    max_mb: int | None = Field(default=None, ge=1)
    """Megabytes that the model store may take; WREN_MODELS_MAX_BYTES goes before it."""


class WebSettings(_Group):
    """The local page."""

    enabled: bool = True
    """Serve the page."""
    host: Name = "127.0.0.1"
    """Address to listen on; 0.0.0.0 opens the page to the whole network."""
    port: int = Field(default=DEFAULT_PORT, ge=0, le=65535)
    """Port to listen on; 0 takes any that is free."""
    host_names: tuple[HostName, ...] = Field(default=(), strict=False)
    """Further names that the page may be opened under, besides localhost and this machine's own."""
    token: SecretStr | None = None
    """Secret that opens the page; made at the first start."""

    @field_validator("token")
    @classmethod
    def _strong(cls, token: SecretStr | None) -> SecretStr | None:
        if token is not None and not _TOKEN.fullmatch(token.get_secret_value()):
            raise ValueError(f"a token is {LEAST_TOKEN_LENGTH} or more letters, digits, '-' and '_'")
        return token


class MqttSettings(_Group):
    """The broker that Wren speaks to the home through."""

    enabled: bool = True
    """Speak MQTT."""
    host: Name | None = None
    """Name or address of your broker; none runs one of Wren's own, which only this machine can reach."""
    port: int | None = Field(default=None, ge=1, le=65535)
    """Port of the broker; none takes 1883, or 8883 with TLS."""
    username: Name | None = None
    """User name at the broker."""
    password: SecretStr | None = None
    """Password at the broker."""
    tls: bool = False
    """Encrypt the connection, and check that it leads to the broker named by host."""
    ca_file: Path | None = Field(default=None, strict=False)
    """Certificates (PEM) that the broker's must be signed by; none takes the system's."""
    client_certificate: Path | None = Field(default=None, strict=False)
    """Certificate (PEM) that Wren shows to the broker, for brokers that ask for one."""
    client_key: Path | None = Field(default=None, strict=False)
    """Key of that certificate (PEM, without a passphrase); none where it is in the same file."""
    client_id: Name | None = None
    """Name of this connection at the broker, which no other may have; none makes one and keeps it."""
    prefix: str = "wren"
    """What Wren's own topics begin with."""
    discovery_prefix: str = "homeassistant"
    """What Home Assistant's discovery topics begin with."""
    # Not `device`: a home older than 2024.11 would show nothing, and not say why. Not `both`: a newer one logs a
    # warning for every entity, at each of its starts and ours.
    discovery: Literal["device", "components", "both", "off"] = "components"
    """How Home Assistant is told: components suits every version, device (2024.11) adds notify, both makes it warn."""
    transcripts: bool = False
    """Tell over MQTT what was said; whoever may read at the broker can then read it."""
    embedded: bool = True
    """Run a broker of Wren's own where no host is set."""

    @field_validator("client_id")
    @classmethod
    def _plain_id(cls, name: str | None) -> str | None:
        if name is not None and not _CLIENT_ID.fullmatch(name):
            raise ValueError("a client id is at most 64 letters, digits, '-' and '_'")
        return name

    @field_validator("prefix", "discovery_prefix")
    @classmethod
    def _plain_topic(cls, prefix: str) -> str:
        if not _TOPIC.fullmatch(prefix):
            raise ValueError("a prefix is words of letters, digits, '-' and '_' joined by '/', at most 100 characters")
        return prefix


class Settings(_Group):
    """All settings."""

    home_file: Path | None = Field(default=None, strict=False)
    """File with the home's areas and entities; none takes the small example home."""
    area: Name | None = None
    """Area that the microphone is in; none takes the home file's own."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """How much is logged."""
    wake: WakeWordSettings = WakeWordSettings()
    voice: VoiceSettings = VoiceSettings()
    audio: AudioSettings = AudioSettings()
    listening: ListeningSettings = ListeningSettings()
    engines: EngineSettings = EngineSettings()
    models: ModelSettings = ModelSettings()
    web: WebSettings = WebSettings()
    mqtt: MqttSettings = MqttSettings()
