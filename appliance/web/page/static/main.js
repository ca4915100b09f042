// Puts the page together: the link's events go to the talk button and the conversation, and back.

import { showConnection, showState } from "./about.js";
import { getState, getTraces, postFile, postMute, postText } from "./api.js";
import { Conversation } from "./conversation.js";
import { byId } from "./dom.js";
import { Link } from "./link.js";
import { Microphone } from "./microphone.js";
import { Speaker } from "./speaker.js";
import { Talk } from "./talk.js";

const STATE_EVERY_MS = 10_000;
const OUTCOMES = { "nothing-heard": "I heard nothing. Press and speak", failed: "That went wrong. Press and try again" };

const conversation = new Conversation();
const link = new Link();
const talk = new Talk(link, new Microphone(), new Speaker((...heard) => talk.played(...heard)));

// ---- the talk button

const stage = byId("stage");

function stateText({ phase, outcome, handsFree }) {
  if (phase === "opening") return "Opening the microphone…";
  if (phase === "listening") return "Listening…";
  if (phase === "thinking") return "Thinking…";
  if (phase === "speaking") return "Speaking… press to interrupt";
  return OUTCOMES[outcome] ?? (handsFree ? "Waiting for the wake word" : "Press and speak");
}

talk.addEventListener("phase", ({ detail }) => {
  stage.dataset.phase = detail.phase;
  byId("talk-name").textContent = { idle: "Talk", speaking: "Interrupt" }[detail.phase] ?? "Stop";
  byId("hands-free").checked = detail.handsFree;
  // "I heard nothing" must stay readable when the microphone is put away a moment later.
  const kept = detail.phase === "idle" && Object.values(OUTCOMES).includes(byId("state").textContent);
  if (!kept) byId("state").textContent = stateText(detail);
  if (detail.phase === "opening" || detail.phase === "listening") notice(null);
  if (detail.phase === "idle") byId("partial").textContent = "";
});
talk.addEventListener("level", ({ detail }) => stage.style.setProperty("--level", detail.toFixed(2)));
talk.addEventListener("trouble", ({ detail }) => notice(detail));

byId("talk").addEventListener("click", () => talk.press());
byId("hands-free").addEventListener("change", ({ target }) => talk.setHandsFree(target.checked));
addEventListener("keydown", (event) => event.key === "Escape" && talk.stop());

// ---- what is heard, here and elsewhere

function sourceOf(session) {
  if (session === talk.session) return "Spoken here";
  if (session.startsWith("browser")) return "Spoken on a page";
  return "Spoken to this machine";
}

function show(message) {
  const { type, utterance: id, session } = message;
  if (type === "partial" || type === "text") {
    if (!message.text) return;
    const final = type === "text";
    conversation.update(id, { source: sourceOf(session), text: message.text, final });
    if (session === talk.session) byId("partial").textContent = message.text;
  } else if (type === "announcing") {
    conversation.update(id, { source: "Announced", reply: message.text });
  } else if (type === "intent") {
    conversation.update(id, { intent: message.intent, slots: message.slots });
  } else if (type === "reply") {
    conversation.update(id, { reply: message.text });
  } else if (type === "fault" && conversation.has(id)) {
    conversation.update(id, { error: message.message });
  } else if (type === "trace" && conversation.has(id)) {
    conversation.update(id, { outcome: message.outcome, final: true, trace: message });
  } else if (["engine", "heat", "strain", "breaker"].includes(type)) {
    getState().then(showState, (error) => notice(error.message));
  }
}

link.addEventListener("message", ({ detail }) => show(detail));
link.addEventListener("up", () => {
  showConnection(true);
  refresh();
});
link.addEventListener("down", () => showConnection(false));

/** Anything shown as a finished utterance: a trace of the server, or of a file. */
function showTrace(trace, source) {
  const { utterance: id, transcript: text, intent, slots, reply, outcome, error } = trace;
  if (!text || conversation.has(id)) return;
  conversation.update(id, { source, text, final: true, intent, slots, reply, outcome, error, trace });
}

async function refresh() {
  try {
    showState(await getState());
    for (const trace of await getTraces()) showTrace(trace, sourceOf(trace.session));
  } catch (error) {
    notice(error.message);
  }
}

setInterval(() => {
  if (link.up && !document.hidden) getState().then(showState, (error) => notice(error.message));
}, STATE_EVERY_MS);

// ---- this machine's own microphone

byId("machine").addEventListener("click", async ({ currentTarget }) => {
  try {
    await postMute(currentTarget.getAttribute("aria-pressed") !== "true");
    showState(await getState());
  } catch (error) {
    notice(error.message);
  }
});

// ---- typing

byId("ask").addEventListener("submit", async (event) => {
  event.preventDefault();
  const field = byId("text");
  const text = field.value.trim();
  if (!text) return;
  const button = event.submitter ?? event.target.querySelector("button");
  button.disabled = true;
  try {
    const { intent, slots, reply } = await postText(text);
    conversation.update(crypto.randomUUID?.() ?? `typed-${performance.now()}`, {
      source: "Typed here", text, final: true, intent, slots, reply,
    });
    field.value = "";
    notice(null);
  } catch (error) {
    notice(error.message);
  } finally {
    button.disabled = false;
    field.focus();
  }
});

// ---- recordings

const drop = byId("drop");

async function hearFile(file) {
  if (drop.dataset.busy === "true") return;
  const words = byId("drop-text").cloneNode(true);
  drop.dataset.busy = "true";
  byId("drop-text").textContent = `Hearing ${file.name}…`;
  try {
    const record = await postFile(file);
    record.traces.forEach((trace) => showTrace(trace, `Recording ${record.file}`));
    if (record.error) notice(record.error);
    else notice(record.transcript ? null : `${record.file}: no words were heard in it.`);
  } catch (error) {
    notice(error.message);
  } finally {
    byId("drop-text").replaceWith(words);
    drop.dataset.busy = "false";
    byId("file").value = "";
  }
}

byId("file").addEventListener("change", ({ target }) => target.files[0] && hearFile(target.files[0]));
// Over the whole page: a file that misses the field must not replace the page.
addEventListener("dragover", (event) => {
  event.preventDefault();
  drop.dataset.over = "true";
});
addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) drop.dataset.over = "false";
});
addEventListener("drop", (event) => {
  event.preventDefault();
  drop.dataset.over = "false";
  const [file] = event.dataTransfer.files;
  if (file) hearFile(file);
});

function notice(text) {
  byId("notice").textContent = text ?? "";
  byId("notice").hidden = !text;
}

link.open();
