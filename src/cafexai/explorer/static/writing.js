// What a language model writes after the text, and what each of its tokens comes from.
import { latest } from "./api.js";
import { clear, field, h, minus, scroll } from "./dom.js";
import { about, asked } from "./state.js";

let shown = null;

const send = latest("generation", (result) => clear(shown, heat(result)),
  (error) => clear(shown, h("p", { class: "wrong", role: "alert" }, error.message)));

export function writing() {
  if (!about.writes) return null;
  shown = h("div", { id: "written" });
  const tokens = h("input", { type: "number", min: 1, max: about.writes, value: 8, id: "write-tokens" });
  const ask = () => {
    clear(shown, h("p", { class: "quiet" }, "writing …"));
    send({ ...asked(), tokens: Math.max(1, Math.min(about.writes, Math.round(+tokens.value) || 1)) });
  };
  return [h("h3", null, "What does the model write?"),
    h("div", { class: "buttons" }, field("Tokens", tokens), h("button", { type: "button", id: "write", onclick: ask }, "Write and explain")), shown];
}

export const forget = () => { if (shown) clear(shown); };

function heat(result) {
  const cell = (y, x) => {
    if (!result.seen[y][x]) return h("td", { class: "later" }, h("span", { class: "unseen" }, "comes later"));
    const net = result.net[y][x];
    return h("td", { look: { "--tint": net < 0 ? "var(--down)" : "var(--up)", "--a": String(Math.abs(net) / result.reach) } }, minus(result.told[y][x]));
  };
  const table = h("table", { class: "heat" },
    h("caption", null, `Net scores; explained: ${result.explained}. Blue pushed the token up, orange pushed it down.`),
    h("thead", null, h("tr", null, h("th", { scope: "col" }, "from"), result.tokens.map((token, x) => h("th", { scope: "col" }, h("b", null, token),
      result.chances.length ? [h("br"), result.chances[x]] : null)))),
    h("tbody", null, result.sources.map((name, y) => h("tr", { class: y === result.border && y ? "first" : null },
      h("th", { scope: "row" }, name), result.tokens.map((_, x) => cell(y, x))))));
  return [h("p", null, "It writes: ", h("strong", { id: "written-text" }, result.text)), scroll("What each generated token comes from", table)];
}
