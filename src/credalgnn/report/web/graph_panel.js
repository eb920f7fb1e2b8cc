/* Panel of a node. The address has its id (#node=ID), so that links can be shared and the back button works. */

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

function closed() { // by a key, a click outside or the button
  if (addressed() !== null) history.pushState(null, "", location.pathname + location.search);
  document.title = data.title;
}

async function copyLink() {
  try {
    await navigator.clipboard.writeText(location.href);
    $("copied").replaceChildren(el("p", { class: "note" }, "The link to this node is copied."));
  } catch { // not allowed: show the link instead
    const field = el("input", { class: "link", readonly: true, value: location.href, "aria-label": "Link to this node" });
    $("copied").replaceChildren(el("p", { class: "note" }, "The browser does not allow copying; the link is:"), field);
    field.select();
  }
}

function elsewhere(i) {
  const where = summary.predictions ? `; ${summary.predictions} has all of them` : "";
  return el("p", {}, known(i) ? `Predicted: ${className(i)}, ${measureText(i)}. This page has the details of ${count(nodes.held)} of ${plural(data.total, "node")} only${where}.`
    : nodes.held < data.total ? `The node is not among the ${count(nodes.held)} of ${plural(data.total, "node")} in this page${where}.` : "There is no such node in this graph.");
}

const measureText = (i) => `${data.credal ? "width" : "probability"} ${fixed(nodes.measure[i], 2)}`; // of the widest interval

function nodeFacts(i) {
  const part = partNames[nodes.part[i]], label = labelName(i);
  const status = { ood: "flagged: unlike all labelled nodes", doubt: "in doubt: several classes are in question", id: "known: one class is in question" };
  const scores = Object.entries(nodes.scores).filter(([name]) => name !== "coverage");
  const list = [
    ["Predicted", `${className(i)}, probability ${pct(nodes.probability[i])} %`],
    data.calibrated ? ["Status", el("span", { class: `tag ${kindOf(i)}` }, status[kindOf(i)])] : null,
    nodes.p_value ? ["p-value", `${num(nodes.p_value[i])}: about ${share(nodes.p_value[i])} of the nodes of known classes are at least as unfamiliar`] : null,
    nodes.classes ? ["In question", classesText(i)] : null,
    ["Label", label === null ? "none" : `${label}${nodes.label[i] >= data.classes.length ? ", a class unknown to the model" : isWrong(i) ? ": differs from the prediction" : ""}`],
    ["Part", part ? `${partName(i)}${PARTS[part] ? `: ${PARTS[part][1]}` : ""}` : nodes.label[i] >= 0 ? "none: its label was not used" : "none: unlabelled"],
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
  const text = nodes.reasons && nodes.reasons[i];
  if (!text && !data.calibrated) return []; // only flagged nodes are explained
  const others = { ood: "No reasons are known.", doubt: "The node is familiar, but several classes fit it.", id: "The node is familiar, and one class fits it." };
  return [el("h3", {}, "Reasons"), el("p", { class: "reasons" }, text || others[kindOf(i)])];
}

/* List of nodes; those that are not in the page have no link. */
function listOf(places, textOf) {
  return el("ul", { class: "neighbours" }, places.map((other) => {
    const text = [other < nodes.held && isFlagged(other) ? el("span", { class: "hidden" }, "flagged: ") : null, textOf(other)];
    return el("li", {}, other < nodes.held ? el("a", { href: link(other), class: data.calibrated ? `tag ${kindOf(other)}` : null }, text)
      : el("span", { title: "not in this page" }, text));
  }));
}

function neighboursOf(i) {
  const listed = nodes.neighbours[i], more = nodes.degree[i] - listed.length;
  return [el("h3", {}, `Neighbours (${count(nodes.degree[i])})`),
    listed.length ? listOf(listed, (other) => `${nodeName(other)}: ${labelName(other) || className(other)}${labelName(other) ? " (label)" : ""}, ${measureText(other)}`)
      : el("p", { class: "note" }, "No edge joins it to another node: its prediction uses its features only."),
    more > 0 ? el("p", { class: "note" }, `${count(more)} more are left out.`) : null].filter(Boolean);
}

function nearestOf(i) {
  if (!nodes.nearest) return [];
  return [el("h3", {}, "Nearest labelled nodes"),
    el("p", { class: "note" }, "The most similar training nodes, the nearest first; those of unfamiliar nodes are far away, too."),
    listOf(nodes.nearest[i], (other) => `${nodeName(other)}: ${labelName(other) || className(other)}`)];
}
