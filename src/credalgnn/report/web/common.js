/* Shared by all pages. Text from the data reaches the page as text only (text nodes and attributes). */

const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const PAGE = 25; // rows of the node table
const BARS = 12; // classes in a node's panel
const CLASSES = 10; // classes in a card
const SCORES = {
  EU: "epistemic uncertainty (bits)", AU: "aleatoric uncertainty (bits)", TU: "total uncertainty (bits)",
  msp: "1 − largest probability", entropy: "entropy (bits)", coverage: "how little labels reach similar nodes (−log coverage)",
};

/* ---------- small helpers ---------- */

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}
const el = (tag, attributes, ...children) => build(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) =>
  build(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

const known = (x) => x !== null && x !== undefined;
const minus = (text) => text.replace("-", "−");
function fixed(x, digits) { return known(x) ? minus(x.toFixed(digits)) : "–"; }
function pct(x) { return x > 0 && x < 0.0005 ? "<0.1" : fixed(known(x) ? 100 * x : null, 1); }
const count = (n) => n.toLocaleString("en-US");
const plural = (n, one) => `${count(n)} ${one}${n === 1 ? "" : "s"}`;
function num(x) {
  if (!known(x)) return "–";
  if (x !== 0 && (Math.abs(x) < 1e-3 || Math.abs(x) >= 1e6)) return minus(Number(x.toPrecision(2)).toExponential());
  return minus(Math.abs(x) >= 1000 ? count(Math.round(x)) : String(Number(x.toPrecision(3))));
}
function aligned(values) { // formatter for a column: the same digits for all, enough to tell values apart
  const [low, high] = range(values), size = Math.max(Math.abs(low), Math.abs(high));
  if (size > 0 && size < 1e-4) return num;
  const usual = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 3;
  return (x) => fixed(x, high > low ? Math.min(Math.max(usual, Math.ceil(2 - Math.log10(high - low))), 9) : usual);
}
function some(names, most) {
  const rest = names.length - most;
  return names.slice(0, most).join(", ") + (rest > 0 ? ` and ${rest} more` : "");
}
const short = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);
const range = (values) => values.filter(known).reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
const median = (values) => [...values].sort((a, b) => a - b)[Math.floor((values.length - 1) / 2)];

/* ---------- tables that sort ---------- */

function sortable(box, caption, columns, sort, changed) {
  const heads = columns.map((column) =>
    el("th", { scope: "col", class: column.number ? "number" : null },
      el("button", { type: "button", title: column.title, onclick: () => {
        const first = column.better === 1 || column.large ? "descending" : "ascending";
        const turned = sort.order === "ascending" ? "descending" : "ascending";
        sort.order = sort.key === column.key ? turned : first;
        sort.key = column.key;
        changed();
      } }, column.label)));
  const body = el("tbody", {});
  box.replaceChildren(el("table", {}, el("caption", { class: "hidden" }, caption), el("thead", {}, el("tr", {}, heads)), body));
  return {
    show(rows) {
      columns.forEach((column, k) => heads[k].setAttribute("aria-sort", sort.key === column.key ? sort.order : "none"));
      body.replaceChildren(...rows);
    },
    sorted(items) { // missing values come last in either order
      const column = columns.find((one) => one.key === sort.key);
      if (!column) return items;
      const sign = sort.order === "descending" ? -1 : 1;
      return items.map((item) => [column.value(item), item]).sort(([a], [b]) => {
        if (!known(a) || !known(b)) return known(b) - known(a);
        return sign * (typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b);
      }).map(([, item]) => item);
    },
  };
}

/* Items of a page, or of the last page; the pager shows which they are. */
function onPage(items, number, size, { where, previous, next }) {
  const last = Math.max(0, Math.ceil(items.length / size) - 1), page = Math.min(number, last), from = page * size;
  const visible = items.slice(from, from + size);
  where.textContent = items.length ? `${count(from + 1)}–${count(from + visible.length)} of ${count(items.length)}` : "no nodes";
  previous.disabled = page === 0;
  next.disabled = page === last;
  return { page, visible };
}

const plainTable = (heads, rows) => el("table", {},
  el("thead", {}, el("tr", {}, heads.map(([name, number]) => el("th", { scope: "col", class: number ? "number" : null }, name)))),
  el("tbody", {}, rows));

/* ---------- classes of a node, diagnosis of a model ---------- */

/* Table with a bar for each class, the most probable ones if there are many; and the number of classes left out. */
function intervalBars(classes, { lower, upper, p, prediction, truth, word = "true" }, most) {
  const high = upper || p;
  const shown = classes.map((_, k) => k).sort((a, b) => high[b] - high[a]).slice(0, most);
  if (truth >= 0 && !shown.includes(truth)) shown.push(truth);
  shown.sort((a, b) => a - b);
  const X = (value) => (100 * value).toFixed(2) + "%";
  const lines = shown.map((k) => {
    const from = lower ? lower[k] : 0, to = high[k];
    const text = `${lower && pct(from) !== pct(to) ? `${pct(from)}–` : ""}${pct(to)} %`;
    const roles = [k === truth ? word : null, k === prediction ? "predicted" : null].filter(Boolean);
    return el("tr", { class: k === truth ? "true" : null, "data-class": k },
      el("th", { scope: "row" }, classes[k], roles.length ? el("span", { class: "std" }, ` (${roles.join(", ")})`) : null),
      el("td", {}, svg("svg", { role: "img", "aria-label": `${classes[k]}: ${text}` },
        svg("rect", { class: "track", x: 0, y: 2, width: "100%", height: 10 }),
        svg("rect", { class: "interval", x: X(from), y: 2, width: X(Math.max(to - from, 0.002)), height: 10 }),
        lower && known(p[k]) ? svg("line", { class: "point", x1: X(p[k]), x2: X(p[k]), y1: 0, y2: 14 }) : null)),
      el("td", { class: "number" }, text));
  });
  const table = el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Classes" }, el("table", { class: "intervals" }, el("tbody", {}, lines)));
  return { table, rest: classes.length - shown.length };
}

/* Diagnosis of a method in words; numbers unknown to this page by their name. */
function diagnosisWords(diagnosis) {
  const rest = { ...diagnosis }, words = [];
  const add = (names, text) => {
    if (!names.every((name) => name in rest)) return;
    words.push(text(...names.map((name) => rest[name])));
    for (const name of names) delete rest[name];
  };
  add(["auroc"], (x) => `labelled and unlabelled nodes are told apart with AUROC ${fixed(x, 2)} (0.5 is chance: labels are spread evenly)`);
  add(["log_loss", "base_log_loss"], (x, base) => `log loss ${fixed(x, 3)} nats, ${fixed(base, 3)} without any features`);
  add(["trust"], (x) => `trust ${fixed(x, 2)}, the share of the interval width that coverage decides`);
  add(["uncovered"], (x) => `about ${fixed(100 * x, 0)} % of the unlabelled nodes are uncovered: no label is near similar nodes`);
  add(["width_10", "width_50", "width_90"], (a, b, c) => `widest interval of unlabelled nodes: ${fixed(a, 2)}, ${fixed(b, 2)} and ${fixed(c, 2)} at the 10, 50 and 90 % quantiles`);
  words.push(...Object.entries(rest).map(([name, x]) => `${name.replaceAll("_", " ")} ${num(x)}`));
  return words;
}

const coverageWords = (x) => (x < 0.25 ? "similar nodes are hardly ever labelled" : x < 0.75 ? "similar nodes are labelled less often than others"
  : "similar nodes are labelled as often as any");
const sizeOf = (width) => (width >= 0.5 ? "wide" : width < 0.1 ? "narrow" : "of medium width");

/* ---------- the window ---------- */

function closeBeside(panel) {
  panel.addEventListener("click", (event) => {
    const { left, right, top, bottom } = panel.getBoundingClientRect();
    const inside = event.clientX >= left && event.clientX <= right && event.clientY >= top && event.clientY <= bottom;
    if (event.target === panel && !inside) panel.close();
  });
}

function whenResized(draw) {
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width) return;
    width = window.innerWidth;
    requestAnimationFrame(draw);
  });
}
