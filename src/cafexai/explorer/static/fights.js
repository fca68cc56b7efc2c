// Who fights whom: features in pairs, hidden layers and units.
import { latest } from "./api.js";
import { circuit } from "./charts.js";
import { choices } from "./choices.js";
import { clear, h, minus, scroll, short } from "./dom.js";
import { asked, edited, keep, state } from "./state.js";

let view = null;

export function show(main) {
  const form = choices(() => refresh());
  view = { form, pairs: h("div"), inside: h("div"), units: h("div"), problem: h("p", { class: "wrong", role: "alert" }) };
  clear(main, h("h2", null, `Who fights whom in row ${state.row}`, edited() ? " with changes" : ""), form, view.problem,
    h("h3", null, "Features in pairs, by removing them"), view.pairs, h("h3", null, "The engine\u2019s view: what pairs cancelled inside the model"), view.inside, h("h3", null, "Layers and units that hold most of the cancelled influence"), view.units);
  refresh();
}

const refuse = (error) => { if (!view.form.refuse(error)) view.problem.textContent = error.message; };
const pairs = latest("pairs", drawPairs, refuse);
const inside = latest("inside", drawInside, refuse);
const units = latest("units", drawUnits, refuse);

export function refresh() {
  keep();
  view.problem.textContent = "";
  pairs(asked());
  inside(asked());
  units(asked());
}

function map(result, caption, corner, label) {
  // Amounts by pair of features; a frame marks those that removing one feature does not show.
  const most = Math.max(...result.amounts.flat(), 1e-30);
  const cell = (i, j) => {
    const value = result.amounts[i][j], hidden = result.hidden_amounts ? result.hidden_amounts[i][j] : 0, mostly = hidden > 0.5 * value && value > 1e-3 * most;
    return h("td", { class: mostly ? "hidden" : null, look: { "--a": String(value / most) } }, value ? minus(result.told[i][j]) : "",
      mostly ? h("small", null, `${short(hidden)} hidden`) : null);
  };
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, h("table", { class: "map" }, h("caption", null, caption),
    h("thead", null, h("tr", null, h("th", { scope: "col" }, corner), result.names.map((name) => h("th", { scope: "col" }, h("span", null, name))))),
    h("tbody", null, result.names.map((name, i) => h("tr", null, h("th", { scope: "row" }, name), result.names.map((_, j) => cell(i, j)))))));
}

function drawPairs(result) {
  return clear(view.pairs, h("ul", { id: "pair-sentences" }, result.sentences.map((one) => h("li", null, one))),
    result.hidden.length ? [h("h3", null, "Hidden conflicts"), h("ul", { id: "hidden-sentences" }, result.hidden.map((one) => h("li", null, one)))] : null,
    result.names.length ? map(result, `What two features cancel of each other (${result.target}).`, "feature", "Map of pairs") : null,
    h("p", { class: "quiet", id: "pairs-measured" }, result.measured));
}

function drawInside(result) {
  if (result.refused) return clear(view.inside, h("p", null, result.refused));
  if (!result.sentences.length) return clear(view.inside, h("p", null, "No two features cancelled anything at the units of the model."));
  return clear(view.inside, h("ul", { id: "inside-sentences" }, result.sentences.map((one) => h("li", null, one))),
    map(result, `What the feature of the line pushed up and the feature of the column pushed down, as far as it cancelled (${result.target}; variant feature).`, "up \\ down", "Map of pairs inside the model"));
}

function drawUnits(result) {
  if (result.refused) return clear(view.units, h("p", null, result.refused));
  if (!result.layers.length) return clear(view.units, h("p", null, "This model has no layers of units that can be looked at one by one."));
  const most = Math.max(...result.layers.map((one) => one.cancelled), 1e-30);
  return clear(view.units,
    scroll("Layers", h("table", { class: "layers" }, h("caption", null, `What cancelled among the inputs of units, times what the units count for ${result.target}, by layer${result.against ? `; against ${result.against}` : ""}.`),
      h("thead", null, h("tr", null, ["layer", "cancelled", "share of the most", "units"].map((word) => h("th", { scope: "col" }, word)))),
      h("tbody", null, result.layers.map((one) => h("tr", null, h("th", { scope: "row" }, one.name), h("td", null, one.told),
        h("td", { class: "picture" }, h("div", { class: "one", look: { width: `${(100 * one.cancelled) / most}%` } })), h("td", null, one.units)))))),
    h("div", { class: "cards" }, result.units.map((one) => h("figure", { class: "card" },
      h("figcaption", null, h("b", null, `Unit ${one.unit} of layer ${one.layer}`), ` (${one.activation}${one.active === null ? "" : one.active ? ", active" : ", inactive: it passes nothing on"}). Its inputs push it up by ${one.up} and down by ${one.down}: ${one.cancelled} of each cancels. One more of what it passes on changes the output by ${minus(one.effect)}, so that ${one.counts} of the output is at stake.`),
      circuit(one)))));
}
