/* The panel of a node. The address says which one is open (#node=ID), so that it can be shared and the back button works. */

const placeOf = new Map(nodes.id.map((name, i) => [name, i]));

function addressed() {
  if (!location.hash.startsWith("#node=")) return null;
  const text = location.hash.slice("#node=".length);
  try { return decodeURIComponent(text); } catch { return text; } // a link that was cut off
}

function followAddress() {
  const name = addressed(), panel = $("panel");
  document.title = name === null ? data.title : `${name} – ${data.title}`;
  if (name === null) { if (panel.open) panel.close(); return; }
  const i = placeOf.get(name);
  panel.replaceChildren(
    el("div", { class: "head" }, el("h2", { id: "panel-title" }, `Node ${name}`),
      el("div", {}, el("button", { type: "button", id: "copy", onclick: copyLink }, "Copy link"),
        el("button", { type: "button", id: "close", onclick: () => panel.close() }, "Close"))),
    el("div", { id: "copied", role: "status" }),
    ...(known(i) && i < nodes.held ? [nodeFacts(i), ...classBars(i), ...reasonsOf(i), ...neighboursOf(i), ...nearestOf(i)] : [elsewhere(i)]));
  if (!panel.open) panel.showModal();
  panel.scrollTop = 0;
  $("close").focus();
}

function closed() { // by a key, a click beside it or the button: the address shall not say that it is open
  if (addressed() !== null) history.pushState(null, "", location.pathname + location.search);
  document.title = data.title;
}

async function copyLink() {
  try {
    await navigator.clipboard.writeText(location.href);
    $("copied").replaceChildren(el("p", { class: "note" }, "The link to this node is copied."));
  } catch { // not allowed here: then by hand
    const field = el("input", { class: "link", readonly: true, value: location.href, "aria-label": "Link to this node" });
    $("copied").replaceChildren(el("p", { class: "note" }, "This browser does not let the page copy; the link is:"), field);
    field.select();
  }
}

function elsewhere(i) {
  const where = summary.predictions ? `; ${summary.predictions} has all of them` : "";
  return el("p", {}, known(i) ? `Predicted: ${className(i)}, ${measureText(i)}. More is not said of it here, because this page holds ${count(nodes.held)} of ${plural(data.total, "node")}${where}.`
    : nodes.held < data.total ? `It is not among the ${count(nodes.held)} of ${plural(data.total, "node")} in this page${where}.` : "There is no such node in this graph.");
}

const measureText = (i) => `${data.credal ? "width" : "probability"} ${fixed(nodes.measure[i], 2)}`; // of the widest interval

function nodeFacts(i) {
  const part = partNames[nodes.part[i]], label = labelName(i);
  const status = { ood: "flagged: it looks like nothing that was labelled", doubt: "in doubt: not one class alone is in question", id: "known: one class is in question" };
  const scores = Object.entries(nodes.scores).filter(([name]) => name !== "coverage");
  const list = [
    ["Predicted", `${className(i)}, probability ${pct(nodes.probability[i])} %`],
    data.calibrated ? ["Status", el("span", { class: `tag ${kindOf(i)}` }, status[kindOf(i)])] : null,
    nodes.p_value ? ["p-value", `${num(nodes.p_value[i])}: about ${share(nodes.p_value[i])} of nodes of known classes look at least as strange`] : null,
    nodes.classes ? ["In question", classesText(i)] : null,
    ["Label", label === null ? "none given" : `${label}${nodes.label[i] >= data.classes.length ? ", a class that the model does not know" : isWrong(i) ? ": not what is predicted" : ""}`],
    ["Part", part ? `${partName(i)}${PARTS[part] ? `: ${PARTS[part][1]}` : ""}` : nodes.label[i] >= 0 ? "none: its label was not used" : "none: nobody has labelled it"],
    data.credal ? ["Widest interval", `${fixed(nodes.measure[i], 2)} (${sizeOf(nodes.measure[i])})`] : null,
    nodes.scores.coverage ? ["Coverage", `${fixed(nodes.scores.coverage[i], 2)} of full: ${coverageWords(nodes.scores.coverage[i])}`] : null,
    scores.length ? ["Scores", scores.map(([name, values]) => `${name} ${aligned(values)(values[i])}${BITS.includes(name) ? " bits" : ""}`).join(", ")] : null,
  ].filter(Boolean);
  return el("dl", { class: "facts" }, list.flatMap(([name, content]) => [el("dt", {}, name), el("dd", {}, content)]));
}

function classBars(i) {
  const { table, rest } = bars(i, BARS);
  return [el("h3", {}, data.credal ? "Probability intervals" : "Probabilities"), table, el("p", { class: "note" },
    data.credal ? "Bars reach from the lower to the upper probability; the stroke is the probability of the predicted class. " : "",
    rest ? `${rest} less probable classes are left out.` : "")];
}

function reasonsOf(i) {
  const why = nodes.reasons && nodes.reasons[i];
  if (!why && !data.calibrated) return []; // only flagged nodes are explained
  const silent = { ood: "No reason is given.", doubt: "It is not strange, but more than one class fits it.", id: "Nothing stands out: one class is in question." };
  return [el("h3", {}, "Why"), el("p", { class: "why" }, why || silent[kindOf(i)])];
}

/* Nodes to follow; those that are not in the page have no link. */
function listOf(places, textOf) {
  return el("ul", { class: "neighbours" }, places.map((other) => {
    const text = [other < nodes.held && isFlagged(other) ? el("span", { class: "hidden" }, "flagged: ") : null, textOf(other)];
    return el("li", {}, other < nodes.held ? el("a", { href: link(other), class: data.calibrated ? `tag ${kindOf(other)}` : null }, text)
      : el("span", { title: "not in this page" }, text));
  }));
}

function neighboursOf(i) {
  const found = nodes.neighbours[i], more = nodes.degree[i] - found.length;
  return [el("h3", {}, `Neighbours (${count(nodes.degree[i])})`),
    found.length ? listOf(found, (other) => `${nodeName(other)}: ${labelName(other) || className(other)}${labelName(other) ? " (label)" : ""}, ${measureText(other)}`)
      : el("p", { class: "note" }, "No edge joins it to another node: it is seen through its own features only."),
    more > 0 ? el("p", { class: "note" }, `${count(more)} more are left out.`) : null].filter(Boolean);
}

function nearestOf(i) {
  if (!nodes.nearest) return [];
  return [el("h3", {}, "Nearest labelled nodes"),
    el("p", { class: "note" }, "The training nodes that the model finds most like it, the nearest first; of a stranger even these are far away."),
    listOf(nodes.nearest[i], (other) => `${nodeName(other)}: ${labelName(other) || className(other)}`)];
}
