/* What all parts share. Text from the data reaches the page as text only (text nodes and attributes). */

const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const PAGE = 25; // rows of the node table
const BARS = 12; // classes in a node's panel
const DRAWN = ["credal-coverage", "credal-lj", "credal-ensemble", "classical-ensemble", "energy", "feature-sum"]; // at first, if there
const COLOURS = 7;

const PROTOCOLS = {
  sealed: "nothing was chosen by an OOD node or by a test node",
  paper: "early stopping and tuning may look at the OOD nodes of the validation part",
};
const SETTINGS = {
  transductive: "the whole graph takes part in training, with the labels of some nodes",
  inductive: "training saw the training nodes and the edges among them; all others came afterwards",
};
const SCORES = {
  EU: "epistemic uncertainty (bits)", AU: "aleatoric uncertainty (bits)", TU: "total uncertainty (bits)",
  msp: "1 − largest probability", entropy: "entropy (bits)", coverage: "how far labels are from reaching nodes like it (−log coverage)",
};
// Columns of results: key, label, better (1 larger, -1 smaller), format, meaning; the metrics say all of it themselves.
const METRICS = data.metrics.map(({ key, label, better, percent, meaning }) =>
  [key, percent ? `${label} %` : label, better, percent ? pct : (x) => fixed(x, 3), meaning]);

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
function aligned(values) { // one number of digits for a whole column, enough to tell its values apart
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

/* ---------- what is chosen ---------- */

const state = { task: null, method: null, score: null, filter: "all", page: 0, open: null, nodeSort: {}, rowSort: {} };
const drawn = new Map(); // task -> set of methods with curves
const method = () => state.task.methods[state.method];
const predicted = () => (state.task.nodes.methods || {})[state.method];
const rowOf = (name, score) => state.task.rows.find((row) => row.method === name && row.score === score);
const auroc = (name, score) => ((rowOf(name, score) || { values: {} }).values.auroc || [null])[0];
const meaning = (mark) => (data.marks[mark] || { meaning: "a mark this page does not know" }).meaning;
const advice = (mark) => (data.marks[mark] || { advice: "the version that made these records knows it" }).advice;
const takesOut = (row, mark) => row.disqualified.includes(mark); // the others only inform
const badgeClass = (out) => (out ? "badge" : "badge informs");
function taskName(task) { // what tells it from others on the same data set stands in brackets
  const others = data.tasks.filter((other) => other.dataset === task.dataset);
  const parts = ["protocol", "setting"].filter((key) => others.some((other) => other[key] !== task[key]));
  return parts.length ? `${task.dataset} (${parts.map((key) => task[key]).join(", ")})` : task.dataset;
}
const nodeName = (i) => state.task.nodes.node[i];
const className = (i) => state.task.nodes.names[state.task.nodes.class[i]];
const isOOD = (i) => state.task.nodes.ood[i] === 1;
function isWrong(i) {
  const { prediction } = predicted();
  return !isOOD(i) && known(prediction) && prediction[i] !== state.task.nodes.label[i];
}
const kindOf = (i) => (isOOD(i) ? "ood" : isWrong(i) ? "wrong" : "id");
const KINDS = { id: "ID", wrong: "ID, wrong", ood: "OOD" };
function probabilities(name) {
  const one = state.task.nodes.methods[name];
  return one.p && one.p.as !== undefined ? probabilities(one.p.as) : one.p;
}
const widestOf = (one, i) => Math.max(...one.upper[i].map((up, k) => up - one.lower[i][k]));
const widest = (i) => widestOf(predicted(), i);
const LEAST = 0.01; // of an axis of widths or bits: intervals that are closed shall look closed
const BITS = ["EU", "AU", "TU"];
function missing() {
  if (state.task.nodes.missing) return state.task.nodes.missing;
  return predicted() ? null : `There are no predictions per node of ${state.method} for the run that is shown (seed ${state.task.nodes.seed}).`;
}
const styleOf = (name) => { // a colour and a dash of its own, the same in every figure
  const names = Object.keys(state.task.methods);
  const at = [...DRAWN.filter((one) => names.includes(one)), ...names.filter((one) => !DRAWN.includes(one))].indexOf(name);
  return { stroke: `var(--s${at % COLOURS})`, "stroke-dasharray": [null, "7 3", "2 3"][Math.floor(at / COLOURS) % 3] };
};

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
    sorted(items) {
      const column = columns.find((one) => one.key === sort.key);
      if (!column) return items;
      const sign = sort.order === "descending" ? -1 : 1;
      return items.map((item) => [column.value(item), item]).sort(([a], [b]) => {
        if (!known(a) || !known(b)) return known(b) - known(a); // what is not there comes last, whatever the order
        return sign * (typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b);
      }).map(([, item]) => item);
    },
  };
}

const plainTable = (heads, rows) => el("table", {},
  el("thead", {}, el("tr", {}, heads.map(([name, number]) => el("th", { scope: "col", class: number ? "number" : null }, name)))),
  el("tbody", {}, rows));
