/* Charts in SVG, and figures in a grid. */

const LEAST = 0.01; // range of an axis of widths or bits: closed intervals must look closed
const BITS = ["EU", "AU", "TU"];

function ticks(lo, hi, number) {
  const raw = (hi - lo) / number, power = 10 ** Math.floor(Math.log10(raw));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw * 0.999);
  const values = [];
  for (let k = Math.ceil(lo / step - 1e-9); k * step <= hi + step * 1e-6; k += 1) values.push(Number((k * step).toPrecision(12)));
  return values;
}

/* Formatter for ticks, with as many digits as tell them apart. */
function tickText(values) {
  const step = values.length > 1 ? values[1] - values[0] : 1, digits = Math.max(0, Math.ceil(-Math.log10(step) - 1e-9));
  return step >= 1 || digits > 6 ? num : (value) => fixed(value, digits);
}

/* An empty chart. An axis is {lo, hi, title, format, log}; log axes show log(1 + value), so that 0 can be shown. */
function chart(width, height, x, y, label) {
  const bend = (axis, value) => (axis.log ? Math.log10(1 + value) : value);
  const place = (axis, value) => (bend(axis, value) - bend(axis, axis.lo)) / (bend(axis, axis.hi) - bend(axis, axis.lo) || 1);
  const marksOf = (axis, number) => (axis.log ? [0, 1, 3, 10, 30, 100, 300, 1e3, 3e3, 1e4, 1e5] : ticks(axis.lo, axis.hi, number))
    .filter((value) => value >= axis.lo && value <= axis.hi);
  const textOf = (axis, number) => axis.format || (axis.log ? num : tickText(marksOf(axis, number)));
  const across = Math.min(6, (width - 60) / 60), textX = textOf(x, across), textY = textOf(y, 5);
  const longest = Math.max(...marksOf(y, 5).map((value) => textY(value).length));
  const left = 27 + 7 * Math.max(longest, 3), right = 8, top = 8, bottom = 40;
  const w = width - left - right, h = height - top - bottom;
  const X = (value) => left + w * place(x, value);
  const Y = (value) => top + h * (1 - place(y, value));
  const node = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label,
    "data-frame": [left, top, w, h].join(" "), "data-domain": [x.lo, x.hi, y.lo, y.hi].join(" ") });
  for (const value of marksOf(y, 5)) {
    node.append(svg("line", { class: "grid", x1: left, x2: left + w, y1: Y(value), y2: Y(value) }),
      svg("text", { x: left - 6, y: Y(value) + 4, "text-anchor": "end" }, textY(value)));
  }
  for (const value of marksOf(x, across)) {
    node.append(svg("line", { class: "axis", x1: X(value), x2: X(value), y1: top + h, y2: top + h + 4 }),
      svg("text", { x: X(value), y: top + h + 17, "text-anchor": "middle" }, textX(value)));
  }
  node.append(svg("path", { class: "axis", d: `M${left} ${top}V${top + h}H${left + w}` }),
    svg("text", { class: "strong", x: left + w / 2, y: height - 6, "text-anchor": "middle" }, x.title),
    svg("text", { class: "strong", transform: `translate(11 ${top + h / 2}) rotate(-90)`, "text-anchor": "middle" }, y.title));
  return { node, X, Y };
}

const points = (xs, ys, X, Y) => xs.map((x, k) => (known(ys[k]) ? `${X(x).toFixed(2)},${Y(ys[k]).toFixed(2)}` : null)).filter(Boolean);

/* Figures in a grid from pairs of title and draw(width, caption), which returns an SVG or a sentence why there is none. */
function figures(box, drawings) {
  const shells = drawings.map(([title]) => el("figure", {}, el("h3", {}, title)));
  box.replaceChildren(...shells);
  const widths = shells.map((shell) => shell.clientWidth || 340);
  drawings.forEach(([, draw], k) => {
    const caption = el("figcaption", {});
    const drawing = draw(widths[k], caption);
    shells[k].append(...(typeof drawing === "string" ? [el("p", { class: "empty" }, drawing)] : [drawing, caption]));
  });
}
