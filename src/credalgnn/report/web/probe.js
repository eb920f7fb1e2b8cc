/* Probe page: responses of AU and EU to known changes, on one graph or on average. */

const ALL = ""; // the mean over all graphs
const COLOURS = 6;
const state = { graph: ALL, sort: { key: "method", order: "ascending" }, drawn: [] };
const isShare = (question) => question.lowest === 0;
const format = (question, value) => (isShare(question) ? `${fixed(100 * value, 0)} %` : `${value > 0 ? "+" : ""}${fixed(value, 2)}`);
const answerOf = (method, question) => state.graph === ALL
  ? (known((data.overall[method] || {})[question.name]) ? [data.overall[method][question.name]] : null)
  : ((data.answers[state.graph] || {})[method] || {})[question.name] || null;
const questionsShown = () => data.questions.filter((question) => data.methods.some((method) => answerOf(method, question)));
const matches = (method) => method.toLowerCase().includes($("find").value.trim().toLowerCase());

function shade(question, value) {
  if (isShare(question) || Math.abs(value) < 0.1) return "";
  return `${value > 0 ? "high" : "low"}${Math.abs(value) >= 0.5 ? 2 : 1}`;
}

function titleOf(question, [mean, std, epistemic, aleatoric, runs]) {
  if (!known(runs)) return `${format(question, mean)}, mean over ${plural(data.graphs.length, "graph")}`;
  const rises = data.rises.some((test) => test.name === question.name);
  const part = (name, value) => (known(value) ? `; ${name} ${rises ? `moved by ${format({}, value)}` : `has an AUROC of ${pct(value)}`}` : "");
  return `${format(question, mean)} ± ${fixed(isShare(question) ? 100 * std : std, 2)}, ${plural(runs, "run")}${part("EU", epistemic)}${part("AU", aleatoric)}`;
}

function showAnswers() {
  const questions = questionsShown();
  const columns = [
    { key: "method", label: "Method", value: (method) => data.methods.indexOf(method) },
    ...questions.map((question) => ({ key: question.name, label: question.label, number: true, large: true, title: question.meaning,
      value: (method) => (answerOf(method, question) || [null])[0] })),
  ];
  if (!columns.some((column) => column.key === state.sort.key)) state.sort = { key: "method", order: "ascending" };
  const table = sortable($("answers-box"), "Results, one row per method", columns, state.sort, refresh);
  function refresh() {
    table.show(table.sorted(data.methods.filter(matches)).map((method) => el("tr", { "data-method": method }, el("th", { scope: "row" }, method),
      questions.map((question) => {
        const answer = answerOf(method, question);
        if (!answer) return el("td", { class: "number" }, "–");
        return el("td", { class: `number answer ${shade(question, answer[0])}`, title: titleOf(question, answer) }, format(question, answer[0]),
          answer[4] > 1 ? el("span", { class: "std" }, ` ±${fixed(isShare(question) ? 100 * answer[1] : answer[1], isShare(question) ? 0 : 2)}`) : null);
      }))));
  }
  $("find").oninput = refresh;
  refresh();
  $("answers-legend").replaceChildren(...questions.flatMap((question) => [el("dt", {}, question.label), el("dd", {}, question.meaning)]));
}

/* ---------- curves ---------- */

const colourOf = (method) => `var(--s${data.methods.indexOf(method) % COLOURS})`; // the same whichever others are shown

function lines(width, curves, x, yTitle, series, label) {
  const shown = state.drawn.filter((method) => curves[method] && series.some((name) => (curves[method][name] || []).some(known)));
  if (!shown.length) return "This was not measured for the selected methods.";
  const values = shown.flatMap((method) => series.flatMap((name) => curves[method][name] || []));
  const [low, high] = range(values), margin = 0.05 * (high - low || 1);
  const { node, X, Y } = chart(width, 260, x, { lo: Math.min(low, 0) < 0 ? low - margin : 0, hi: Math.max(high + margin, LEAST), title: yTitle }, label);
  for (const method of shown) {
    const colour = colourOf(method);
    series.forEach((name, k) => node.append(svg("polyline", { class: `series${k ? " other" : ""}`, stroke: colour, "data-method": method, "data-series": name,
      points: points(x.places, curves[method][name] || [], X, Y).join(" ") }),
    ...points(x.places, curves[method][name] || [], X, Y).map((place) => svg("circle", { class: "dot", fill: colour, cx: place.split(",")[0], cy: place.split(",")[1], r: 2.5 }))));
  }
  return node;
}

const axisOf = (levels, title, text) => ({ lo: 0, hi: levels.length - 1, title, places: levels.map((_, k) => k),
  format: (k) => (Number.isInteger(k) && known(levels[k]) ? text(levels[k]) : "") });

function drawLevels() {
  const graph = state.graph || data.graphs[0];
  $("levels-note").textContent = `${graph}: mean EU (solid) and AU (dashed) of ID test nodes. With fewer labels EU must rise and AU stay; with noisy labels AU must rise and EU stay.`;
  figures($("levels-figures"), data.rises.map((test) => [test.label, (width, caption) => {
    const curves = data.curves[test.name][graph] || {}, first = Object.values(curves)[0];
    if (!first) return "Only one level was measured.";
    caption.textContent = test.meaning;
    const title = test.name === "labels" ? "labels kept (%)" : "labels that are wrong (%)";
    return lines(width, curves, axisOf(first.levels, title, (level) => num(100 * level)), "bits (or the method's unit)", ["epistemic", "aleatoric"], `${test.label} on ${graph}`);
  }]));
}

function drawHomophily() {
  const graph = state.graph || data.graphs[0], local = data.local[graph] || {};
  const names = data.bins.slice(1).map((edge, k) => `${num(100 * data.bins[k])}–${num(100 * edge)}`);
  const axis = { lo: 0, hi: names.length - 1, title: "share of neighbours of the same class (%)", places: names.map((_, k) => k), format: (k) => names[k] || "" };
  const swept = Object.entries(data.curves.homophily).find(([, curves]) => Object.keys(curves).length);
  $("homophily-note").textContent = `AUROC of EU for OOD nodes, and accuracy of ID nodes: test nodes of ${graph} by their local homophily`
    + (swept ? `; and graphs of ${swept[0]} with other shares of edges within a class.` : ".");
  figures($("homophily-figures"), [
    [`OOD detection, ${graph}`, (width) => lines(width, local, axis, "AUROC of EU", ["auroc"], `AUROC by local homophily on ${graph}`)],
    [`Accuracy, ${graph}`, (width) => lines(width, local, axis, "accuracy", ["accuracy"], `accuracy by local homophily on ${graph}`)],
    ...(swept ? [[`OOD detection, ${swept[0]} by homophily`, (width) => lines(width, swept[1],
      axisOf(Object.values(swept[1])[0].levels, "share of edges within a class", num), "AUROC of EU", ["auroc"], `AUROC by homophily of ${swept[0]}`)],
    [`Accuracy, ${swept[0]} by homophily`, (width) => lines(width, swept[1],
      axisOf(Object.values(swept[1])[0].levels, "share of edges within a class", num), "accuracy", ["accuracy"], `accuracy by homophily of ${swept[0]}`)]] : []),
  ]);
}

function showTruth() {
  const [graph, rows] = Object.entries(data.truth)[0] || [];
  if (!graph) { $("truth").hidden = true; return; }
  const methods = data.methods.filter((method) => rows[method]);
  $("truth-note").textContent = `${graph} is sampled from a known model, so the true probability of every class is known. Means over its homophilies with an uncertain posterior (true entropy ${fixed(rows[methods[0]].entropy, 2)} bits): `
    + "distance of AU (or the entropy) from the true entropy, distance of the point prediction from the true distribution (total variation), mean widest interval, its rank correlation with the error (Spearman), and share of credal sets that contain the truth.";
  const heads = [["method"], ["|AU − truth| (bits)", 1], ["error of the prediction", 1], ["width", 1], ["width ~ error", 1], ["truth inside", 1]];
  $("truth-box").replaceChildren(plainTable(heads, methods.map((method) => el("tr", { "data-method": method }, el("th", { scope: "row" }, method),
    ["bits", "error", "width", "width_spearman"].map((name) => el("td", { class: "number" }, fixed(rows[method][name], 3))),
    el("td", { class: "number" }, known(rows[method].inside) ? `${fixed(100 * rows[method].inside, 0)} %` : "–")))));
}

/* ---------- selection ---------- */

function showKeys() {
  $("keys").replaceChildren(...data.methods.map((method) => el("label", { class: "tick" },
    el("input", { type: "checkbox", value: method, checked: state.drawn.includes(method), onchange: (event) => {
      state.drawn = event.target.checked ? [...state.drawn, method] : state.drawn.filter((other) => other !== method);
      showKeys();
      $("keys").querySelector(`input[value="${CSS.escape(method)}"]`).focus(); // the keys were replaced
      draw();
    } }),
    state.drawn.includes(method) ? svg("svg", { width: 18, height: 10, "aria-hidden": "true" },
      svg("line", { class: "series", stroke: colourOf(method), x1: 0, x2: 16, y1: 5, y2: 5 })) : null, ` ${method}`)));
}

function draw() { drawLevels(); drawHomophily(); }

function show() {
  $("answers-note").textContent = `${state.graph || `Means over ${plural(data.graphs.length, "graph")}`}. ${data.scale} Click a head to sort; hover over a cell for details.`;
  showAnswers();
  draw();
}

function start() {
  $("lead").textContent = ["AU should respond to noise and EU to missing knowledge.", ...data.words].join(" ");
  const options = [[ALL, "all, on average"], ...data.graphs.map((graph) => [graph, graph])];
  $("graph").replaceChildren(...options.map(([value, text]) => el("option", { value }, text)));
  $("graph").addEventListener("change", (event) => { state.graph = event.target.value; show(); });
  const two = (method) => data.rises.some((test) => Object.values(data.answers).some((methods) => (methods[method] || {})[test.name]));
  state.drawn = data.methods.filter(two).slice(0, COLOURS);
  if (!state.drawn.length) state.drawn = data.methods.slice(0, COLOURS);
  showKeys();
  showTruth();
  const rest = [data.left ? `${plural(data.left, "run")} still to do` : null, data.failed ? `${plural(data.failed, "run")} failed` : null].filter(Boolean);
  $("footer").append(el("p", {}, `${plural(data.runs, "run")}${rest.length ? ` (${rest.join(", ")})` : ""}, the last of ${(data.finished || "").slice(0, 10)}. This file contains all its data and needs no network.`));
  whenResized(draw);
  show();
}

start();
