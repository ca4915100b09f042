// What this Wren is: version, models with their licences, what works less well than it should, its own microphone.

import { byId, element } from "./dom.js";

const MICROPHONES = {
  live: "Wren’s mic: live",
  muted: "Wren’s mic: muted",
  absent: "Wren has no mic",
};
const TITLES = {
  live: "Press to close this machine’s microphone",
  muted: "The microphone is closed. Press to open it again",
  absent: "This machine has no microphone that can be opened",
};
const TASKS = { asr: "hearing", vad: "noticing speech", tts: "speaking", wake: "wake word" };

const UNITS = { C: "°C" };
const READING = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });

export function showState(state) {
  const machine = byId("machine");
  machine.textContent = MICROPHONES[state.microphone] ?? state.microphone;
  machine.dataset.state = state.microphone;
  machine.disabled = state.microphone === "absent";
  machine.title = TITLES[state.microphone] ?? "";
  machine.setAttribute("aria-pressed", String(state.microphone === "muted"));
  machine.hidden = false;

  byId("wake-words").textContent = state.wake_words.map((word) => `“${word.replaceAll("_", " ")}”`).join(" or ");
  byId("version").textContent = `Wren ${state.version}` + (state.area ? `, in the ${state.area}` : "");

  const degraded = byId("degraded");
  degraded.replaceChildren(...state.degraded.map((sentence) => element("li", { textContent: sentence })));
  degraded.hidden = !state.degraded.length;

  byId("engines").replaceChildren(
    ...state.engines.map((engine) =>
      element(
        "tr",
        {},
        element("td", { textContent: TASKS[engine.task] ?? engine.task }),
        element("td", { textContent: [engine.backend, engine.precision, engine.scheme].filter(Boolean).join(" ") }),
        element("td", { textContent: String(engine.threads) }),
        element("td", {}, element("small", { textContent: engine.reason })),
      ),
    ),
  );
  const better = byId("better-plan");
  better.textContent = state.better_plan ? `Measured since the start; from the next one on: ${state.better_plan}.` : "";
  better.hidden = !state.better_plan;
  const advice = byId("advice");
  advice.textContent = state.advice.map((sentence) => `${sentence}.`).join(" ");
  advice.hidden = !state.advice.length;
  const ahead = byId("ahead");
  ahead.textContent =
    `Worked ahead in ${state.ahead.utterances} utterances: ${state.ahead.hits} answered from it, ` +
    `${Math.round(100 * state.ahead.wasted)} % of ${state.ahead.spent_s} s of computing for nothing.`;
  ahead.hidden = !state.ahead.utterances;
  const sensors = byId("sensors");
  sensors.textContent = state.sensors.map((s) => `${s.name} ${READING.format(s.value)} ${UNITS[s.unit] ?? s.unit}`).join(" · ");
  sensors.hidden = !state.sensors.length;

  byId("models").replaceChildren(
    ...state.models.map((model) =>
      element(
        "tr",
        {},
        element("td", {}, model.title, ...model.caveats.map((caveat) => element("small", { textContent: caveat }))),
        element("td", { textContent: TASKS[model.task] ?? model.task }),
        element("td", { textContent: model.licence }),
      ),
    ),
  );
}

export function showConnection(up) {
  const connection = byId("connection");
  connection.textContent = up ? "" : "Connection lost, trying again…";
  connection.dataset.state = "lost";
  connection.hidden = up;
}
