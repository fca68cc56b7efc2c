// Requests to the explorer. Of several in a row only the last one matters: those in between are never sent.
import { byId } from "./dom.js";

const PAGE = Math.random().toString(36).slice(2);
let lost = null;
const returned = [];
export const onReturn = (call) => returned.push(call);

export class Refusal extends Error {
  constructor(message, field, status) {
    super(message);
    this.field = field || "";
    this.status = status;
  }
}

export async function post(name, body) {
  let answer;
  try {
    answer = await fetch(`/api/${name}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ slot: PAGE, ...body }),
    });
  } catch {
    gone("The explorer cannot be reached: it has ended, or this machine was asleep. This page goes on when it is there again.");
    throw new Refusal("The explorer cannot be reached.", "", 0);
  }
  if (answer.status === 401) {
    gone("The explorer was started again with another token. Open the address that it printed.");
    throw new Refusal("The explorer has another token.", "", 401);
  }
  if (!answer.ok) {
    const told = await answer.json().catch(() => ({ error: `The explorer answered ${answer.status}.` }));
    throw new Refusal(told.error || "superseded", told.field, answer.status);
  }
  return answer;
}

export const ask = async (name, body) => (await post(name, body || {})).json();

function gone(text) {
  byId("banner").textContent = text;
  byId("banner").hidden = false;
  lost ??= setInterval(async () => {
    let answer;
    try {
      answer = await fetch("/api/progress", { method: "POST", headers: { "content-type": "application/json" }, body: "{}" });
    } catch {
      return;
    }
    if (answer.status === 401) {
      byId("banner").textContent = "The explorer was started again with another token. Open the address that it printed.";
      return;
    }
    if (!answer.ok) return;
    clearInterval(lost);
    lost = null;
    byId("banner").hidden = true;
    for (const call of returned) call();
  }, 1000);
}

export function latest(name, show, refuse) {
  // One request at a time; what comes meanwhile waits, and only the newest of it is sent.
  let running = false, next = null;
  return async function send(body) {
    if (running) {
      next = body;
      return;
    }
    running = true;
    try {
      const result = await ask(name, body);
      if (!next) show(result, body);
    } catch (error) {
      if (error.status === 409) next ??= null;
      else if (!(error instanceof Refusal)) throw error;
      else if (!next && error.status) refuse(error, body);
    } finally {
      running = false;
      if (next) {
        const now = next;
        next = null;
        send(now);
      }
    }
  };
}
