// Side by side: two rows, two methods, or two values of c.
import { ask, Refusal } from "./api.js";
import { clear, field, h, minus, options, short, wrong } from "./dom.js";
import { bar, reach } from "./ledger.js";
import { outcome } from "./row.js";
import { about, keep, state } from "./state.js";

let view = null;
let known = [{ name: "cafe", label: "CAFE" }];
const name = (method) => known.find((one) => one.name === method)?.label || method.replaceAll("_", " ");

export function show(main) {
  state.sides ??= [{ row: state.row, method: "cafe", c: state.choice.c }, { row: state.row, method: "cafe", c: state.choice.c < 0.5 ? 1 : 0 }];
  view = { results: [null, null], runs: [null, null], tokens: [0, 0], notes: [h("div"), h("div")], table: h("div"), methods: [null, null], refused: h("div") };
  clear(main, h("h2", null, "Side by side"), h("p", { class: "quiet" }, "Both sides are explained as chosen under One row, apart from what is chosen here."),
    h("div", { class: "two" }, [0, 1].map((side) => panel(side))), view.table, view.refused);
  [0, 1].forEach(refresh);
  offer();
}

async function offer() {
  // The methods that run on this model: they are tried once, and those that do not run are named with their reason.
  const mine = view, found = await ask("methods").catch(() => null);
  if (!found || mine !== view) return;
  known = found.methods;
  view.methods.forEach((select, side) => options(select, known.map((one) => [one.name, one.label]), state.sides[side].method));
  if (found.refused.length) clear(view.refused, h("details", null, h("summary", { class: "quiet" }, `${found.refused.length} more methods do not run on this model`),
    h("ul", null, found.refused.map((one) => h("li", null, `${one.label}: ${one.reason}`)))));
}

export function hide() {
  view?.runs.forEach((run) => { if (run !== null) ask("end_method", { run }).catch(() => null); });
}

function panel(side) {
  const own = state.sides[side], letter = "AB"[side];
  const row = h("input", { type: "text", inputmode: "numeric", size: 8, value: own.row, id: `side-row-${side}` });
  row.addEventListener("change", () => {
    if (!/^\d+$/.test(row.value.trim()) || +row.value >= about.rows) return wrong(row, `Give a row from 0 to ${about.rows - 1}.`);
    wrong(row, "");
    own.row = +row.value;
    return refresh(side);
  });
  const method = h("select", { id: `side-method-${side}` });
  options(method, known.map((one) => [one.name, one.label]), own.method);
  view.methods[side] = method;
  const c = h("input", { type: "range", min: 0, max: 1, step: 0.01, value: own.c, id: `side-c-${side}` });
  const shown = h("output", { for: c.id }, (+own.c).toFixed(2));
  const beside = h("span", { class: "field" }, h("label", { for: c.id }, "c"), c, shown);
  beside.hidden = own.method !== "cafe";
  method.addEventListener("change", () => {
    own.method = method.value;
    beside.hidden = own.method !== "cafe";
    refresh(side);
  });
  c.addEventListener("input", () => {
    own.c = +c.value;
    shown.textContent = own.c.toFixed(2);
    refresh(side);
  });
  return h("fieldset", null, h("legend", null, letter), field("Row", row), field("Method", method), beside, view.notes[side]);
}

async function refresh(side) {
  keep();
  const own = state.sides[side], token = ++view.tokens[side], mine = view;
  const body = { row: own.row, choice: { ...state.choice, c: own.c }, edits: {} };
  if (view.runs[side] !== null) ask("end_method", { run: view.runs[side] }).catch(() => null);
  view.runs[side] = null;
  const current = () => mine === view && token === view.tokens[side];
  try {
    if (own.method === "cafe") {
      const result = await ask("row", { ...body, most: 500, slot: `side ${side}` });
      if (current()) put(side, { title: result.name, told: `${result.now.target}: ${outcome(result.now)}; conflict ${result.now.conflict}`, lines: result.now.lines, start: result.now.start, end: result.now.end });
      return;
    }
    const { run } = await ask("begin_method", { ...body, method: own.method });
    if (!current()) return void ask("end_method", { run });
    view.runs[side] = run;
    const stop = h("button", { type: "button", id: `stop-${side}`, onclick: () => ask("end_method", { run }) }, "End it");
    const text = h("span", null, "waiting …");
    clear(view.notes[side], h("p", { class: "buttons" }, text, stop));
    const begin = performance.now();
    while (current()) {
      const told = await ask("run", { run });
      if (!current()) return;
      text.textContent = `${name(own.method)}: ${told.calls} calls of the model, ${((performance.now() - begin) / 1000).toFixed(1)} s`;
      if (told.state === "done") {
        view.runs[side] = null;
        return put(side, { title: `Row ${own.row}`, told: `${name(own.method)}: ${told.calls} calls of the model in ${told.seconds.toFixed(2)} s; output ${minus(told.output)}`, lines: told.scores.map((one) => ({ name: one.name, value: "", net: one.net, exact: [Math.max(one.exact, 0), Math.max(-one.exact, 0), one.exact], single: true })) });
      }
      if (told.state === "failed" || told.state === "ended") {
        view.runs[side] = null;
        view.results[side] = null;
        draw();
        return clear(view.notes[side], h("p", { class: told.state === "failed" ? "wrong" : null, id: `ended-${side}` }, told.state === "ended" ? `${name(own.method)} was ended.` : told.trouble));
      }
      await new Promise((done) => setTimeout(done, 200));
    }
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    if (current() && error.status && error.status !== 409) clear(view.notes[side], h("p", { class: "wrong", role: "alert" }, error.message));
  }
}

function put(side, result) {
  view.results[side] = result;
  clear(view.notes[side], h("p", { id: `side-told-${side}` }, h("b", null, result.title), ` ${result.told}`));
  draw();
}

function draw() {
  const [a, b] = view.results;
  if (!a && !b) return clear(view.table);
  const lines = [a, b].map((one) => new Map(one ? one.lines.map((line) => [line.name, line]) : []));
  const size = (key) => Math.max(...lines.map((one) => (one.has(key) ? one.get(key).exact[0] + one.get(key).exact[1] : 0)));
  const names = [...new Set([...lines[0].keys(), ...lines[1].keys()])].filter((key) => key !== "bias").sort((one, two) => size(two) - size(one)).slice(0, 40);
  if (lines.some((one) => one.has("bias"))) names.push("bias");
  const kinds = state.sides.map((one) => one.method === "cafe"), most = [a, b].map((one) => (one ? reach(one) : 0));
  const scale = kinds[0] === kinds[1] ? most.map(() => Math.max(...most)) : most;
  const cells = (side, key) => {
    const line = lines[side].get(key);
    if (!line) return [h("td"), h("td", { class: "picture" }), h("td")];
    return [h("td", { class: "value" }, minus(line.value)), h("td", { class: "picture" }, bar(line.exact, scale[side])), h("td", null, minus(line.net))];
  };
  return clear(view.table, h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Both explanations" }, h("table", { class: "ledger sides" },
    h("thead", null, h("tr", null, ["feature", "A", "down | up", "net", "B", "down | up", "net"].map((word) => h("th", { scope: "col", class: word === "down | up" ? "middle" : word.length === 1 ? "left" : null }, word)))),
    h("tbody", null, names.map((key) => h("tr", null, h("th", { scope: "row" }, key), cells(0, key), cells(1, key)))))),
    kinds[0] === kinds[1] ? null : h("p", { class: "quiet" }, "Bars of the two sides have scales of their own: CAFE shows both directions, other methods what is left."));
}
