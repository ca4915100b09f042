// The talk button and the session behind it: opens the microphone, follows the server's phases, closes it again.
//
//   idle ── press ──> opening ── started ──> listening ── endpoint ──> thinking ──> speaking ── played ──> idle
//
// A press while Wren listens or thinks stops it; a press while it speaks interrupts it. In hands-free the session
// stays open between utterances, waiting for the wake word.

import { MicrophoneError } from "./microphone.js";

const LINGER_MS = 400; // a follow-up may begin right after a reply: keep the microphone that long

export class Talk extends EventTarget {
  #link;
  #microphone;
  #speaker;
  #phase = "idle";
  #session = null;
  #handsFree = false;
  #lingering = 0;
  #attempt = 0;

  constructor(link, microphone, speaker) {
    super();
    this.#link = link;
    this.#microphone = microphone;
    this.#speaker = speaker;
    link.addEventListener("message", ({ detail }) => this.#take(detail));
    link.addEventListener("sound", ({ detail }) => speaker.piece(detail));
    link.addEventListener("down", () => this.#over());
  }

  get session() {
    return this.#session;
  }

  /** The button was pressed. */
  press() {
    clearTimeout(this.#lingering);
    if (this.#phase === "speaking" || (this.#phase === "idle" && this.#session)) this.#link.send({ type: "listen" });
    else if (this.#phase === "idle") this.#start(false);
    else this.stop();
  }

  /** Wait for the wake word from now on, or no longer. */
  setHandsFree(wanted) {
    this.#handsFree = wanted;
    this.stop();
    if (wanted) this.#start(true);
  }

  /** End whatever goes on; in hands-free, go back to waiting for the wake word. */
  stop() {
    if (this.#phase === "idle" && !this.#session) return;
    this.#link.send({ type: "stop" });
    this.#over();
    if (this.#handsFree) this.#start(true);
  }

  /** The reply has been heard to its end. */
  played(generation, underruns) {
    this.#link.send({ type: "played", generation, underruns });
  }

  async #start(wake) {
    if (!this.#link.up) {
      this.#complain("Wren does not answer. Is it running?");
      return;
    }
    const attempt = ++this.#attempt;
    this.#enter("opening");
    this.#speaker.unlock();
    let rateHz;
    // Blocks from before `start` are dropped here; the server would refuse them.
    let started = false;
    try {
      rateHz = await this.#microphone.open(
        (block) => started && this.#link.sendSound(block),
        (level) => this.#tell("level", level),
        () => this.stop(),
      );
    } catch (error) {
      if (!(error instanceof MicrophoneError)) throw error;
      if (attempt !== this.#attempt) return;
      this.#handsFree = false;
      this.#over();
      this.#complain(error.message);
      return;
    }
    if (attempt !== this.#attempt) return; // stopped while the browser was asking
    this.#link.send({ type: "start", rate_hz: rateHz, encoding: "s16le", wake });
    started = true;
  }

  #take(message) {
    if (message.type === "started") this.#session = message.session;
    if (message.type === "started" && message.wake) this.#enter("idle");
    if (message.type === "error") this.#failed(message);
    if (message.type === "stopped") this.#stopped(message.reason);
    if (message.type === "audio") this.#speaker.begin(message.generation, message.rate_hz);
    if (message.type === "audio_end") this.#speaker.end();
    if (message.type === "audio_stop") this.#speaker.stop();
    if (message.session === undefined || message.session !== this.#session || !message.phase) return;
    clearTimeout(this.#lingering);
    this.#enter(message.phase, message.outcome);
    if (message.phase === "idle" && !this.#handsFree) this.#lingering = setTimeout(() => this.stop(), LINGER_MS);
  }

  #failed({ message }) {
    this.#handsFree = false;
    this.#over();
    this.#complain(message);
  }

  #stopped(reason) {
    if (reason === "stopped") return; // our own wish
    this.#handsFree = false;
    this.#over();
    this.#complain(`Wren ended the conversation: ${reason}`);
  }

  #over() {
    this.#attempt += 1;
    clearTimeout(this.#lingering);
    this.#session = null;
    this.#microphone.close();
    this.#speaker.stop();
    this.#tell("level", 0);
    this.#enter("idle");
  }

  #enter(phase, outcome) {
    this.#phase = phase;
    this.#tell("phase", { phase, outcome, handsFree: this.#handsFree });
  }

  #complain(message) {
    this.#tell("trouble", message);
  }

  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
