// The HTTP API. Every failure is an Error with a `code` and a message that can be shown.

async function ask(path, options) {
  let answer;
  try {
    answer = await fetch(path, { credentials: "same-origin", ...options });
  } catch {
    throw Object.assign(new Error("Wren does not answer. Is it running?"), { code: "page.unreachable" });
  }
  const body = await answer.json().catch(() => null);
  if (answer.status === 401) location.reload(); // the token was changed: the page that asks for it comes up
  if (!answer.ok) {
    const { code = `page.http_${answer.status}`, message = "Wren could not answer." } = body?.error ?? {};
    throw Object.assign(new Error(message), { code });
  }
  return body;
}

export const getState = () => ask("/api/state");

export const getTraces = async () => (await ask("/api/traces")).traces;

export const postText = (text) =>
  ask("/api/text", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ text }),
  });

export const postMute = (muted) =>
  ask("/api/mute", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ muted }),
  });

export const postFile = (file) =>
  ask(`/api/file?name=${encodeURIComponent(file.name)}`, {
    method: "POST",
    headers: { "Content-Type": "application/octet-stream" },
    body: file,
  });

export const sayUrl = (text) => `/api/say?text=${encodeURIComponent(text.slice(0, 1000))}`;
