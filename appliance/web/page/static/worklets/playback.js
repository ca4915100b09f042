// On the audio thread: plays the pieces of a reply without a gap and says when its last sample has gone out.
//
// Pieces come faster than they play; what is kept ready rides out the network's unevenness, and follows it from one
// reply to the next.

import { Depth } from "./depth.js";

const FADE_S = 0.005; // an underrun ends and begins again without a click

class Playback extends AudioWorkletProcessor {
  #pieces = [];
  #at = 0; // in the first piece
  #waiting = 0; // samples
  #whole = false;
  #playing = false;
  #underruns = 0;
  #due = null; // when the next piece would have to come, with nothing kept ready
  #depth = new Depth();
  #fade = Math.round(FADE_S * sampleRate);
  #rise = 0; // samples still to be faded in

  constructor() {
    super();
    this.port.onmessage = ({ data }) => this.#take(data);
  }

  #take({ type, samples }) {
    if (type === "piece") {
      this.#pieces.push(samples);
      this.#waiting += samples.length;
      this.#observe(samples.length / sampleRate);
    } else if (type === "end") {
      this.#whole = true;
    } else {
      this.#reset();
    }
  }

  // Each lateness counts once: after it, playing has paused for it.
  #observe(length) {
    if (this.#due !== null) this.#depth.observe(currentTime, currentTime - this.#due);
    this.#due = Math.max(this.#due ?? currentTime, currentTime) + length;
  }

  process(_inputs, [[output]]) {
    if (!this.#playing && (this.#waiting >= this.#depth.target * sampleRate || (this.#whole && this.#waiting))) {
      this.#playing = true;
    }
    // Seen while there is still something to fade.
    const dry = this.#playing && !this.#whole && this.#waiting < output.length + this.#fade;
    const filled = this.#playing ? this.#fill(output) : 0;
    if (this.#playing) this.#fadeIn(output, filled);
    if (dry) this.#ranDry(output, filled);
    if (!this.#waiting && this.#whole) {
      this.port.postMessage({ type: "drained", underruns: this.#underruns });
      this.#reset();
    }
    return true;
  }

  #fill(output) {
    let filled = 0;
    while (filled < output.length && this.#pieces.length) {
      const piece = this.#pieces[0];
      const count = Math.min(piece.length - this.#at, output.length - filled);
      output.set(piece.subarray(this.#at, this.#at + count), filled);
      filled += count;
      this.#at += count;
      this.#waiting -= count;
      if (this.#at === piece.length) {
        this.#pieces.shift();
        this.#at = 0;
      }
    }
    return filled;
  }

  #fadeIn(output, filled) {
    for (let i = 0; i < filled && this.#rise > 0; i += 1) output[i] *= 1 - this.#rise-- / this.#fade;
  }

  // Gather a little before going on: one gap is better than many.
  #ranDry(output, filled) {
    const fall = Math.min(filled, this.#fade);
    for (let i = 0; i < fall; i += 1) output[filled - fall + i] *= 1 - (i + 1) / fall;
    this.#playing = false;
    this.#rise = this.#fade;
    this.#underruns += 1;
    this.#depth.underrun(currentTime);
  }

  #reset() {
    this.#pieces = [];
    this.#at = this.#waiting = this.#underruns = this.#rise = 0;
    this.#whole = this.#playing = false;
    this.#due = null;
  }
}

registerProcessor("playback", Playback);
