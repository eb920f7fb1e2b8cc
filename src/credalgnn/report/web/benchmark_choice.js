/* Benchmark page: the selected task, method and score. */

const DRAWN = ["credal-coverage", "credal-lj", "credal-ensemble", "classical-ensemble", "energy", "feature-sum"]; // shown at first, where available
const COLOURS = 7;

const PROTOCOLS = {
  sealed: "nothing was chosen by an OOD node or by a test node",
  paper: "early stopping and tuning may look at the OOD nodes of the validation part",
};
const SETTINGS = {
  transductive: "the whole graph takes part in training, with the labels of some nodes",
  inductive: "training saw the training nodes and the edges among them, and no others",
};
// Columns of results: key, label, better (1 larger, -1 smaller), format, meaning.
const METRICS = data.metrics.map(({ key, label, better, percent, meaning }) =>
  [key, percent ? `${label} %` : label, better, percent ? pct : (x) => fixed(x, 3), meaning]);

const state = { task: null, method: null, score: null, filter: "all", page: 0, open: null, nodeSort: {}, rowSort: {} };
const drawn = new Map(); // task -> set of methods whose curves are shown
const method = () => state.task.methods[state.method];
const predicted = () => (state.task.nodes.methods || {})[state.method];
const rowOf = (name, score) => state.task.rows.find((row) => row.method === name && row.score === score);
const auroc = (name, score) => ((rowOf(name, score) || { values: {} }).values.auroc || [null])[0];
const meaning = (mark) => (data.marks[mark] || { meaning: "a mark of another version" }).meaning;
const advice = (mark) => (data.marks[mark] || { advice: "see the version that made these records" }).advice;
const takesOut = (row, mark) => row.disqualified.includes(mark); // other marks only inform
const badgeClass = (out) => (out ? "badge" : "badge informs");
function taskName(task) { // with protocol and setting where the data set has several
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
function missing() {
  if (state.task.nodes.missing) return state.task.nodes.missing;
  return predicted() ? null : `There are no predictions per node of ${state.method} for seed ${state.task.nodes.seed}.`;
}
const styleOf = (name) => { // colour and dash of a method, the same in every figure
  const names = Object.keys(state.task.methods);
  const at = [...DRAWN.filter((one) => names.includes(one)), ...names.filter((one) => !DRAWN.includes(one))].indexOf(name);
  return { stroke: `var(--s${at % COLOURS})`, "stroke-dasharray": [null, "7 3", "2 3"][Math.floor(at / COLOURS) % 3] };
};
