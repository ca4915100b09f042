// On the audio thread: plays the pieces of a reply without a gap and says when its last sample has gone out.

// Pieces come faster than they play; this rides out the network's unevenness. Doubled after a gap: where one piece
// came late the next will, too.
const FIRST_PREBUFFER_S = 0.08;
const LAST_PREBUFFER_S = 0.4;

class Playback extends AudioWorkletProcessor {
  #pieces = [];
  #at = 0; // in the first piece
  #waiting = 0; // samples
  #whole = false;
  #playing = false;
  #underruns = 0;
  #prebuffer = FIRST_PREBUFFER_S * sampleRate;

  constructor() {
    super();
    this.port.onmessage = ({ data }) => this.#take(data);
  }

  #take({ type, samples }) {
    if (type === "piece") {
      this.#pieces.push(samples);
      this.#waiting += samples.length;
    } else if (type === "end") {
      this.#whole = true;
    } else {
      this.#reset();
    }
  }

  process(_inputs, [[output]]) {
    if (!this.#playing && (this.#waiting >= this.#prebuffer || (this.#whole && this.#waiting))) {
      this.#playing = true;
    }
    let filled = 0;
    while (this.#playing && filled < output.length && this.#pieces.length) {
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
    if (!this.#waiting && this.#whole) {
      this.port.postMessage({ type: "drained", underruns: this.#underruns });
      this.#reset();
    } else if (this.#playing && filled < output.length) {
      this.#playing = false; // gather a little before going on: one gap is better than many
      this.#underruns += 1;
      this.#prebuffer = Math.min(2 * this.#prebuffer, LAST_PREBUFFER_S * sampleRate);
    }
    return true;
  }

  #reset() {
    this.#pieces = [];
    this.#at = this.#waiting = this.#underruns = 0;
    this.#whole = this.#playing = false;
  }
}

registerProcessor("playback", Playback);
