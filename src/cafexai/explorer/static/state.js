// What is seen, kept in the address: a link brings the same view back.
export const state = { view: "rows", row: 0, choice: {}, edits: {}, table: {}, chosen: [], sides: null, group: "", output: null, curve: "", most: 20 };
export const about = {};
export const undone = []; // earlier edits
const NAMES = Object.keys(state);

export function restore() {
  try {
    const found = JSON.parse(decodeURIComponent(location.hash.slice(1)));
    for (const name of NAMES) if (name in found && (typeof found[name] === typeof (state[name] ?? {}) || (name === "output" && Number.isInteger(found[name])))) state[name] = found[name];
    return true;
  } catch {
    return false;
  }
}

export function address() {
  const kept = Object.fromEntries(NAMES.filter((name) => state[name] !== null).map((name) => [name, state[name]]));
  return `#${encodeURIComponent(JSON.stringify(kept))}`;
}

export function keep(step = false) {
  if (location.hash === address()) return;
  if (step) history.pushState(null, "", address());
  else history.replaceState(null, "", address());
}

export const asked = () => ({ row: state.row, choice: state.choice, edits: state.edits });
export const edited = () => Object.keys(state.edits).some((name) => Object.keys(state.edits[name]).length);

export function change(edits) {
  undone.push(JSON.stringify(state.edits));
  if (undone.length > 200) undone.shift();
  state.edits = edits;
  keep();
}
