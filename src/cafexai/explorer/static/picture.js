// A picture with its maps; a region can be painted over with a pointer or by numbers.
import { field, h, wrong } from "./dom.js";
import { state } from "./state.js";

export function picture(result, set) {
  const { maps, size } = result.now;
  const [height, width] = size;
  const paint = (region) => set({ ...state.edits, regions: [...(state.edits.regions || []), region] });
  const figures = maps.map((map, place) => {
    const image = h("img", { src: map.address, alt: map.name, draggable: "false" });
    const frame = h("div", { class: "frame" }, image);
    if (!place) draggable(frame, height, width, paint);
    return h("figure", null, frame, h("figcaption", null, map.name));
  });
  return h("div", null, h("div", { class: "maps" }, figures), byNumbers(height, width, paint));
}

function draggable(frame, height, width, paint) {
  const box = h("div", { class: "brush" });
  box.hidden = true;
  frame.append(box);
  frame.classList.add("paint");
  let start = null;
  const at = (event) => {
    const place = frame.getBoundingClientRect();
    const inside = (value) => Math.max(0, Math.min(1, value));
    return [inside((event.clientY - place.top) / place.height), inside((event.clientX - place.left) / place.width)];
  };
  const ends = (event) => {
    const [y, x] = at(event), low = [Math.min(y, start[0]), Math.min(x, start[1])], high = [Math.max(y, start[0]), Math.max(x, start[1])];
    return [low, high];
  };
  frame.addEventListener("pointerdown", (event) => {
    start = at(event);
    frame.setPointerCapture(event.pointerId);
  });
  frame.addEventListener("pointermove", (event) => {
    if (!start) return;
    const [low, high] = ends(event);
    box.hidden = false;
    box.style.top = `${100 * low[0]}%`;
    box.style.left = `${100 * low[1]}%`;
    box.style.height = `${100 * (high[0] - low[0])}%`;
    box.style.width = `${100 * (high[1] - low[1])}%`;
  });
  frame.addEventListener("pointerup", (event) => {
    if (!start) return;
    const [low, high] = ends(event);
    start = null;
    box.hidden = true;
    const region = [Math.floor(low[0] * height), Math.floor(low[1] * width), Math.ceil(high[0] * height), Math.ceil(high[1] * width)];
    if (region[2] > region[0] && region[3] > region[1]) paint(region);
  });
}

function byNumbers(height, width, paint) {
  const names = ["top", "left", "bottom", "right"], most = [height, width, height, width];
  const inputs = names.map((name, place) => h("input", { type: "text", inputmode: "numeric", size: 4, id: `region-${name}`, value: place < 2 ? 0 : Math.round(most[place] / 2) }));
  const send = () => {
    const region = inputs.map((input) => Number(input.value));
    const odd = region.findIndex((one, place) => !Number.isInteger(one) || one < 0 || one > most[place] || (place > 1 && one <= region[place - 2]));
    inputs.forEach((input, place) => wrong(input, place === odd ? `0 to ${most[place]}, below what it begins with.` : ""));
    if (odd < 0) paint(region);
  };
  return h("div", { class: "buttons", role: "group", "aria-label": "Paint over a region with the baseline" },
    h("span", null, "Paint over a region (drag on the picture, or by numbers):"),
    inputs.map((input, place) => field(names[place], input)), h("button", { type: "button", id: "paint", onclick: send }, "Paint over"));
}
