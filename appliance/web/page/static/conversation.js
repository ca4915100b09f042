// The list of what was said and answered, newest first. An entry is found by its id and filled in as things happen.

import { sayUrl } from "./api.js";
import { byId, element, icon } from "./dom.js";
import { waterfall } from "./waterfall.js";

const MOST_ENTRIES = 50;
const PLAY = "M7 4.5v15l13-7.5z";
const STOP = "M6 6h12v12H6z";

const OUTCOMES = {
  stopped: "Stopped.",
  failed: "Something went wrong.",
  "nothing-heard": "No words were heard.",
};

export class Conversation {
  #entries = new Map();
  #list = byId("list");
  #player = new Player();

  /** Add to an entry what is new about it (source, text, final, intent, slots, reply, outcome, error, trace). */
  update(id, news) {
    const entry = this.#entries.get(id) ?? this.#add(id);
    entry.update(news);
  }

  has(id) {
    return this.#entries.has(id);
  }

  #add(id) {
    byId("empty").hidden = true;
    // Only the newest shows its times unasked.
    for (const old of this.#entries.values()) old.fold();
    const entry = new Entry(this.#player);
    this.#entries.set(id, entry);
    this.#list.prepend(entry.node);
    if (this.#entries.size > MOST_ENTRIES) {
      const [oldest] = this.#entries.keys();
      this.#entries.get(oldest).node.remove();
      this.#entries.delete(oldest);
    }
    return entry;
  }
}

class Entry {
  #source = element("span", { className: "source" });
  #response = element("span", { className: "response" });
  #said = element("p", { className: "said", hidden: true, data: { final: "false" } });
  #chips = element("ul", { className: "chips", hidden: true });
  #reply = element("p", { className: "reply" });
  #play;
  #answer;
  #problem = element("p", { className: "problem", hidden: true });
  #times = element("details", { className: "times", hidden: true, open: true });

  constructor(player) {
    this.#play = player.button(() => this.#reply.textContent);
    this.#answer = element("div", { className: "answer", hidden: true }, this.#reply, this.#play);
    const top = element("div", { className: "entry-top" }, this.#source, this.#response);
    this.node = element("li", { className: "entry" });
    this.node.append(top, this.#said, this.#chips, this.#problem, this.#answer, this.#times);
  }

  update({ source, text, final, intent, slots, reply, outcome, error, trace }) {
    if (source !== undefined) this.#source.textContent = source;
    if (text) {
      this.#said.textContent = text;
      this.#said.hidden = false;
    }
    if (final !== undefined) this.#said.dataset.final = String(final);
    if (intent !== undefined) this.#showIntent(intent, slots ?? {});
    if (reply) {
      this.#reply.textContent = reply;
      this.#answer.hidden = false;
    }
    const told = error ?? OUTCOMES[outcome];
    if (told) {
      this.#problem.textContent = told;
      this.#problem.hidden = false;
    }
    if (trace) this.#showTimes(trace);
  }

  fold() {
    this.#times.open = false;
  }

  #showIntent(intent, slots) {
    const name = element("li", { className: intent ? "intent" : "none", textContent: intent ?? "not understood" });
    const values = Object.entries(slots).map(([slot, value]) => element("li", { textContent: `${slot}: ${value}` }));
    this.#chips.replaceChildren(name, ...values);
    this.#chips.hidden = false;
  }

  #showTimes(trace) {
    const table = waterfall(trace);
    if (!table) return;
    if (trace.response_ms !== null) this.#response.textContent = `answered in ${trace.response_ms} ms`;
    this.#times.replaceChildren(element("summary", { textContent: "Where the time went" }), table);
    this.#times.hidden = false;
  }
}

/** One reply sounds at a time. */
class Player {
  #audio = new Audio();
  #button = null;

  constructor() {
    for (const over of ["ended", "error", "pause"]) this.#audio.addEventListener(over, () => this.#show(false));
  }

  button(text) {
    const button = element("button", { type: "button", className: "play" });
    this.#face(button, false);
    button.addEventListener("click", () => {
      const again = this.#button === button && !this.#audio.paused;
      this.#audio.pause();
      if (again) return;
      this.#button = button;
      this.#audio.src = sayUrl(text());
      this.#audio.play().then(() => this.#show(true), () => this.#show(false));
    });
    return button;
  }

  #show(playing) {
    if (this.#button) this.#face(this.#button, playing);
  }

  #face(button, playing) {
    button.replaceChildren(icon(playing ? STOP : PLAY));
    button.setAttribute("aria-label", playing ? "Stop the reply" : "Play the reply");
  }
}
