// Plays replies as they come over the link, and says when they have been heard.

const USUAL_RATE_HZ = 22_050;

export class Speaker {
  #context = null;
  #node = null;
  #opening = null;
  #generation = null;
  #onPlayed;

  /** `onPlayed(generation, underruns)` is called when the last sample of a reply has left the loudspeaker. */
  constructor(onPlayed) {
    this.#onPlayed = onPlayed;
  }

  /** Call from a press: browsers let a page sound only after one. */
  unlock(rateHz = USUAL_RATE_HZ) {
    if (this.#context?.sampleRate === rateHz) {
      this.#context.resume();
      return this.#opening;
    }
    this.#context?.close();
    // At the voice's own rate: the browser resamples the whole stream, not piece by piece.
    this.#context = new AudioContext({ sampleRate: rateHz, latencyHint: "interactive" });
    this.#opening = this.#prepare(this.#context);
    return this.#opening;
  }

  async begin(generation, rateHz) {
    this.#generation = generation;
    this.#post({ type: "stop" });
    await this.unlock(rateHz);
  }

  /** 16-bit samples, as they came. */
  piece(buffer) {
    const samples = Float32Array.from(new Int16Array(buffer), (value) => value / 32768);
    this.#post({ type: "piece", samples }, [samples.buffer]);
  }

  end() {
    this.#post({ type: "end" });
  }

  stop() {
    this.#generation = null;
    this.#post({ type: "stop" });
  }

  async #prepare(context) {
    await context.audioWorklet.addModule("/static/worklets/playback.js");
    if (context !== this.#context) return;
    this.#node = new AudioWorkletNode(context, "playback", { numberOfInputs: 0, outputChannelCount: [1] });
    this.#node.port.onmessage = ({ data }) => this.#drained(data.underruns);
    this.#node.connect(context.destination);
  }

  #drained(underruns) {
    const generation = this.#generation;
    if (generation === null) return;
    this.#generation = null;
    const latencyMs = 1000 * (this.#context.outputLatency || this.#context.baseLatency || 0);
    setTimeout(() => this.#onPlayed(generation, underruns), latencyMs);
  }

  // Pieces may come while the worklet is still being loaded: they wait for it, in order.
  #post(message, transfer = []) {
    if (!this.#opening) return;
    this.#opening.then(() => this.#node.port.postMessage(message, transfer));
  }
}
