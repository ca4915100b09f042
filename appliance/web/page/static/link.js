// The WebSocket: opened with the page, opened again when it is lost. Messages come out as events:
// "message" (detail: the JSON object), "sound" (detail: an ArrayBuffer), "up", "down".

const FIRST_RETRY_MS = 500;
const LAST_RETRY_MS = 10_000;
const MOST_WAITING_BYTES = 1 << 20; // sound that waits longer than this comes too late to be of use

export class Link extends EventTarget {
  #socket = null;
  #retryMs = FIRST_RETRY_MS;

  open() {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}/ws`);
    socket.binaryType = "arraybuffer";
    socket.addEventListener("open", () => {
      this.#retryMs = FIRST_RETRY_MS;
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
    if (this.up && this.#socket.bufferedAmount < MOST_WAITING_BYTES) this.#socket.send(block);
  }

  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
