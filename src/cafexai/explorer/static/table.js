// All rows: pages from the server, sorted and filtered there.
import { ask, latest } from "./api.js";
import { small } from "./charts.js";
import { clear, field, h, many, minus, options, say, short, wrong } from "./dom.js";
import { about, keep, state, undone } from "./state.js";

const SCORES = { output: "output", chance: "probability", confidence: "confidence", share: "conflict share", conflict: "conflict", error: "error" };
let view = null, timer = null, sent = "", scores = ["output", "conflict", "share"];

export function show(main, go) {
  view = {
    go,
    body: h("tbody"),
    head: h("tr"),
    found: h("p", { id: "found" }),
    progress: h("p", { class: "quiet", id: "progress" }),
    bar: h("progress", { max: 1, value: 0, "aria-label": "Rows scored" }),
    again: h("p"),
    pages: h("div", { class: "buttons" }),
    problem: h("p", { class: "wrong", role: "alert" }),
  };
  clear(main, h("h2", null, "Rows"), search(), view.problem, h("div", { class: "buttons" }, view.bar, view.progress, view.again), view.found,
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Rows of the data" },
      h("table", { class: "rows", id: "rows" }, h("thead", null, view.head), view.body)),
    view.pages);
  heads();
  refresh();
}

export function hide() {
  clearTimeout(timer);
}

const send = latest("rows", draw, (error) => {
  const input = document.getElementById(`filter-${error.field}`);
  if (input) wrong(input, error.message);
  else view.problem.textContent = error.message;
});

export function refresh() {
  keep();
  view.problem.textContent = "";
  send(state.table);
}

function set(changes) {
  state.table = { page: 0, ...state.table, page: 0, ...changes };
  refresh();
}

function search() {
  const text = h("input", { type: "search", id: "search", value: state.table.text || "", size: 24, maxlength: 200 });
  let wait = null;
  text.addEventListener("input", () => {
    clearTimeout(wait);
    wait = setTimeout(() => set({ text: text.value }), 250);
  });
  const column = h("select", { id: "filter-column" });
  const numbers = [...Object.keys(SCORES), ...about.columns.filter((one) => one.kind === "number").map((one) => one.name)];
  const words = (name) => (about.editable[name]?.words.length ? about.editable[name].words : null);
  const named = about.columns.map((one) => one.name).filter(words);
  options(column, [["", "(all rows)"], ...[...numbers, ...named].map((name) => [name, SCORES[name] || name])],
    Object.keys(state.table.ranges || {})[0] || Object.keys(state.table.only || {})[0] || "");
  const is = h("select", { id: "filter-is" });
  const [low, high] = Object.values(state.table.ranges || {})[0] || ["", ""];
  const from = h("input", { type: "text", inputmode: "decimal", size: 6, id: "filter-from", value: low ?? "" });
  const to = h("input", { type: "text", inputmode: "decimal", size: 6, id: "filter-to", value: high ?? "" });
  const ends = [field("from", from), field("to", to)], choice = field("is", is);
  const look = () => {
    const known = words(column.value);
    choice.hidden = !known;
    ends.forEach((one) => { one.hidden = Boolean(known) || !column.value; });
    if (known) options(is, known.map((word) => [word, word]), Object.values(state.table.only || {})[0] || known[0]);
  };
  look();
  const range = (event) => {
    if (event.target === column) look();
    if (words(column.value)) return set({ ranges: {}, only: { [column.value]: is.value } });
    return between();
  };
  const between = () => {
    const ends = [from, to].map((input) => (input.value.trim() === "" ? null : Number(input.value)));
    [from, to].forEach((input, place) => wrong(input, Number.isNaN(ends[place]) ? "Give a number." : ""));
    if (ends.some(Number.isNaN)) return;
    set({ only: {}, ranges: column.value && ends.some((one) => one !== null) ? { [column.value]: ends } : {} });
  };
  for (const input of [column, from, to, is]) input.addEventListener("change", range);
  return h("form", { class: "choices", "aria-label": "Which rows", onsubmit: (event) => event.preventDefault() },
    field("Search (a text, or column=word)", text), field("Only where", column), choice, ends, predicting());
}

function predicting() {
  // Where a model of one output changes its mind, and whether only wrong rows are shown.
  const parts = [];
  if (about.threshold !== null) {
    const limit = h("input", { type: "text", inputmode: "decimal", size: 6, id: "threshold", value: state.table.threshold ?? about.threshold });
    limit.addEventListener("change", () => {
      const next = Number(limit.value);
      if (!limit.value.trim() || Number.isNaN(next) || (about.probability && (next < 0 || next > 1))) return wrong(limit, about.probability ? "Give a number from 0 to 1." : "Give a number.");
      wrong(limit, "");
      return set({ threshold: next });
    });
    parts.push(field(`Predict ${about.classes[1]} above ${about.probability ? "a probability of" : "an output of"}`, limit));
  }
  if (about.label && about.classes.length) {
    const box = h("input", { type: "checkbox", id: "only-wrong", checked: Boolean(state.table.wrong) });
    box.addEventListener("change", () => set({ wrong: box.checked }));
    parts.push(h("span", { class: "field" }, h("label", { for: "only-wrong" }, "Only wrong rows"), box));
  }
  return parts;
}

function heads() {
  const sorted = (name) => (state.table.by === name ? (state.table.down ? "descending" : "ascending") : null);
  const head = (name, label, first) => h("th", { scope: "col", "aria-sort": sorted(name) },
    h("button", { type: "button", class: "sort", "data-by": name, onclick: () => {
      const down = state.table.by === name ? !state.table.down : first;
      set({ by: name, down });
      heads();
      document.querySelector(`.sort[data-by="${CSS.escape(name)}"]`)?.focus();
    } }, label, sorted(name) ? h("span", { "aria-hidden": "true" }, state.table.down ? " ↓" : " ↑") : ""));
  const cells = [h("th", { scope: "col" }, h("span", { class: "unseen" }, "chosen")), head("", "row", false)];
  if (about.classes.length) cells.push(h("th", { scope: "col", class: "left" }, "prediction"));
  if (about.label) {
    const truth = head(about.label, `truth (${about.label})`, false);
    truth.append(h("div", { class: "small-chart", "data-column": about.label }));
    cells.push(truth);
  }
  for (const name of scores) cells.push(head(name, name === "chance" && about.classes.length ? `probability of ${about.classes[1]}` : SCORES[name], true));
  for (const column of about.columns) {
    if (column.name === about.label) continue; // it is the truth
    const cell = about.form === "table" ? head(column.name, column.name, false) : h("th", { scope: "col" }, column.name);
    if (about.form === "table") cell.append(h("div", { class: "small-chart", "data-column": column.name }));
    cells.push(cell);
  }
  clear(view.head, cells);
}

const known = new Map();
async function distributions() {
  // One after the other, once the rows are there: nobody waits for them.
  for (const room of view.head.querySelectorAll(".small-chart")) {
    const name = room.dataset.column;
    if (!known.has(name)) known.set(name, ask("distribution", { column: name }).catch(() => known.delete(name)));
    const found = await known.get(name);
    if (found.counts) clear(room, small(found));
  }
}

function draw(result) {
  if (!view.body.isConnected) return;
  if (result.scores.join() !== sent) {
    sent = result.scores.join();
    scores = Object.keys(SCORES).filter((name) => result.scores.includes(name) && !(name === "confidence" && result.scores.includes("chance")));
    heads();
  }
  const focused = document.activeElement?.dataset?.row;
  clear(view.body, result.rows.map((row) => line(row)));
  if (focused !== undefined) view.body.querySelector(`[data-row="${CSS.escape(focused)}"]`)?.focus();
  const partly = result.covered < about.rows;
  view.found.textContent = `${many(result.found, "row")}${partly ? `, sorted among the ${result.covered.toLocaleString("en")} of ${about.rows.toLocaleString("en")} that are scored so far` : result.found < about.rows ? ` of ${about.rows.toLocaleString("en")}` : ""}.${about.all_columns > about.columns.length ? ` ${about.columns.length} of ${about.all_columns} columns are shown.` : ""}${result.accuracy?.known ? ` ${result.accuracy.wrong.toLocaleString("en")} of ${many(result.accuracy.known, "prediction")} ${result.accuracy.wrong === 1 ? "is" : "are"} wrong (${((100 * result.accuracy.wrong) / result.accuracy.known).toFixed(1)} %).` : ""}`;
  if (!view.head.querySelector(".small-chart svg")) distributions();
  pages(result);
  state.table.page = result.page;
  told(result.progress);
}

function line(row) {
  const box = h("input", { type: "checkbox", checked: state.chosen.includes(row.place), "aria-label": `Choose ${row.name}` });
  box.addEventListener("change", () => {
    state.chosen = box.checked ? [...state.chosen, row.place].slice(-500) : state.chosen.filter((one) => one !== row.place);
    keep();
    say(`${many(state.chosen.length, "row")} chosen`);
  });
  const open = h("button", { type: "button", class: "link", "data-row": row.place, onclick: () => {
    state.row = row.place;
    state.edits = {};
    undone.length = 0;
    state.view = "row";
    view.go(true);
  } }, row.name);
  const share = (name, value) => (["share", "confidence", "chance"].includes(name) ? `${(100 * value).toFixed(1)} %` : short(value));
  const shown = about.columns.map((column, place) => [column.name, row.cells[place]]).filter(([name]) => name !== about.label);
  return h("tr", { class: row.wrong ? "mistaken" : null }, h("td", null, box), h("th", { scope: "row" }, open),
    about.classes.length ? h("td", { class: "word" }, row.predicted ?? "…", row.wrong ? h("span", { class: "wrong", title: "wrong" }, " ✗", h("span", { class: "unseen" }, "wrong")) : null) : null,
    about.label ? h("td", { class: typeof row.truth === "number" ? null : "word" }, typeof row.truth === "number" ? short(row.truth) : row.truth ?? h("span", { class: "quiet" }, "missing")) : null,
    scores.map((name) => h("td", null, row.scores[name] === null || row.scores[name] === undefined ? "…" : share(name, row.scores[name]))),
    shown.map(([, value]) => h("td", { class: typeof value === "number" ? null : "word" }, typeof value === "number" ? short(value) : value ?? h("span", { class: "quiet" }, "missing"))));
}

function pages(result) {
  const move = (page) => {
    state.table.page = Math.max(0, Math.min(result.pages - 1, page));
    refresh();
  };
  const number = h("input", { type: "text", inputmode: "numeric", size: 7, id: "page", value: result.page + 1 });
  number.addEventListener("change", () => (/^\d+$/.test(number.value) && +number.value > 0 ? move(+number.value - 1) : wrong(number, "Give the number of a page.")));
  const focused = document.activeElement?.id;
  const button = (id, text, page, off) => h("button", { type: "button", id, disabled: off, onclick: () => move(page) }, text);
  clear(view.pages, button("first", "« First", 0, !result.page), button("previous", "‹ Previous", result.page - 1, !result.page), field("Page", number),
    h("span", null, `of ${result.pages.toLocaleString("en")}`), button("next", "Next ›", result.page + 1, result.page + 1 >= result.pages),
    button("last", "Last »", result.pages - 1, result.page + 1 >= result.pages));
  if (["first", "previous", "next", "last", "page"].includes(focused)) document.getElementById(focused).focus();
}

function told(progress) {
  view.bar.value = progress.done / progress.total;
  const left = progress.left && progress.done < progress.total ? `, about ${Math.max(1, Math.round(progress.left))} s more` : "";
  const how = `c = ${progress.choice.c}, variant ${progress.choice.variant}`;
  view.progress.textContent = progress.trouble ? `Scoring ended at row ${progress.done}: ${progress.trouble}`
    : progress.done < progress.total ? `${progress.done.toLocaleString("en")} of ${progress.total.toLocaleString("en")} rows are scored (${how})${left}.` : `All rows are scored (${how}).`;
  const same = JSON.stringify(Object.entries(progress.choice).sort()) === JSON.stringify(Object.entries(state.choice).sort());
  if (same) clear(view.again);
  else if (!view.again.firstChild) clear(view.again, h("button", { type: "button", id: "score-again", onclick: async () => {
    await ask("score", { choice: state.choice });
    refresh();
  } }, "Score all rows as One row is explained now"));
  clearTimeout(timer);
  if (progress.done < progress.total && !progress.trouble) timer = setTimeout(tick, 1000);
}

async function tick() {
  if (!view.body.isConnected) return;
  if (state.table.by in SCORES || view.body.textContent.includes("…")) return send(state.table);
  try {
    told(await ask("progress"));
  } catch {
    timer = setTimeout(tick, 2000);
  }
}
