// The browser's microphone as 20 ms blocks of 16-bit samples at its own rate.

/** Why the microphone cannot be had, for a person. */
export class MicrophoneError extends Error {}

const REASONS = {
  NotAllowedError:
    "The browser does not let this page use the microphone. Allow it (the symbol beside the address), then press again.",
  NotFoundError: "This device has no microphone that the browser knows. Plug one in, then press again.",
  NotReadableError: "The microphone could not be opened; perhaps another program is using it.",
};

export class Microphone {
  #context = null;
  #stream = null;

  /** Open it; `onBlock` gets an ArrayBuffer, `onLevel` 0 to 1. Gives the rate. Throws `MicrophoneError`. */
  async open(onBlock, onLevel, onLost) {
    if (!window.isSecureContext || !navigator.mediaDevices) {
      throw new MicrophoneError(
        "Browsers give the microphone only to https pages and to localhost. Open this page as http://localhost on " +
          "the machine that runs Wren, or through a tunnel. Typing and recordings work here too.",
      );
    }
    try {
      this.#stream = await navigator.mediaDevices.getUserMedia({
        // The echo canceller knows what this page plays. Noise suppression takes away what recognition needs, and
        // Chromium's gain control begins 12 dB too loud: it clips the first words.
        audio: { channelCount: 1, echoCancellation: true, noiseSuppression: false, autoGainControl: false },
      });
      this.#context = new AudioContext({ latencyHint: "interactive" });
      await this.#context.audioWorklet.addModule("/static/worklets/capture.js");
    } catch (error) {
      this.close();
      throw new MicrophoneError(REASONS[error.name] ?? `The microphone could not be opened: ${error.message}`);
    }
    const node = new AudioWorkletNode(this.#context, "capture", { numberOfOutputs: 0, channelCount: 1 });
    node.port.onmessage = ({ data }) => {
      onBlock(data.block);
      onLevel(data.level);
    };
    this.#stream.getAudioTracks()[0].addEventListener("ended", onLost);
    this.#context.createMediaStreamSource(this.#stream).connect(node);
    await this.#context.resume();
    return this.#context.sampleRate;
  }

  /** Release it: the browser's own sign that it is in use goes out. */
  close() {
    this.#stream?.getTracks().forEach((track) => track.stop());
    this.#context?.close();
    this.#stream = this.#context = null;
  }
}
