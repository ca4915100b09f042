// The WebSocket: opened with the page, opened again when it is lost. Messages come out as events:
// "message" (detail: the JSON object), "sound" (detail: an ArrayBuffer), "up", "down".

const FIRST_RETRY_MS = 500;
const LAST_RETRY_MS = 10_000;
const MOST_WAITING_BYTES = 1 << 20; // sound that waits longer than this comes too late to be of use
const RESUME_BYTES = MOST_WAITING_BYTES / 2; // one long hole rather than many short ones

export class Link extends EventTarget {
  #socket = null;
  #retryMs = FIRST_RETRY_MS;
  #missed = 0; // samples of 16 bits that were not sent

  open() {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}/ws`);
    socket.binaryType = "arraybuffer";
    socket.addEventListener("open", () => {
      this.#retryMs = FIRST_RETRY_MS;
      this.#missed = 0;
      this.send({ type: "watch", sessions: "all" });
      this.#tell("up");
    });
    socket.addEventListener("message", ({ data }) => {
      if (typeof data === "string") this.#tell("message", JSON.parse(data));
      else this.#tell("sound", data);
    });
    socket.addEventListener("close", () => {
      this.#tell("down");
      setTimeout(() => this.open(), this.#retryMs);
      this.#retryMs = Math.min(this.#retryMs * 2, LAST_RETRY_MS);
    });
    this.#socket = socket;
  }

  get up() {
    return this.#socket?.readyState === WebSocket.OPEN;
  }

  /** Send an object; nothing happens while the link is down. */
  send(message) {
    if (this.up) this.#socket.send(JSON.stringify(message));
  }

  /** Send a block of the microphone's sound. */
  sendSound(block) {
    if (!this.up) return;
    if (this.#socket.bufferedAmount >= (this.#missed ? RESUME_BYTES : MOST_WAITING_BYTES)) {
      this.#missed += block.byteLength / Int16Array.BYTES_PER_ELEMENT;
      return;
    }
    // So that Wren knows where it is, and does not hear as one what was not.
    if (this.#missed) this.send({ type: "missed", samples: this.#missed });
    this.#missed = 0;
    this.#socket.send(block);
  }

  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
