/* Tables of nodes: the unfamiliar ones, and all nodes of the page. */

const state = { filter: "all", sort: {} };

function columnsOf(names) {
  const { scores } = nodes;
  const columns = [
    { key: "node", label: "Node", value: (i) => (nodes.numeric ? Number(nodeName(i)) : nodeName(i)) },
    data.calibrated && { key: "kind", label: "Status", value: (i) => KINDS[kindOf(i)] },
    { key: "class", label: "Class", title: "the most probable one", value: className },
    nodes.classes && { key: "classes", label: "In question", title: "classes in the prediction set", value: classesText },
    nodes.p_value && { key: "p_value", label: "p-value", title: "share of nodes of known classes that are at least as unfamiliar", number: true, value: (i) => nodes.p_value[i], text: (x) => (x < 0.001 ? num(x) : fixed(x, 3)) },
    { key: "probability", label: "Probability %", title: "of the class", number: true, large: true, value: (i) => nodes.probability[i], text: pct },
    data.credal && { key: "widest", label: "Widest %", title: "width of the widest interval", number: true, large: true, value: (i) => nodes.measure[i], text: pct },
    ...Object.entries(scores).map(([name, values]) => ({ key: `score ${name}`, label: name, number: true, large: name !== "coverage",
      title: name === "coverage" ? "how often similar nodes are labelled; 1 is as often as any" : SCORES[name], value: (i) => values[i], text: aligned(values) })),
    { key: "degree", label: "Neighbours", number: true, large: true, value: (i) => nodes.degree[i], text: count },
    { key: "label", label: "Label", title: "the known label", value: labelName },
    { key: "part", label: "Part", title: "use of its label", value: partName },
    nodes.reasons && { key: "reasons", label: "Reasons", value: (i) => nodes.reasons[i] || null },
  ].filter(Boolean);
  return names ? columns.filter((column) => names.some((name) => column.key === name || column.key === `score ${name}`)) : columns;
}

/* Table with pages in a box; show(places) fills it. */
function nodeTable(box, caption, columns, size, sort) {
  const region = el("div", { class: "scroll nodes", role: "region", "aria-label": caption, tabindex: "0" });
  const turn = (step) => () => { page += step; draw(); };
  const pager = { previous: el("button", { type: "button", onclick: turn(-1) }, "Previous"), where: el("span", { class: "where" }), next: el("button", { type: "button", onclick: turn(1) }, "Next") };
  box.replaceChildren(region, el("div", { class: "pager" }, pager.previous, pager.where, pager.next));
  const table = sortable(region, caption, columns, sort, () => { page = 0; draw(); });
  let page = 0, places = [];
  function draw() {
    const shown = onPage(table.sorted(places), page, size, pager);
    page = shown.page;
    table.show(shown.visible.map((i) => el("tr", { "data-node": nodeName(i), onclick: (event) => {
      const anchor = event.currentTarget.querySelector("a");
      if (event.target.closest("a")) return;
      anchor.focus();
      anchor.click();
    } }, columns.map((column) => cell(column, i)))));
  }
  return { show(items) { places = items; page = 0; draw(); }, sorted: () => table.sorted(places) };
}

function cell(column, i) {
  const value = column.value(i);
  if (column.key === "node") return el("th", { scope: "row" }, nodeLink(i, nodeName(i)));
  if (column.key === "kind") return el("td", {}, el("span", { class: `tag ${kindOf(i)}` }, value));
  if (column.number) return el("td", { class: "number" }, column.text(value));
  if (!known(value)) return el("td", {}, "–");
  const text = short(value, column.key === "reasons" ? 60 : 32);
  return el("td", { title: value }, column.key === "label" && isWrong(i) ? el("span", { class: "tag wrong" }, text) : text);
}

/* ---------- unfamiliar nodes ---------- */

function showUnfamiliar() {
  const flagged = held.filter(isFlagged);
  const more = data.flagged - flagged.length, old = data.flagged - data.new.flagged;
  $("unfamiliar-note").textContent = !data.calibrated ? CALIBRATE
    : !flagged.length ? "No node is flagged at this rate of false alarms."
      : `${plural(data.flagged, "node")} flagged${known(summary.false_alarms) ? ` at ${share(summary.false_alarms)} false alarms` : ""}, the smallest p-values first`
        + (old ? `; ${count(old)} of them took part in training: check their labels and features` : "") + "."
        + (more ? ` ${count(flagged.length)} of them are in this page.` : "");
  $("unfamiliar-table").hidden = !flagged.length;
  if (!flagged.length) return;
  const table = nodeTable($("unfamiliar-table"), "Unfamiliar nodes", columnsOf(["node", "p_value", "class", "widest", "probability", "EU", "coverage", "degree", "label", "reasons"]),
    10, { key: "p_value", order: "ascending" });
  table.show(flagged);
}

/* ---------- all nodes ---------- */

const FILTERS = [
  ["all", "All", () => true],
  ["flagged", "Flagged", isFlagged],
  ["doubt", "In doubt", isDoubtful],
  ["known", "Known", (i) => kindOf(i) === "id"],
  ["wrong", "Wrong", isWrong],
].filter(([name]) => name === "all" || (name === "wrong" ? held.some((i) => nodes.label[i] >= 0) : data.calibrated));
const MEANINGS = {
  flagged: "Unfamiliar nodes: unlike all that are labelled.",
  doubt: "Nodes with more than one class in question.",
  known: "Nodes that are not flagged, with one class in question.",
  wrong: "Nodes whose label differs from the prediction.",
};
let allNodes = null;

function showNodes() {
  const whole = nodes.held === data.total;
  $("nodes-note").textContent = (whole ? `All ${plural(data.total, "node")}.` : `${count(nodes.held)} of ${plural(data.total, "node")}: `
    + `${data.calibrated ? "the flagged ones with the smallest p-values" : "the least certain ones"}, the labelled nodes nearest to them, and a random sample. `
    + (summary.predictions ? `All are in ${summary.predictions}.` : ""))
    + ` Open a node for its ${data.credal ? "intervals" : "probabilities"}, reasons and neighbours.`;
  allNodes = nodeTable($("nodes-table"), "Nodes", columnsOf(), PAGE, state.sort);
  $("filters").replaceChildren(...FILTERS.map(([name, label, fits]) => el("button", { type: "button", "data-filter": name, onclick: () => {
    state.filter = name;
    refresh();
  } }, `${label} (${count(held.filter(fits).length)})`)));
  $("find").addEventListener("input", refresh);
  $("download").addEventListener("click", download);
  refresh();
}

function refresh() {
  const typed = $("find").value.trim(), words = typed.toLowerCase();
  const [, , fits] = FILTERS.find(([name]) => name === state.filter);
  const byName = (i) => (nodes.numeric ? nodeName(i).startsWith(words) : nodeName(i).toLowerCase().includes(words));
  const byClass = (i) => className(i).toLowerCase().includes(words) || (labelName(i) || "").toLowerCase().includes(words);
  const matches = held.filter((i) => fits(i) && (!words || byName(i) || byClass(i)));
  const exact = words ? matches.filter((i) => nodeName(i).toLowerCase() === words) : []; // these come first
  const places = [...exact, ...matches.filter((i) => !exact.includes(i))];
  allNodes.show(places);
  for (const button of $("filters").children) button.setAttribute("aria-pressed", String(button.dataset.filter === state.filter));
  $("found").textContent = [MEANINGS[state.filter], words ? `${plural(places.length, "node")} with “${typed}” in the id, the class or the label.` : null,
    words && !places.length && nodes.held < data.total ? "The node may be missing in this page." : null].filter(Boolean).join(" ");
  $("download").textContent = `Download ${places.length === 1 ? "this row" : `these ${count(places.length)} rows`} as CSV`;
  $("download").disabled = !places.length;
}

/* ---------- download ---------- */

/* Columns of the table of predictions in its order, then label and part. */
function csv(places) {
  const each = (prefix, values) => data.classes.map((name, k) => [`${prefix}_${name}`, (i) => values[i][k]]);
  const columns = [
    ["id", nodeName], ["class", className], ["probability", (i) => nodes.probability[i]],
    ...(data.credal ? [...each("lower", nodes.lower), ...each("upper", nodes.upper)] : each("p", nodes.p)),
    ...Object.entries(nodes.scores).map(([name, values]) => [name, (i) => values[i]]),
    ...(data.calibrated ? [["p_value", (i) => nodes.p_value[i]], ["unfamiliar", isFlagged]] : []),
    ...["classes", "reasons"].filter((name) => nodes[name]).map((name) => [name, (i) => nodes[name][i]]),
    ["label", labelName], ["part", (i) => (nodes.part[i] >= 0 ? partNames[nodes.part[i]] : null)],
  ];
  const field = (value) => (!known(value) ? "" : /[",\r\n]/.test(String(value)) ? `"${String(value).replaceAll('"', '""')}"` : String(value));
  const lines = [columns.map(([name]) => field(name)), ...places.map((i) => columns.map(([, value]) => field(value(i))))];
  return lines.map((line) => line.join(",") + "\n").join("");
}

function download() {
  const address = URL.createObjectURL(new Blob([csv(allNodes.sorted())], { type: "text/csv;charset=utf-8" }));
  el("a", { href: address, download: "nodes.csv" }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000); // once the browser has it
}
