// Take away: a report, scores as a file, lines of Python, a link.
import { ask, post, Refusal } from "./api.js";
import { byId, clear, field, h, many, say } from "./dom.js";
import { about, address, asked, edited, state } from "./state.js";

let view = null;

export function show(main) {
  const kinds = [["row", `this row (${state.row}${edited() ? ", with changes" : ""})`]];
  if (state.chosen.length) kinds.push(["chosen", `${many(state.chosen.length, "row")} chosen in the table`]);
  kinds.push(["found", "all rows that the table finds, in its order"]);
  view = { which: "row", lines: h("div"), problem: h("p", { class: "wrong", role: "alert" }) };
  const radio = ([value, text], place) => h("label", null, h("input", { type: "radio", name: "which", value, checked: !place, id: `which-${value}`, onchange: () => { view.which = value; lines(); } }), ` ${text}`);
  clear(main, h("h2", null, "Take away"), h("fieldset", { class: "choose" }, h("legend", null, "Which rows"), kinds.map(radio)),
    h("div", { class: "buttons" }, button("report", "Report (HTML)", "report", {}, "report.html"), 
      about.endings.map((ending) => button(ending, `Scores (${ending === "csv" ? "CSV" : "Parquet"})`, "scores", { ending }, `scores.${ending}`))), view.problem,
    h("h3", null, "The same in Python"), view.lines, h("h3", null, "A link that brings this row back"), link());
  lines();
}

function rows() {
  const { row, choice, edits } = asked();
  if (view.which === "found") return { table: state.table, choice };
  return view.which === "chosen" ? { rows: state.chosen, choice } : { rows: [row], choice, edits };
}

function button(id, text, name, more, file) {
  return h("button", { type: "button", id, onclick: async () => {
    view.problem.textContent = "";
    say("Making the file …");
    try {
      const blob = await (await post(name, { ...rows(), ...more })).blob();
      const place = URL.createObjectURL(blob);
      h("a", { href: place, download: file }).click();
      setTimeout(() => URL.revokeObjectURL(place), 60000);
      say(`${file} is in the downloads.`);
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      view.problem.textContent = error.message;
      say("");
    }
  } }, text);
}

async function lines() {
  if (view.which === "found") return clear(view.lines, h("p", { class: "quiet" }, "Lines are made for single rows."));
  try {
    const told = await ask("lines", rows());
    return clear(view.lines, told.python ? text("python", told.python, "Python") : h("p", { class: "quiet" }, "These data take more than a few lines of Python."),
      told.command ? [h("h3", null, "The same as a command"), text("command", told.command, "Command")] : null);
  } catch (error) {
    return clear(view.lines, h("p", { class: "wrong" }, error.message));
  }
}

function text(id, content, label) {
  return h("div", null, h("pre", { id, tabindex: 0, "aria-label": label }, content), copy(() => content, label));
}

function copy(content, label) {
  return h("button", { type: "button", class: "small", "aria-label": `Copy ${label}`, onclick: async () => {
    try {
      await navigator.clipboard.writeText(content());
      say(`${label} copied.`);
    } catch {
      say("It cannot be copied here; select it by hand.");
    }
  } }, "Copy");
}

function link() {
  const before = state.view;
  state.view = "row";
  const whole = `${location.origin}/${address()}`;
  state.view = before;
  const input = h("input", { type: "text", readonly: true, value: whole, id: "link", size: 60 });
  input.addEventListener("focus", () => input.select());
  return h("div", { class: "buttons" }, field("Link", input), copy(() => byId("link").value, "Link"));
}
