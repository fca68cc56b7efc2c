// One row: its ledger, what if, undo.
import { ask, latest } from "./api.js";
import { choices } from "./choices.js";
import { byId, clear, field, h, minus, options, say, wrong } from "./dom.js";
import { whatIfCurve } from "./charts.js";
import { Ledger } from "./ledger.js";
import { picture } from "./picture.js";
import { about, asked, change, edited, keep, state, undone } from "./state.js";
import { forget, writing } from "./writing.js";

let view = null, current = null;

export function show(main, go) {
  const ledger = new Ledger((line) => control(line));
  const form = choices(() => refresh());
  view = {
    ledger, form,
    head: h("div"),
    media: h("div"),
    told: h("div", { class: "told" }),
    more: h("p"),
    undo: h("button", { type: "button", id: "undo", onclick: undo }, "Undo"),
    reset: h("button", { type: "button", id: "reset", onclick: () => set({}) }, "Back to the row as it is"),
    problem: h("p", { class: "wrong", role: "alert" }),
    hidden: h("div"),
    check: h("p", { id: "check-told" }),
    checks: h("button", { type: "button", id: "check", onclick: () => sendCheck(asked()) }, "Does the model do what the scores say?"),
    curve: h("div"),
  };
  clear(main, h("h2", null, "One row"), goTo(go), form, view.problem, view.head, h("div", { class: "buttons" }, view.undo, view.reset), view.media, ledger.element, view.more, view.told, h("div", { class: "buttons" }, view.checks), view.check, view.hidden, whatIf(), writing());
  refresh();
}

function whatIf() {
  // The output while one column changes and all others stay.
  const names = Object.keys(about.editable);
  if (!names.length) return null;
  if (!names.includes(state.curve)) state.curve = "";
  const select = h("select", { id: "curve-column" });
  options(select, [["", "(choose a column)"], ...names.map((name) => [name, name])], state.curve);
  select.addEventListener("change", () => {
    state.curve = select.value;
    keep();
    curve();
  });
  return [h("h3", null, "What if one value were different?"), field("Column", select), view.curve];
}

const sendCurve = latest("curve", (result) => clear(view.curve, h("figure", null, whatIfCurve(result),
  h("figcaption", null, `${result.chances ? "Probability" : "Output"} for this row while ${result.column} changes and all other values stay${result.now === null ? "" : ` (now ${minus(result.now)})`}.`))),
(error) => clear(view.curve, h("p", { class: "wrong" }, error.message)));

// Hidden conflicts take many evaluations of the model: they are asked for once nothing is dragged any more.
let later = null;
const sendHidden = latest("pairs", (result) => clear(view.hidden, result.hidden.length ? [h("h3", null, "Hidden conflicts"),
  h("ul", { id: "row-hidden" }, result.hidden.map((one) => h("li", null, one))), h("p", { class: "quiet" }, result.measured)] : null),
() => clear(view.hidden));

function hidden() {
  clearTimeout(later);
  clear(view.hidden);
  later = setTimeout(() => view.hidden.isConnected && sendHidden(asked()), 400);
}

// Setting features to the baseline runs the model: only if it is asked for.
const sendCheck = latest("check", (result) => clear(view.check, `${minus(result.sentence)} ${result.evaluations} evaluations of the model.`),
  (error) => clear(view.check, h("span", { class: "wrong" }, error.message)));

function curve() {
  if (!state.curve) return clear(view.curve);
  return sendCurve({ ...asked(), column: state.curve });
}

const send = latest("row", (result) => draw(result), (error) => {
  if (view.form.refuse(error)) return;
  const input = byId(`cell-${error.field}`);
  if (input) wrong(input, error.message);
  else view.problem.textContent = error.message;
});

export function refresh() {
  keep();
  clear(view.check);
  forget();
  send({ ...asked(), most: state.most });
  curve();
  hidden();
}

export function undo() {
  if (!undone.length) return;
  state.edits = JSON.parse(undone.pop());
  if (document.activeElement && document.activeElement.closest(".ledger")) byId("undo").focus();
  refresh();
}

export function set(edits) {
  change(edits);
  refresh();
}

function goTo(go) {
  const last = about.rows - 1;
  const input = h("input", { type: "text", inputmode: "numeric", size: 8, id: "go-row", value: state.row });
  const move = (place) => {
    state.row = Math.max(0, Math.min(last, place));
    input.value = state.row;
    state.edits = {};
    undone.length = 0;
    wrong(input, "");
    go(true);
  };
  input.addEventListener("change", () => {
    const text = input.value.trim();
    if (!/^\d+$/.test(text) || +text > last) return wrong(input, `Give a row from 0 to ${last}.`);
    return move(+text);
  });
  return h("div", { class: "buttons" },
    h("button", { type: "button", onclick: () => move(state.row - 1), "aria-label": "Previous row" }, "‹ Previous"),
    field(`Row (0 to ${last})`, input),
    h("button", { type: "button", onclick: () => move(state.row + 1), "aria-label": "Next row" }, "Next ›"));
}

export function outcome(one) {
  // "1.34 (80 %)"
  return `${minus(one.end)}${one.times ? ` ${one.times}` : ""}${one.probability ? ` (probability ${one.probability})` : ""}`;
}

function draw(result) {
  current = result;
  const { now, before } = result;
  view.problem.textContent = "";
  for (const input of document.querySelectorAll(".ledger [aria-invalid]")) wrong(input, "");
  view.undo.disabled = !undone.length;
  view.reset.disabled = !edited();
  clear(view.head,
    h("h3", { id: "row-name" }, result.name, before ? " with changes" : ""),
    h("p", null, `${now.target}: ${minus(now.start)} at the baseline, `, h("strong", { id: "output" }, outcome(now)), " here",
      before ? [", ", h("s", { id: "output-before" }, outcome(before)), " before"] : "", "."),
    h("p", null, "Conflict between features: ", h("strong", { class: "cancelled", id: "conflict" }, now.conflict),
      before ? [" instead of ", h("s", null, before.conflict)] : "", "."),
    h("p", { class: "quiet", id: "conflict-sentence" }, minus(now.conflict_sentence)),
    outputs(result));
  clear(view.media, now.maps ? picture(result, set) : null, now.words ? words(result) : null);
  view.ledger.show(now, before);
  const others = now.lines.some((line) => !line.single && / others?$/.test(line.name));
  clear(view.more, others || state.most > 20 ? h("button", { type: "button", onclick: () => { state.most = others ? 500 : 20; refresh(); } }, others ? "Show all features" : "Show fewer features") : null);
  clear(view.told, h("ul", null, now.sentences.map((one) => h("li", null, one))),
    now.notes.length ? h("p", { class: "quiet" }, now.notes.join(" ")) : null,
    h("p", { class: "quiet" }, `The scores add up to the output with an error of ${now.error}.`));
  say(`${result.name}: output ${outcome(now)}, conflict ${now.conflict}`);
}

function outputs(result) {
  if (result.outputs.length < 2) return null;
  const old = new Map((result.outputs_before || []).map((one) => [one.name, one]));
  const text = (one) => (one.chance ? one.chance : minus(one.output));
  return h("p", { class: "quiet" }, "The model gives: ", result.outputs.map((one, place) => {
    const was = old.get(one.name);
    return [place ? ", " : "", h("b", null, one.name), ` ${text(one)}`, was && text(was) !== text(one) ? [" ", h("s", null, text(was))] : ""];
  }), about.outputs.length > result.outputs.length ? ", …" : ".");
}

function control(line) {
  const column = line.single && about.editable[line.name];
  if (!column || !current || !(line.name in current.cells)) return h("span", null, minus(line.value));
  const value = current.cells[line.name], id = `cell-${line.name}`;
  const put = (next) => set({ ...state.edits, cells: { ...state.edits.cells, [line.name]: next } });
  let input;
  if (column.kind === "date") {
    const day = String(value ?? "");
    input = h("input", { type: /^\d{4}-\d\d-\d\d$/.test(day) || !day ? "date" : "text", id, value: day, "aria-label": line.name });
    input.addEventListener("change", () => {
      if (!/^\d{4}-\d\d-\d\d/.test(input.value)) return wrong(input, "Give a date, such as 2024-01-31.");
      wrong(input, "");
      return put(input.value);
    });
  } else if (column.kind === "number") {
    input = h("input", { type: "text", inputmode: "decimal", size: 8, id, value: value ?? "", "aria-label": line.name });
    input.addEventListener("change", () => {
      const text = input.value.trim(), next = Number(text.replace("\u2212", "-"));
      if (!text || !Number.isFinite(next)) return wrong(input, "Give a number, such as 4.5.");
      wrong(input, "");
      return put(next);
    });
  } else {
    const words = column.words.includes(String(value)) ? column.words : [String(value ?? "missing"), ...column.words];
    input = h("select", { id, "aria-label": line.name }, words.map((word) => h("option", { value: word, selected: word === String(value) }, word)));
    input.addEventListener("change", () => put(input.value));
  }
  const note = h("span", { class: "wrong", id: `${id}-wrong`, role: "alert" });
  input.setAttribute("aria-describedby", note.id);
  const start = current.at_baseline[line.name];
  const reset = start === undefined || start === null ? null : h("button", {
    type: "button", class: "small", "aria-label": `Set ${line.name} to the baseline, ${start}`, title: `Set to the baseline, ${start}`,
    disabled: String(start) === String(value), onclick: () => put(start),
  }, "⊘");
  return [input, reset, note];
}

function words(result) {
  const list = result.now.words, most = Math.max(...list.map((one) => Math.max(one.up, one.down)), 1e-30);
  const struck = state.edits.struck || [];
  return h("div", null,
    h("p", { class: "words" }, list.map((one) => [h("span", {
      title: one.told,
      look: { "border-top-width": `${(7 * one.up) / most}px`, "border-bottom-width": `${(7 * one.down) / most}px` },
    }, one.text), " "])),
    h("p", { class: "quiet" }, "A line over a word is what it pushed up, one under it what it pushed down."),
    h("div", { role: "group", "aria-label": "Words that can be struck", class: "buttons" }, h("span", null, "Strike words:"),
      result.words.map((word, place) => h("button", {
        type: "button", class: "small word", "aria-pressed": String(word.struck), id: `word-${place}`,
        onclick: () => {
          set({ ...state.edits, struck: word.struck ? struck.filter((one) => one !== place) : [...struck, place] });
        },
      }, word.struck ? h("s", null, word.text) : word.text))));
}
