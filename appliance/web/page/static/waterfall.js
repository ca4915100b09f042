// Where the time of one utterance went, from the end of speech to the first sound of the reply.

import { element } from "./dom.js";

const STAGES = ["endpoint", "recognition", "intent", "action", "synthesis"];

/** A table with a bar for each stage, or null where the utterance was not answered. */
export function waterfall(trace) {
  const stages = trace.stages.filter((stage) => STAGES.includes(stage.name));
  if (!stages.length) return null;
  const zero = Math.min(...stages.map((stage) => stage.start_ms));
  const length = Math.max(1, ...stages.map((stage) => stage.start_ms + stage.ms - zero));
  const rows = stages.map((stage) => {
    const bar = element("div", { className: "bar", data: { stage: stage.name } });
    bar.style.left = `${(100 * (stage.start_ms - zero)) / length}%`;
    bar.style.width = `${(100 * stage.ms) / length}%`;
    return element(
      "tr",
      {},
      element("th", { scope: "row", textContent: stage.name }),
      element("td", {}, element("div", { className: "track" }, bar)),
      element("td", { className: "ms", textContent: `${stage.ms} ms` }),
    );
  });
  const table = element("table", { className: "waterfall" }, element("tbody", {}, ...rows));
  if (trace.response_ms !== null) {
    const total = element("td", { className: "ms", textContent: `${trace.response_ms} ms` });
    table.append(element("tfoot", {}, element("tr", {}, element("th", { scope: "row", textContent: "response" }), element("td"), total)));
  }
  return table;
}
