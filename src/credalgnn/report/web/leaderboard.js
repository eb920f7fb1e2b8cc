/* Leaderboard page: one condition and one metric at a time, which the address keeps. */

const PROTOCOLS = { sealed: "nothing is chosen by OOD or test nodes", paper: "early stopping and tuning may use OOD validation nodes" };
const SETTINGS = { transductive: "the whole graph takes part in training, including unlabelled OOD nodes", inductive: "training sees the training nodes alone" };
const SPLITS = { one: "one split, seeds differ in training", each: "every seed has its own split" };
const SHADES = ["low2", "low1", "", "high1", "high2"]; // from the worst to the best of a column

const state = { condition: null, metric: null, sort: { key: "rank", order: "ascending" } };
const format = (value) => (state.metric.percent ? pct(value) : fixed(value, 3));
const signed = (value) => (value > 0 ? "+" : "") + format(value);
const standings = () => state.condition.standings[state.metric.key];
const standing = (row) => (row.headline ? standings().methods[row.method] : null) || {};
const valueOf = (row, graph) => ((row.values[graph] || {})[state.metric.key] || [null])[0];
const ofScores = () => !["accuracy", "macro_f1", "nll", "brier", "ece"].includes(state.metric.key);
const takenOut = (row, graph) => ofScores() && known((row.disqualified || {})[graph]);
const nameOf = ({ protocol, setting, splits }) => `${protocol}, ${setting}, ${splits === "one" ? "one split" : "a split for each seed"}`;

/* ---------- header ---------- */

function showLead() {
  const { graphs } = state.condition, ranked = Object.entries(standings().methods).filter(([, one]) => known(one.mean_rank));
  ranked.sort(([, a], [, b]) => a.mean_rank - b.mean_rank);
  const methods = new Set(state.condition.rows.map((row) => row.method)).size;
  const what = state.metric.key === "auroc" ? "Detection of OOD nodes, whose classes were left out of training: " : `${state.metric.label}: ${state.metric.meaning}. `;
  const best = ranked.length > 1 ? ` Best on average is ${ranked[0][0]} (mean rank ${fixed(ranked[0][1].mean_rank, 1)} of ${ranked.length}), `
    + `then ${ranked[1][0]} (${fixed(ranked[1][1].mean_rank, 1)}).` : "";
  $("lead").textContent = `${what}${plural(methods, "method")} on ${plural(graphs.length, "graph")}.${best}`;
  const { protocol, setting, splits } = state.condition;
  $("board-note").textContent = `${protocol}: ${PROTOCOLS[protocol] || "unknown to this page"}; ${setting}: ${SETTINGS[setting] || "unknown to this page"}; `
    + `${SPLITS[splits]}. Means over seeds; ${state.metric.better === 1 ? "larger" : "smaller"} is better. Click a head to sort.`;
}

/* ---------- the table ---------- */

function rowsShown() {
  const words = $("find").value.trim().toLowerCase();
  return state.condition.rows.filter((row) =>
    (row.headline || $("all-scores").checked)
    && (!words || row.method.toLowerCase().includes(words))
    && (!$("labels-only").checked || (standings().methods[row.method] || {}).uses_unlabelled === false));
}

function shadesOf(graph) { // of a column, by the values that no mark takes out
  const values = state.condition.rows.filter((row) => row.headline && !takenOut(row, graph)).map((row) => valueOf(row, graph));
  const [low, high] = range(values);
  return (value) => {
    const share = (value - low) / (high - low || 1), good = state.metric.better === 1 ? share : 1 - share;
    return SHADES[Math.max(0, Math.min(SHADES.length - 1, Math.floor(good * SHADES.length)))];
  };
}

function bestOf(graph) {
  const values = state.condition.rows.filter((row) => row.headline && !takenOut(row, graph)).map((row) => valueOf(row, graph)).filter(known);
  return state.metric.better === 1 ? Math.max(...values) : Math.min(...values);
}

function showBoard() {
  const graphs = state.condition.graphs.map((graph) => graph.name);
  const wins = (row) => { const one = standing(row); return known(one.wins) && one.wins + one.ties + one.losses > 0 ? one.wins - one.losses : null; };
  const columns = [
    { key: "method", label: "Method", value: (row) => row.method },
    { key: "score", label: "Score", value: (row) => row.score },
    { key: "unlabelled", label: "Learns from", title: "labels alone, or unlabelled nodes beyond message passing, too", value: (row) => learns(row) },
    { key: "rank", label: "Mean rank", number: true, title: "over all graphs; 1 is the best", value: (row) => standing(row).mean_rank },
    { key: "wins", label: "W–T–L", number: true, large: true, title: `graphs where it is significantly better than ${data.reference}, not different, and worse (Wilcoxon over seeds, Holm)`, value: wins },
    { key: "behind", label: "Worst lead", number: true, large: true, title: `its smallest lead over ${data.reference}`, value: (row) => (standing(row).behind || [])[1] },
    ...graphs.map((graph) => ({ key: `at ${graph}`, label: graph, number: true, large: state.metric.better === 1, value: (row) => (takenOut(row, graph) ? null : valueOf(row, graph)) })),
  ];
  if (!columns.some((column) => column.key === state.sort.key)) state.sort = { key: "rank", order: "ascending" };
  const shades = graphs.map(shadesOf), best = graphs.map(bestOf);
  const table = sortable($("board-box"), `${state.metric.label} under ${nameOf(state.condition)}`, columns, state.sort, refresh);
  function refresh() {
    table.show(table.sorted(rowsShown()).map((row) => {
      const one = standing(row);
      return el("tr", { class: [row.trivial && "trivial", !row.headline && "second"].filter(Boolean).join(" ") || null, "data-method": row.method, "data-score": row.score },
        el("th", { scope: "row" }, row.method), el("td", {}, row.score), el("td", {}, learns(row)),
        el("td", { class: "number rank" }, fixed(one.mean_rank, 1)),
        el("td", { class: "number", title: one.untested ? `${one.untested} graphs without enough seeds` : null },
          known(wins(row)) ? `${one.wins}–${one.ties}–${one.losses}` : "–",
          one.marked ? el("span", { class: "std", title: "graphs where a mark takes it out of the ranking" }, ` (${one.marked} marked)`) : null),
        el("td", { class: "number" }, one.behind ? `${signed(one.behind[1])} ` : "–", one.behind ? el("span", { class: "std" }, one.behind[0]) : null),
        graphs.map((graph, k) => cellOf(row, graph, shades[k], best[k])));
    }));
    remember();
  }
  for (const id of ["all-scores", "labels-only"]) $(id).onchange = refresh;
  $("find").oninput = refresh;
  refresh();
  showLegend();
}

const learns = (row) => { const { uses_unlabelled: used } = standings().methods[row.method] || {}; return row.trivial ? "nothing" : used ? "unlabelled, too" : used === false ? "labels" : "–"; };

function cellOf(row, graph, shade, best) {
  const value = (row.values[graph] || {})[state.metric.key];
  if (!value) return el("td", { class: "number" }, "–");
  const [mean, std, runs] = value, out = takenOut(row, graph);
  const marks = Object.entries((row.marks || {})[graph] || {}).map(([name, many]) => `${name} in ${many} of ${runs} runs: ${(data.marks[name] || { meaning: "unknown to this page" }).meaning}`);
  const title = [`${format(mean)} ± ${format(std)}, ${plural(runs, "run")}`, ...marks].join("; ");
  const sign = out ? (row.disqualified[graph].map((name) => (data.marks[name] || { letter: name }).letter)).join(" ") : "";
  return el("td", { class: `number ${out ? "out" : shade(mean)}${!out && row.headline && mean === best ? " top" : ""}`, title }, format(mean),
    runs > 1 ? el("span", { class: "std" }, ` ±${format(std)}`) : null, sign ? el("span", { class: "std" }, ` ${sign}`) : null);
}

function showLegend() {
  const letters = [...new Set(state.condition.rows.flatMap((row) => Object.values(row.disqualified || {}).flat()))];
  $("board-legend").replaceChildren(
    el("p", {}, "Cells are shaded by column, from the worst (orange) to the best (blue); bold: the best of a graph. The number after ± is the standard deviation over seeds."),
    el("p", {}, `W–T–L: graphs where a method is significantly better than ${data.reference}, not different, or worse (two-sided Wilcoxon over seeds, corrected by Holm, 0.05).`),
    ...(state.condition.rows.some((row) => row.method === "credal-coverage") ? [el("p", {}, "Records do not show how a method was designed: the design of credal-coverage was chosen on graphs of this table with OOD nodes among their validation nodes (docs/coverage.md).")] : []),
    ...(ofScores() ? letters : []).map((name) => el("p", {}, `${(data.marks[name] || { letter: name }).letter}: ${(data.marks[name] || { meaning: "a mark of another version" }).meaning}. Such a cell is ranked last; wins, losses and leads leave it out.`)));
}

/* ---------- ranks ---------- */

function drawRanks() {
  const { methods, critical, p, ranked: graphs } = standings();
  const ranked = Object.entries(methods).filter(([, one]) => known(one.mean_rank)).sort(([, a], [, b]) => a.mean_rank - b.mean_rank);
  const most = ranked.length;
  $("ranks-note").textContent = most < 2 ? "No two methods are on the same graphs."
    : `Small dots: rank of a method on each of ${plural(graphs.length, "graph")}; large dots: mean rank. `
      + (known(critical) ? `Methods within the band (${fixed(critical, 1)} ranks, the critical difference of the Nemenyi test at 0.05) do not differ significantly from the best one by this test, `
        + `which uses mean ranks alone; all methods being equal has p = ${num(p)} (Friedman).` : "There are too few graphs to test differences of mean ranks.");
  if (most < 2) return $("ranks-figure").replaceChildren();
  figures($("ranks-figure"), [["", (width) => {
    const left = Math.min(170, width / 3), right = 16, line = 22, height = 34 + line * most;
    const x = (rank) => left + ((width - left - right) * (rank - 1)) / Math.max(1, most - 1);
    const node = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Mean ranks: ${ranked.map(([name, one]) => `${name} ${fixed(one.mean_rank, 1)}`).join(", ")}` });
    if (known(critical)) node.append(svg("rect", { class: "band", x: x(ranked[0][1].mean_rank), width: Math.min(x(ranked[0][1].mean_rank + critical), width - right) - x(ranked[0][1].mean_rank), y: 22, height: height - 22 }));
    for (const rank of [1, ...[5, 10, 15, 20, 25, 30, 40, 50].filter((one) => one <= most)]) {
      node.append(svg("line", { class: "grid", x1: x(rank), x2: x(rank), y1: 22, y2: height }), svg("text", { x: x(rank), y: 14, "text-anchor": "middle" }, String(rank)));
    }
    ranked.forEach(([name, one], k) => {
      const y = 34 + line * k;
      node.append(svg("text", { class: "strong", x: left - 10, y: y + 4, "text-anchor": "end" }, short(name, 22)),
        ...Object.entries(one.ranks).map(([graph, rank]) => svg("circle", { class: "small", cx: x(rank), cy: y, r: 3 }, svg("title", {}, `${name} on ${graph}: rank ${num(rank)}`))),
        svg("circle", { class: "mean", cx: x(one.mean_rank), cy: y, r: 5.5 }, svg("title", {}, `${name}: mean rank ${fixed(one.mean_rank, 1)}`)));
    });
    return node;
  }]]);
}

/* ---------- graphs ---------- */

function showGraphs() {
  const rows = state.condition.graphs.map((graph) => el("tr", {}, el("th", { scope: "row" }, graph.name),
    el("td", { class: "number" }, count(graph.classes)), el("td", {}, some(graph.ood, 6)),
    el("td", { class: "number" }, count(graph.counts.test_id ?? 0)), el("td", { class: "number" }, count(graph.counts.test_ood ?? 0)),
    el("td", { class: "number" }, count(graph.seeds))));
  $("graphs-box").replaceChildren(plainTable([["Graph"], ["ID classes", true], ["OOD classes"], ["ID test nodes", true], ["OOD test nodes", true], ["Seeds", true]], rows));
}

/* ---------- selection ---------- */

function remember() {
  const words = new URLSearchParams({ condition: data.conditions.indexOf(state.condition), metric: state.metric.key, sort: state.sort.key, order: state.sort.order });
  history.replaceState(null, "", `#${words}`);
}

function show() {
  showLead();
  showBoard();
  drawRanks();
  showGraphs();
}

function start() {
  const words = new URLSearchParams(location.hash.slice(1));
  const fill = (box, options, chosen) => box.replaceChildren(...options.map(([value, text]) => el("option", { value, selected: value === chosen }, text)));
  state.condition = data.conditions[Number(words.get("condition"))] || data.conditions[0];
  state.metric = data.metrics.find((metric) => metric.key === words.get("metric")) || data.metrics[0];
  if (words.get("sort")) state.sort = { key: words.get("sort"), order: words.get("order") === "descending" ? "descending" : "ascending" };
  fill($("condition"), data.conditions.map((condition, k) => [k, nameOf(condition)]), data.conditions.indexOf(state.condition));
  fill($("metric"), data.metrics.map((metric) => [metric.key, `${metric.label} (${metric.better === 1 ? "larger" : "smaller"} is better)`]), state.metric.key);
  $("condition").addEventListener("change", (event) => { state.condition = data.conditions[Number(event.target.value)]; show(); });
  $("metric").addEventListener("change", (event) => { state.metric = data.metrics.find((metric) => metric.key === event.target.value); show(); });
  $("footer").append(el("p", {}, `${plural(data.runs, "run")}, the last of ${data.finished.slice(0, 10)}. This file contains all its data and needs no network.`));
  whenResized(drawRanks);
  show();
}

start();
