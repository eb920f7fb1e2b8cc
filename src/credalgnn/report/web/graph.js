/* A person's own graph: what was predicted, in words and numbers. */

const { nodes, summary, facts } = data;
const PARTS = {
  train: ["training", "the model has learnt from its label"],
  val: ["early stopping", "its label decided when training ended"],
  calibration: ["calibration", "its label set the thresholds; training never saw it"],
  test: ["test", "its label took no part in making the model"],
};
const KINDS = { ood: "flagged", doubt: "in doubt", id: "known" };
const CALIBRATE = "The model is not calibrated, so there are no p-values and nothing is flagged. Keep some labelled nodes out of training "
  + "for calibration, fit the model again, and make this page anew.";
const method = summary.method || "The model";
const held = Array.from({ length: nodes.held }, (_, i) => i); // the nodes in this page; others are only mentioned
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
const coverageWords = (x) => (x < 0.25 ? "labels hardly ever reach nodes like it" : x < 0.75 ? "labels reach nodes like it less often than others"
  : "nodes like it are labelled as often as any");

/* ---------- at the top ---------- */

function showHeader() {
  const { total, flagged } = data.new, some = total < data.total, rate = summary.false_alarms;
  const learnt = some ? `; it has not learnt from ${count(total)} of them` : "";
  const found = flagged ? plural(flagged, "node") : "none";
  const those = some ? "those" : "all nodes";
  $("lead").textContent = `${method} has given each of ${plural(data.total, "node")} one of ${data.classes.length === 1 ? "1 class" : `${count(data.classes.length)} classes`}${learnt}. `
    + (!data.calibrated ? "Which of them look like nothing that was labelled cannot be said: the model is not calibrated."
      : `Of ${those}, ${found} ${flagged === 1 ? "looks" : "look"} like nothing that was labelled`
        + (known(rate) ? `, flagged at ${share(rate)} false alarms: if all were of the known classes, about ${count(Math.round(rate * total))} would be flagged by mistake.` : "."));
  if ((summary.warnings || []).length) {
    $("warnings").append(el("section", { class: "failed", "aria-label": "Warnings" },
      el("h2", {}, "Before you rely on this"), el("ul", {}, summary.warnings.map((text) => el("li", {}, text)))));
  }
  $("footer").append(el("p", {}, summary.predictions ? `The predictions of all nodes, with all digits, are in ${summary.predictions}. ` : "",
    "This file holds all its data and asks the network for nothing."));
}

/* ---------- a stranger and a known node ---------- */

const bars = (i, most) => intervalBars(data.classes, { lower: nodes.lower && nodes.lower[i], upper: nodes.upper && nodes.upper[i],
  p: data.credal ? { [nodes.class[i]]: nodes.probability[i] } : nodes.p[i], prediction: nodes.class[i],
  truth: nodes.label[i] < data.classes.length ? nodes.label[i] : -1, word: "label" }, most);

function showMeeting() {
  const { flagged, uncertain, known: usual } = data.typical;
  const stranger = known(flagged) ? flagged : uncertain;
  const titles = data.calibrated ? ["Flagged: ", "Known: "] : ["Less sure: ", "Typical: "];
  $("meet").append(
    el("h2", { id: "meet-title" }, known(flagged) ? "A stranger, and a node it knows" : known(uncertain) ? "A node it is less sure of, and a typical one" : "A typical node"),
    el("p", {}, data.credal ? ["Every class gets a ", el("em", {}, "lower"), " and an ", el("em", {}, "upper"), " probability. Narrow bars say “I know”. Wide bars say ",
      "“I have been shown little or nothing like this”. The stroke is the probability of the predicted class."]
      : "Every class gets a probability; one long bar says that the model has made up its mind."),
    el("div", { class: "cards" }, known(stranger) ? card(stranger, titles[0], "ood") : null, known(usual) ? card(usual, titles[1], "id") : null),
    el("p", { class: "note" }, data.calibrated
      ? "Nobody picked them: each is in the middle of its kind when nodes are put in the order of how uncertain they are."
      : "Nobody picked them: put in the order of how uncertain they are, one is at 95 % of all nodes, the other in the middle."));
}

function card(i, title, kind) {
  const { table, rest } = bars(i, CLASSES), width = nodes.measure[i], size = sizeOf(width);
  const verdict = !data.credal ? `The most probable class has ${pct(nodes.probability[i])} %.`
    : `The intervals are ${size} (widest ${fixed(width, 2)})${kind === "id" ? (size === "narrow" ? ": “I know such nodes.”" : ".") : size === "wide" ? ": “I have not been shown such nodes.”" : "."}`;
  return el("article", { class: `card ${kind}`, "data-node": nodeName(i) },
    el("h3", {}, el("span", { class: `tag ${kind}` }, title), `node ${short(nodeName(i), 40)}`),
    el("p", { class: "note" }, isFlagged(i)
      ? `If it had to be one of the known classes, it would be ${className(i)}; but of nodes of known classes only about ${share(nodes.p_value[i])} look as strange.`
      : `Predicted: ${className(i)}${labelName(i) ? `; its label is ${labelName(i)}` : ""}.`),
    el("div", {}, table, rest ? el("p", { class: "note" }, `${rest} less probable classes are left out.`) : null),
    el("p", {}, verdict),
    el("p", { class: "note why" }, nodes.reasons && nodes.reasons[i] ? `Why: ${nodes.reasons[i]}` : ""),
    nodeLink(i, "Look at this node"));
}

/* ---------- false alarms ---------- */

function meaningOf({ flagged, expected, of }) {
  if (flagged > expected + 2 * Math.sqrt(Math.max(expected, 1))) {
    return `More than false alarms explain: at least about ${count(Math.round(flagged - expected))} of the ${count(of)} are strangers.`;
  }
  return "No more than false alarms alone would be: no sign of strangers at this rate.";
}

function showAlarms() {
  if (!data.alarms.length) return;
  const rows = data.alarms.map((row) => el("tr", {}, el("th", { scope: "row" }, share(row.false_alarms)),
    el("td", { class: "number" }, `${count(row.flagged)} of ${count(row.of)}`), el("td", { class: "number" }, count(Math.round(row.expected))), el("td", {}, meaningOf(row))));
  $("alarms").append(el("h3", { id: "alarms-title" }, "How many would be flagged at other false-alarm rates"),
    el("div", { class: "scroll", role: "region", tabindex: "0", "aria-labelledby": "alarms-title" },
      plainTable([["False alarms allowed"], ["Flagged", true], ["By mistake, if all were known", true], ["What this means"]], rows)),
    el("p", { class: "note" }, "A node of a known class is flagged with at most this probability, whatever the strangers look like, as long as it comes from where the ",
      known(summary.calibration) ? `${count(summary.calibration)} ` : "", "calibration nodes come from."));
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
    ["Homophily", known(facts.homophily) ? `${pct(facts.homophily)} % of the edges between labelled nodes join two of one class` : "unknown: no edge joins two labelled nodes"],
    partNames.length ? ["Labelled nodes used", partNames.map((name) => `${(PARTS[name] || [name])[0]} ${count(data.parts[name])}`).join(", ")] : null,
    ["Method", method],
    known(summary.accuracy) ? ["Accuracy", `${pct(summary.accuracy)} % on ${known(summary.judged) ? `${count(summary.judged)} ` : ""}nodes that took no part in training`] : null,
    known(summary.ece) ? ["Calibration error", `${pct(summary.ece)} %: so far, on average, a stated probability is from how often it is right`] : null,
    sizes.length ? ["Prediction sets", `${sizes.map(([coverage, size]) => `${fixed(size, 2)} classes for ${share(Number(coverage))}`).join(", ")}: `
      + "so many stay in question on average, if the right one shall be among them for so many of the known nodes"] : null,
    data.calibrated ? ["In doubt", `${plural(data.doubtful, "node")} not flagged, with more than one class in question`] : null,
  ].filter(Boolean);
  $("facts-list").append(...list.flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]));
  const rows = data.names.map((name, k) => {
    const ours = k < data.classes.length;
    return !ours && !facts.class_counts[name] ? null : el("tr", {}, el("th", { scope: "row", title: name }, short(name, 40), ours ? null : el("span", { class: "std" }, " (the model does not know it)")),
      el("td", { class: "number" }, count(facts.class_counts[name] || 0)), el("td", { class: "number" }, ours ? count(data.predicted[k]) : "–"),
      data.calibrated ? el("td", { class: "number" }, ours ? count(data.strange[k]) : "–") : null);
  });
  $("classes").append(plainTable([["Class"], ["Labels given", true], ["Predicted", true], ...(data.calibrated ? [["of these flagged", true]] : [])], rows.filter(Boolean)));
  $("classes-note").textContent = data.new.total < data.total ? `Predicted: of the ${count(data.new.total)} nodes that it has not learnt from.` : "";
  const words = summary.diagnosis ? diagnosisWords(summary.diagnosis) : [];
  $("diagnosis").hidden = !words.length;
  $("diagnosis").querySelector("ul").append(...words.map((text) => el("li", {}, `${text[0].toUpperCase()}${text.slice(1)}.`)));
}
