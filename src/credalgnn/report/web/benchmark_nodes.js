/* Table of nodes, and the panel of one node. */

let nodeTable = null;

function filters() {
  const { picks, scores } = predicted();
  const n = (kind) => plural(picks[kind].length, "test node"), of = `of all ${count(state.task.nodes.total)}`;
  const sure = scores.TU ? "TU" : method().headline;
  return [
    ["all", "All", null],
    ["epistemic", "Most epistemic", () => `The ${n("epistemic")} with the largest EU ${of}.`],
    ["aleatoric", "Most aleatoric", () => `The ${n("aleatoric")} with the largest AU ${of}.`],
    ["uncertain", "Most uncertain", () => `The ${n("uncertain")} with the largest ${method().headline} ${of}.`],
    ["wrong", "Wrong and certain", () => `The ${n("wrong")} of ID classes with the smallest ${sure} among the misclassified ones.`],
    ["ood", "OOD and certain", () => `The ${n("ood")} of left-out classes with the smallest ${sure}.`],
  ].filter(([name]) => name === "all" || picks[name]);
}

function showNodes() {
  const gap = missing(), nodes = state.task.nodes;
  $("nodes-body").hidden = Boolean(gap);
  if (gap) { $("nodes-note").textContent = gap; return; }
  const shown = nodes.node.length;
  const whole = shown === nodes.total;
  $("nodes-note").textContent = `${whole ? "All " : `${count(shown)} of `}${count(nodes.total)} test nodes of seed ${nodes.seed}, `
    + `with the predictions of ${state.method}${whole ? "" : ": the most extreme ones for each method and a random sample"}. Open a node for its reasons.`;
  const { scores, prediction, lower } = predicted(), graph = nodes.graph;
  const columns = [
    { key: "node", label: "Node", value: nodeName },
    { key: "class", label: "Class", value: className },
    { key: "kind", label: "Kind", value: (i) => KINDS[kindOf(i)] },
    prediction && { key: "prediction", label: "Predicted", value: (i) => state.task.classes[prediction[i]] },
    ...Object.entries(scores).map(([name, values]) => (
      { key: `score ${name}`, label: name, title: SCORES[name], number: true, large: true, value: (i) => values[i], text: aligned(values) })),
    lower && { key: "widest", label: "Widest %", title: "width of the widest interval", number: true, large: true, value: widest, text: pct },
    graph && { key: "degree", label: "Degree", title: "number of incoming edges", number: true, large: true, value: (i) => graph.degree[i], text: num },
    graph && { key: "homophily", label: "Homophily %", title: "share of the neighbours of the node's class",
      number: true, large: true, value: (i) => graph.homophily[i], text: pct },
  ].filter(Boolean);
  nodeTable = { columns, ...sortable($("node-box"), "Test nodes", columns, state.nodeSort, () => { state.page = 0; refreshNodes(); }) };
  if (!filters().some(([name]) => name === state.filter)) state.filter = "all";
  $("filters").replaceChildren(...filters().map(([name, label]) => el("button", { type: "button", "data-filter": name, onclick: () => {
    state.filter = name;
    state.page = 0;
    delete state.nodeSort.key;
    refreshNodes();
  } }, label)));
  refreshNodes();
}

function refreshNodes() {
  const nodes = state.task.nodes;
  const words = $("find").value.trim().toLowerCase();
  const fits = (i) => !words || String(nodeName(i)).startsWith(words) || className(i).toLowerCase().includes(words);
  const places = state.filter === "all" ? nodes.node.map((_, i) => i) : predicted().picks[state.filter];
  const matches = nodeTable.sorted(places.filter(fits));
  const { page, visible } = onPage(matches, state.page, PAGE, { where: $("where"), previous: $("previous"), next: $("next") });
  state.page = page;
  nodeTable.show(visible.map((i) => el("tr", { "data-node": nodeName(i), onclick: (event) => {
    event.currentTarget.querySelector("button").focus();
    openNode(i);
  } }, nodeTable.columns.map((column) => nodeCell(column, i)))));
  for (const button of $("filters").children) button.setAttribute("aria-pressed", String(button.dataset.filter === state.filter));
  const [, , note] = filters().find(([name]) => name === state.filter);
  $("filter-note").textContent = (note ? note() : "") + (words
    ? ` ${plural(matches.length, "node")} with a number that begins with, or a class that contains, “${$("find").value.trim()}”.` : "");
}

function nodeCell(column, i) {
  const value = column.value(i);
  if (column.key === "node") return el("th", { scope: "row" }, el("button", { type: "button", "aria-label": `Open node ${value}` }, String(value)));
  if (column.key === "kind") return el("td", {}, el("span", { class: `tag ${kindOf(i)}` }, value));
  if (column.number) return el("td", { class: "number" }, column.text(value));
  return el("td", { title: value }, short(String(value), 32));
}

/* ---------- the panel of one node ---------- */

const trail = []; // nodes that were open before

function openNode(i, isBack) {
  const panel = $("panel");
  if (!panel.open) trail.length = 0;
  else if (!isBack) trail.push(state.open);
  state.open = i;
  for (const update of whenOpened) update();
  const back = trail.length ? el("button", { type: "button", onclick: () => openNode(trail.pop(), true) },
    `Back to node ${nodeName(trail[trail.length - 1])}`) : null;
  panel.replaceChildren(
    el("div", { class: "head" }, el("h2", { id: "panel-title", tabindex: "-1" }, `Node ${nodeName(i)}`),
      el("div", {}, back, back ? " " : null, el("button", { type: "button", id: "close", onclick: () => panel.close() }, "Close"))),
    nodeFacts(i), ...classBars(i), ...reasonsOf(i), ...otherMethods(i), ...neighboursOf(i));
  if (!panel.open) panel.showModal();
  panel.scrollTop = 0;
  $("close").focus();
}

function nodeFacts(i) {
  const { graph, label } = state.task.nodes, { prediction, scores } = predicted();
  const verdict = () => (isOOD(i) ? "" : prediction[i] === label[i] ? ", right" : ", wrong");
  const facts = [["True class", `${className(i)}${isOOD(i) ? " (out of distribution)" : ""}`]];
  if (prediction) facts.push(["Predicted", `${state.task.classes[prediction[i]]}${verdict()}`]);
  facts.push([`Scores of ${state.method}`, Object.entries(scores).map(([name, values]) => `${name} ${aligned(values)(values[i])}`).join(", ")]);
  if (scores.coverage) {
    const covered = Math.min(1, Math.exp(-scores.coverage[i]));
    facts.push(["Coverage", `${fixed(covered, 2)} of full: ${coverageWords(covered)}`]);
  }
  if (graph && known(graph.degree[i])) {
    const alike = graph.homophily[i];
    facts.push(["Degree", num(graph.degree[i])],
      ["Homophily", known(alike) ? `${pct(alike)} % of the neighbours are of its class` : "no incoming edges"]);
  }
  return el("dl", { class: "facts" }, facts.flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]));
}

function classBars(i) {
  if (!probabilities(state.method)) return [el("h3", {}, "Classes"), el("p", { class: "note" }, `${state.method} does not classify.`)];
  const { lower } = predicted(), { table, rest } = barsOf(state.method, i, BARS);
  return [el("h3", {}, lower ? `Probability intervals of ${state.method}` : `Probabilities of ${state.method}`), table,
    el("p", { class: "note" },
      lower ? "Bars reach from the lower to the upper probability; the stroke is the point prediction. " : "",
      isOOD(i) ? `None of these classes is right: the node is of class ${className(i)}. ` : "",
      rest ? `${rest} less probable classes are left out.` : "")];
}

const barsOf = (name, i, most) => {
  const { lower, upper, prediction } = state.task.nodes.methods[name];
  return intervalBars(state.task.classes, { lower: lower && lower[i], upper: upper && upper[i], p: probabilities(name)[i],
    prediction: prediction[i], truth: state.task.nodes.label[i] }, most);
};

const reasonText = (text) => (text ? `Unlike labelled nodes: ${text}.` : "Similar to labelled nodes.");

function reasonsOf(i) {
  const { reasons } = predicted();
  return reasons ? [el("h3", {}, "Reasons"), el("p", { class: "reasons" }, reasonText(reasons[i]))] : [];
}

function otherMethods(i) {
  const there = Object.keys(state.task.methods).filter((name) => state.task.nodes.methods[name]);
  const lines = there.map((name) => {
    const one = state.task.nodes.methods[name], { headline } = state.task.methods[name], rank = one.rank[i];
    const scale = svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
      svg("rect", { class: "track", x: 0, y: 3, width: 100, height: 4 }),
      svg("rect", { class: "interval", x: Math.min(97, 100 * rank), y: 0, width: 3, height: 10 }));
    return el("tr", { "data-method": name },
      el("th", { scope: "row" }, name === state.method ? el("strong", {}, name) : name),
      el("td", {}, headline),
      el("td", { class: "number" }, aligned(one.scores[headline])(one.scores[headline][i])),
      el("td", { class: "number rank" }, scale, ` ${fixed(100 * rank, 0)} %`),
      el("td", {}, one.prediction ? short(state.task.classes[one.prediction[i]], 24) : "–"));
  });
  const heads = [["Method"], ["Score"], ["Value", true], ["Less certain than", true], ["Predicted"]];
  return [el("h3", {}, "All methods"),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "All methods" }, plainTable(heads, lines)),
    el("p", { class: "note" }, `“Less certain than” is the share of all ${count(state.task.nodes.total)} test nodes with a lower score; equal ones count half.`)];
}

function neighboursOf(i) {
  const { graph, node, names } = state.task.nodes;
  if (!graph) return [el("h3", {}, "Neighbours"), el("p", { class: "note" }, "graph.parquet is missing.")];
  const listed = graph.neighbours[i], more = graph.degree[i] - listed.length;
  const entries = listed.map((other, k) => {
    const place = node.indexOf(other), text = `${other}: ${names[graph.neighbour_classes[i][k]]}`;
    return el("li", {}, place >= 0 ? el("button", { type: "button", onclick: () => openNode(place) }, text)
      : el("span", { title: "not among the test nodes in this page" }, text));
  });
  const note = more > 0 ? `${count(more)} more are left out.` : listed.length ? "" : "No incoming edges.";
  return [el("h3", {}, "Neighbours"), el("ul", { class: "neighbours" }, entries), note ? el("p", { class: "note" }, note) : null].filter(Boolean);
}
