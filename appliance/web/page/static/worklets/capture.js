// On the audio thread: gathers 128-sample quanta into 20 ms blocks of 16-bit samples, with their level.

const BLOCKS_PER_S = 50;

class Capture extends AudioWorkletProcessor {
  #block = new Int16Array(Math.round(sampleRate / BLOCKS_PER_S));
  #filled = 0;
  #power = 0;

  process([[channel]]) {
    for (const sample of channel ?? []) {
      const held = Math.max(-1, Math.min(1, sample));
      this.#power += held * held;
      this.#block[this.#filled++] = Math.round(held * 32767);
      if (this.#filled === this.#block.length) this.#send();
    }
    return true;
  }

  #send() {
    const block = this.#block.buffer;
    const decibels = 10 * Math.log10(this.#power / this.#filled + 1e-10);
    // -60 dBFS and below shows nothing, -10 dBFS everything.
    const level = Math.max(0, Math.min(1, (decibels + 60) / 50));
    this.#block = new Int16Array(this.#block.length);
    this.#filled = this.#power = 0;
    this.port.postMessage({ block, level }, [block]);
  }
}

registerProcessor("capture", Capture);
