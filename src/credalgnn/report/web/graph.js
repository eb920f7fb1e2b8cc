/* Page of a person's own graph: header, example nodes, facts. */

const { nodes, summary, facts } = data;
const PARTS = {
  train: ["training", "the model has learnt from its label"],
  val: ["early stopping", "its label helped to decide when training ended"],
  calibration: ["calibration", "its label set the thresholds and took no part in training"],
  test: ["test", "its label took no part in training or calibration"],
};
const KINDS = { ood: "flagged", doubt: "in doubt", id: "known" };
const CALIBRATE = "The model is not calibrated, so there are no p-values and nothing is flagged. Keep some labelled nodes out of training "
  + "for calibration, fit the model again, and write this page again.";
const method = summary.method || "The model";
const held = Array.from({ length: nodes.held }, (_, i) => i); // nodes in this page; others are only mentioned
const partNames = Object.keys(data.parts);

const nodeName = (i) => nodes.id[i];
const className = (i) => data.classes[nodes.class[i]];
const labelName = (i) => (nodes.label[i] >= 0 ? data.names[nodes.label[i]] : null);
const isWrong = (i) => nodes.label[i] >= 0 && nodes.label[i] !== nodes.class[i];
const isFlagged = (i) => data.calibrated && nodes.unfamiliar[i] === 1;
const isDoubtful = (i) => known(nodes.classes) && !isFlagged(i) && nodes.classes[i] !== className(i);
const kindOf = (i) => (isFlagged(i) ? "ood" : isDoubtful(i) ? "doubt" : "id");
const classesText = (i) => nodes.classes[i].replaceAll("|", ", ") || "none";
const partName = (i) => (nodes.part[i] >= 0 ? (PARTS[partNames[nodes.part[i]]] || [partNames[nodes.part[i]]])[0]
  : nodes.label[i] >= 0 ? "labelled, not used" : "unlabelled");
const link = (i) => `#node=${encodeURIComponent(nodeName(i))}`;
const nodeLink = (i, ...content) => el("a", { class: "node-link", href: link(i) }, ...content);
const share = (x) => `${Number((100 * x).toPrecision(3))} %`;

/* ---------- header ---------- */

function showHeader() {
  const { total, flagged, expected, sign } = data.new;
  const learnt = total < data.total ? `; ${count(total)} of them took no part in training` : "";
  $("lead").textContent = `${method} has classified ${plural(data.total, "node")} into ${data.classes.length === 1 ? "1 class" : `${count(data.classes.length)} classes`}${learnt}. `
    + (!data.calibrated ? "The model is not calibrated, so no node can be flagged as unfamiliar."
      : `${count(flagged)} of ${total < data.total ? "these " : ""}${plural(total, "node")} ${flagged === 1 ? "is" : "are"} flagged as unfamiliar`
        + (known(sign) ? `; about ${count(Math.round(expected))} false alarms were expected: ${sign}.` : "."));
  if ((summary.warnings || []).length) {
    $("warnings").append(el("section", { class: "warning", "aria-label": "Warnings" },
      el("h2", {}, "Warnings"), el("ul", {}, summary.warnings.map((text) => el("li", {}, text)))));
  }
  $("footer").append(el("p", {}, summary.predictions ? `The predictions of all nodes with all digits are in ${summary.predictions}. ` : "",
    "This file contains all its data and needs no network."));
}

/* ---------- example nodes ---------- */

const bars = (i, most) => intervalBars(data.classes, { lower: nodes.lower && nodes.lower[i], upper: nodes.upper && nodes.upper[i],
  p: data.credal ? { [nodes.class[i]]: nodes.probability[i] } : nodes.p[i], prediction: nodes.class[i],
  truth: nodes.label[i] < data.classes.length ? nodes.label[i] : -1, word: "label" }, most);

function showExamples() {
  const { flagged, uncertain, known: usual } = data.typical;
  const unfamiliar = known(flagged) ? flagged : uncertain;
  const titles = data.calibrated ? ["Unfamiliar: ", "Known: "] : ["Less certain: ", "Typical: "];
  $("examples").append(
    el("h2", { id: "examples-title" }, known(flagged) ? "An unfamiliar node and a known one" : known(uncertain) ? "A less certain node and a typical one" : "A typical node"),
    el("p", {}, data.credal ? ["Every class gets a ", el("em", {}, "lower"), " and an ", el("em", {}, "upper"), " probability. Narrow bars mean that the model knows such nodes, wide bars that training had ",
      "little or nothing similar. The stroke is the probability of the predicted class."]
      : "Every class gets a probability."),
    el("div", { class: "cards" }, known(unfamiliar) ? card(unfamiliar, titles[0], "ood") : null, known(usual) ? card(usual, titles[1], "id") : null),
    el("p", { class: "note" }, data.calibrated
      ? "Chosen by a rule: each has the median uncertainty of its kind."
      : "Chosen by a rule: the nodes at the 95 % quantile and at the median of the uncertainty."));
}

function card(i, title, kind) {
  const { table, rest } = bars(i, CLASSES), width = nodes.measure[i], size = sizeOf(width);
  const verdict = !data.credal ? `The most probable class has ${pct(nodes.probability[i])} %.`
    : `The intervals are ${size} (widest ${fixed(width, 2)}).`;
  return el("article", { class: `card ${kind}`, "data-node": nodeName(i) },
    el("h3", {}, el("span", { class: `tag ${kind}` }, title), `node ${short(nodeName(i), 40)}`),
    el("p", { class: "note" }, isFlagged(i)
      ? `The most probable of the known classes is ${className(i)}, but only about ${share(nodes.p_value[i])} of the nodes of known classes are this unfamiliar.`
      : `Predicted: ${className(i)}${labelName(i) ? `; its label is ${labelName(i)}` : ""}.`),
    el("div", {}, table, rest ? el("p", { class: "note" }, `${rest} less probable classes are left out.`) : null),
    el("p", {}, verdict),
    el("p", { class: "note reasons" }, nodes.reasons && nodes.reasons[i] ? `Reasons: ${nodes.reasons[i]}` : ""),
    nodeLink(i, "Show this node"));
}

/* ---------- false alarms ---------- */

function showAlarms() {
  if (!data.alarms.length) return;
  const rows = data.alarms.map((row) => el("tr", {}, el("th", { scope: "row" }, share(row.false_alarms)),
    el("td", { class: "number" }, `${count(row.flagged)} of ${count(row.of)}`), el("td", { class: "number" }, count(Math.round(row.expected))), el("td", {}, row.sign)));
  $("alarms").append(el("h3", { id: "alarms-title" }, "False-alarm rates"),
    el("div", { class: "scroll", role: "region", tabindex: "0", "aria-labelledby": "alarms-title" },
      plainTable([["False alarms allowed"], ["Flagged", true], ["Expected false alarms", true], ["Meaning"]], rows)),
    el("p", { class: "note" }, "A node of a known class is flagged with at most this probability, provided that it is exchangeable with the ",
      known(summary.calibration) ? `${count(summary.calibration)} ` : "", "calibration nodes."));
}

/* ---------- the graph and the model ---------- */

function showFacts() {
  const sizes = Object.entries(summary.set_sizes || {}).sort(([a], [b]) => a - b);
  const list = [
    ["Nodes", `${count(facts.nodes)}: ${count(facts.unlabelled)} without a label, ${count(facts.isolated)} without an edge`],
    ["Edges", `${count(facts.edges)} ${facts.directed ? "directed" : "(both directions counted)"}`
      + (facts.self_loops ? `, ${plural(facts.self_loops, "self-loop")}` : "") + (facts.duplicate_edges ? `, ${plural(facts.duplicate_edges, "duplicate")}` : "")
      + (facts.weights ? `, weights ${num(facts.weights[0])} to ${num(facts.weights[1])}` : "")],
    ["Features", `${count(facts.features)}${facts.empty_features ? `; ${plural(facts.empty_features, "node")} without any but 0` : ""}`],
    ["Homophily", known(facts.homophily) ? `${pct(facts.homophily)} % of the edges between labelled nodes join nodes of the same class` : "unknown: no edge joins two labelled nodes"],
    partNames.length ? ["Labelled nodes used", partNames.map((name) => `${(PARTS[name] || [name])[0]} ${count(data.parts[name])}`).join(", ")] : null,
    ["Method", method],
    known(summary.accuracy) ? ["Accuracy", `${pct(summary.accuracy)} % on ${known(summary.judged) ? `${count(summary.judged)} ` : ""}nodes that took no part in training`] : null,
    known(summary.ece) ? ["Calibration error", `${pct(summary.ece)} %: mean difference between predicted probabilities and observed frequencies`] : null,
    sizes.length ? ["Prediction sets", `${sizes.map(([coverage, size]) => `${fixed(size, 2)} classes for ${share(Number(coverage))}`).join(", ")}: `
      + "mean number of classes in question, for sets that contain the true class of at least that share of the known nodes"] : null,
    data.calibrated ? ["In doubt", `${plural(data.doubtful, "node")} not flagged, with more than one class in question`] : null,
  ].filter(Boolean);
  $("facts-list").append(...list.flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]));
  const rows = data.names.map((name, k) => {
    const learnt = k < data.classes.length;
    return !learnt && !facts.class_counts[name] ? null : el("tr", {}, el("th", { scope: "row", title: name }, short(name, 40), learnt ? null : el("span", { class: "std" }, " (unknown to the model)")),
      el("td", { class: "number" }, count(facts.class_counts[name] || 0)), el("td", { class: "number" }, learnt ? count(data.predicted[k]) : "–"),
      data.calibrated ? el("td", { class: "number" }, learnt ? count(data.unfamiliar[k]) : "–") : null);
  });
  $("classes").append(plainTable([["Class"], ["Labels given", true], ["Predicted", true], ...(data.calibrated ? [["Flagged", true]] : [])], rows.filter(Boolean)));
  $("classes-note").textContent = data.new.total < data.total ? `Predicted: of the ${count(data.new.total)} nodes that took no part in training.` : "";
  const words = summary.diagnosis ? diagnosisWords(summary.diagnosis) : [];
  $("diagnosis").hidden = !words.length;
  $("diagnosis").querySelector("ul").append(...words.map((text) => el("li", {}, `${text[0].toUpperCase()}${text.slice(1)}.`)));
}
