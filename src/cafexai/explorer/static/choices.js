// The choices of an explanation: c, variant, baseline, target.
import { field, h, options, wrong } from "./dom.js";
import { about, keep, state } from "./state.js";

const WORDS = {
  default: "default", published: "published (the paper)", feature: "feature (keeps features apart)", custom: "as started",
  zero: "zero", background: "typical rows (average over 50)", mask: "mask token", mean: "mean of the data", median: "median of the data", mode: "mode of the data", row: "another row …",
};

export function choices(changed) {
  const controls = {};
  const set = (name, value) => {
    state.choice = { ...state.choice, [name]: value };
    keep();
    Object.values(controls).forEach((one) => wrong(one, ""));
    changed(name);
  };
  const c = h("input", { type: "range", min: 0, max: 1, step: 0.01, value: state.choice.c, id: "c" });
  const shown = h("output", { for: "c" }, state.choice.c.toFixed(2));
  c.addEventListener("input", () => {
    shown.textContent = (+c.value).toFixed(2);
    set("c", +c.value);
  });
  controls.c = c;
  const parts = [h("span", { class: "field wide" }, h("label", { for: "c" }, "Conflict sensitivity c"), c, shown)];
  const choose = (name, label, entries, value) => {
    const select = h("select", { id: name });
    options(select, entries, value);
    controls[name] = select;
    parts.push(field(label, select));
    return select;
  };
  choose("variant", "Variant", about.variants.map((one) => [one, WORDS[one]]), state.choice.variant)
    .addEventListener("change", (event) => set("variant", event.target.value));
  if (about.baselines.length > 1) baseline(choose, set, controls, parts);
  if (about.outputs.length) {
    const all = about.outputs.map((name, place) => [place, name]);
    choose("target", "Explain", [["", "the predicted class"], ...all], state.choice.target ?? "")
      .addEventListener("change", (event) => set("target", event.target.value === "" ? null : +event.target.value));
    choose("against", "rather than", [["", "(nothing)"], ...all], state.choice.against ?? "")
      .addEventListener("change", (event) => set("against", event.target.value === "" ? null : +event.target.value));
  }
  const form = h("form", { class: "choices", "aria-label": "How it is explained", onsubmit: (event) => event.preventDefault() }, parts);
  form.refuse = (error) => {
    const control = controls[error.field];
    if (control) wrong(control, error.message);
    return Boolean(control);
  };
  return form;
}

function baseline(choose, set, controls, parts) {
  const [word, number] = state.choice.baseline.split(":");
  const select = choose("baseline", "Compared with", about.baselines.map((one) => [one, WORDS[one]]), word);
  const row = h("input", { type: "text", inputmode: "numeric", size: 7, value: number ?? "0", id: "baseline-row" });
  const beside = field("Row", row);
  beside.hidden = word !== "row";
  const send = () => {
    beside.hidden = select.value !== "row";
    if (select.value !== "row") return set("baseline", select.value);
    if (!/^\d+$/.test(row.value.trim())) return wrong(row, "Give the number of a row.");
    return set("baseline", `row:${row.value.trim()}`);
  };
  select.addEventListener("change", send);
  row.addEventListener("change", send);
  parts.push(beside);
}
