/* Figures of the benchmark: methods side by side, one method in depth, credal sets in the triangle. */

function mark(kind, x, y, attributes, ...children) {
  const at = (dx, dy) => `${(x + dx).toFixed(1)} ${(y + dy).toFixed(1)}`;
  const shape = {
    id: () => svg("circle", { cx: x.toFixed(1), cy: y.toFixed(1), r: 2.8, class: "dot id", ...attributes }, ...children),
    ood: () => svg("path", { d: `M${at(0, -4)}L${at(3.6, 2.6)}L${at(-3.6, 2.6)}Z`, class: "dot ood", ...attributes }, ...children),
    wrong: () => svg("path", { d: `M${at(-3, -3)}L${at(3, 3)}M${at(3, -3)}L${at(-3, 3)}`, class: "dot wrong", ...attributes }, ...children),
  };
  return shape[kind]();
}
const key = (kind) => el("span", { class: "key" }, svg("svg", { viewBox: "0 0 14 10", "aria-hidden": "true" }, mark(kind, 6, 5)), KINDS[kind]);

/* ---------- methods side by side ---------- */

function showChoice() {
  const names = Object.keys(state.task.methods);
  if (!drawn.has(state.task)) {
    const first = DRAWN.filter((name) => names.includes(name));
    drawn.set(state.task, new Set(first.length ? first : names.slice(0, 5)));
  }
  const chosen = drawn.get(state.task);
  const emphasise = (name, on) => {
    for (const group of $("curve-figures").querySelectorAll(".series")) group.classList.toggle("on", on && group.dataset.method === name);
    $("curve-figures").classList.toggle("focused", on && chosen.has(name));
  };
  $("choice").replaceChildren($("choice").querySelector("legend"), ...names.map((name) => {
    const { headline } = state.task.methods[name];
    const box = el("input", { type: "checkbox", value: name, onchange: () => {
      if (box.checked) chosen.add(name); else chosen.delete(name);
      drawCurves();
      emphasise(name, false);
    } });
    box.checked = chosen.has(name);
    const [on, off] = [() => emphasise(name, true), () => emphasise(name, false)];
    return el("label", { onpointerenter: on, onpointerleave: off, onfocusin: on, onfocusout: off }, box,
      svg("svg", { viewBox: "0 0 26 10", "aria-hidden": "true" }, svg("line", { x1: 0, x2: 26, y1: 5, y2: 5, "stroke-width": 2.5, ...styleOf(name) })),
      name, " ", el("i", {}, `${headline} ${pct(auroc(name, headline))}`));
  }));
}

function drawCurves() {
  const shown = Object.keys(state.task.methods).filter((name) => drawn.get(state.task).has(name));
  const on = `on ${taskName(state.task)}`;
  const lines = (kind, plot, xs) => shown.filter((name) => state.task.methods[name][kind]).map((name) => {
    const { mean, low, high } = state.task.methods[name][kind];
    const band = [...points(xs, low, plot.X, plot.Y), ...points(xs, high, plot.X, plot.Y).reverse()];
    return svg("g", { class: "series", "data-method": name }, svg("title", {}, name),
      svg("polygon", { points: band.join(" "), fill: styleOf(name).stroke }),
      svg("polyline", { points: points(xs, mean, plot.X, plot.Y).join(" "), ...styleOf(name) }));
  });
  const drawROC = (width, caption) => {
    const curves = shown.filter((name) => state.task.methods[name].roc);
    if (!curves.length) return shown.length ? "The selected methods have no ROC curves." : "No method is selected.";
    const words = curves.map((name) => `${name} ${state.task.methods[name].headline} ${pct(auroc(name, state.task.methods[name].headline))} %`);
    const plot = chart(width, Math.min(380, width * 0.85), { lo: 0, hi: 1, title: "ID nodes flagged (FPR, %)", format: (x) => fixed(100 * x, 0) },
      { lo: 0, hi: 1, title: "OOD nodes flagged (TPR, %)", format: (x) => fixed(100 * x, 0) }, `ROC curves ${on}, AUROC: ${words.join("; ")}`);
    plot.node.append(svg("line", { class: "chance", x1: plot.X(0), y1: plot.Y(0), x2: plot.X(1), y2: plot.Y(1) }),
      ...lines("roc", plot, Array.from({ length: 101 }, (_, k) => k / 100)));
    caption.append("Numbers after the names above are mean AUROCs in per cent. Dotted: chance.");
    return plot.node;
  };
  const drawRejection = (width, caption) => {
    const curves = shown.filter((name) => state.task.methods[name].rejection);
    if (!curves.length) return shown.length ? "The selected methods do not classify." : "No method is selected.";
    const [least] = range(curves.flatMap((name) => state.task.methods[name].rejection.low));
    const words = curves.map((name) => {
      const { mean } = state.task.methods[name].rejection;
      return `${name} ${pct(mean[0])} % of all and ${pct(mean[25])} % of the more certain half`;
    });
    const plot = chart(width, Math.min(380, width * 0.85), { lo: 0, hi: 1, title: "ID nodes rejected (%)", format: (x) => fixed(100 * x, 0) },
      { lo: Math.max(0, Math.floor(least * 20) / 20), hi: 1, title: "accuracy of the rest (%)", format: (x) => fixed(100 * x, 0) },
      `Accuracy-rejection curves ${on}, accuracy: ${words.join("; ")}`);
    plot.node.append(...lines("rejection", plot, Array.from({ length: 50 }, (_, k) => k / 50)));
    const silent = shown.filter((name) => !state.task.methods[name].rejection);
    caption.append("ID nodes only. The curve rises where the score is higher for misclassified nodes.",
      silent.length ? ` Not drawn, because they do not classify: ${silent.join(", ")}.` : "");
    return plot.node;
  };
  figures($("curve-figures"), [["ROC: OOD detection", drawROC], ["Accuracy when the least certain are rejected", drawRejection]]);
}

/* ---------- one method in depth ---------- */

let whenOpened = []; // updates of the figures that show the open node

function drawDepth() {
  const one = method(), row = rowOf(state.method, state.score);
  const [mean, std] = (row && row.values.auroc) || [null, null];
  const seed = state.task.nodes.missing ? "" : ` Single nodes are of seed ${state.task.nodes.seed}.`;
  const score = SCORES[state.score] ? `${state.score}, ${SCORES[state.score]},` : state.score;
  $("depth-note").textContent = `${state.method} by ${score} on ${taskName(state.task)}: `
    + `AUROC ${pct(mean)}${row && row.runs > 1 ? ` ± ${pct(std)}` : ""} % over ${plural(row ? row.runs : 0, "run")}.${seed}`
    + (one.training.length ? "" : " There is no training curve: it trains no network of its own.");
  for (const [name, runs] of Object.entries(row ? row.marks : {})) {
    $("depth-note").append(" ", el("span", { class: badgeClass(takesOut(row, name)) }, name),
      ` ${runs} of ${plural(row.runs, "run")}: ${meaning(name)}; ${advice(name)}.`);
  }
  $("diagnosis").hidden = !one.diagnosis;
  $("diagnosis").textContent = one.diagnosis
    ? `Diagnosis of ${state.method} (seed ${one.seed}): ${diagnosisWords(one.diagnosis).join("; ")}.` : "";
  const credal = predicted() && predicted().lower;
  const what = credal ? { name: "widest interval", value: widest, lo: 0 }
    : { name: state.score, value: (i) => predicted().scores[state.score][i], lo: BITS.includes(state.score) ? 0 : null };
  const upper = credal ? "Widest interval" : state.score;
  whenOpened = [];
  figures($("depth-figures"), [
    [`${state.score} of ID and OOD nodes`, (width, caption) => drawHistogram(width, caption, one.histograms[state.score])],
    ["Aleatoric and epistemic", drawUncertainties],
    [`${upper} and degree`, (width, caption) => drawAgainst(width, caption, what, "degree")],
    [`${upper} and local homophily`, (width, caption) => drawAgainst(width, caption, what, "homophily")],
    one.training.length ? ["Training loss", (width, caption) => drawTraining(width, caption, "loss", one)] : null,
    one.training.length ? ["Monitor of early stopping", (width, caption) => drawTraining(width, caption, "monitor", one)] : null,
    state.task.classes.length === 3 && (credal || missing()) ? ["Credal sets of single nodes", drawTernary] : null,
  ].filter(Boolean));
  showNumbers(one, row);
}

function drawHistogram(width, caption, histogram) {
  if (!histogram) return `The records have no histogram of ${state.score}.`;
  const sum = (counts) => counts.reduce((a, b) => a + b, 0);
  let { edges, id, ood } = histogram;
  let [lo, hi] = [edges[0], edges[edges.length - 1]];
  if (BITS.includes(state.score) && hi - lo < LEAST) { // all values nearly equal: one bar of the usual width
    const bin = LEAST / id.length;
    [lo, hi] = [Math.max(0, lo - bin), Math.max(0, lo - bin) + LEAST];
    const last = lo + bin * Math.max(1, Math.ceil((edges[edges.length - 1] - lo) / bin));
    [edges, id, ood] = [[lo, Math.min(last, hi)], [sum(id)], [sum(ood)]];
  }
  const share = { id: id.map((n) => n / (sum(id) || 1)), ood: ood.map((n) => n / (sum(ood) || 1)) };
  const plot = chart(width, 250, { lo, hi, title: state.score },
    { lo: 0, hi: range([...share.id, ...share.ood])[1] * 1.05 || 1, title: "share of nodes (%)", format: (y) => num(100 * y) },
    `Histogram of ${state.score} of ${state.method}: ${count(sum(histogram.id))} ID and ${count(sum(histogram.ood))} OOD nodes, `
      + `AUROC ${pct(auroc(state.method, state.score))} %`);
  for (const side of ["id", "ood"]) {
    const steps = share[side].map((y, k) => `V${plot.Y(y).toFixed(1)}H${plot.X(edges[k + 1]).toFixed(1)}`).join("");
    plot.node.append(svg("path", { class: `bars-${side}`, d: `M${plot.X(edges[0])} ${plot.Y(0)}${steps}V${plot.Y(0)}Z` }));
  }
  caption.append(key("id"), key("ood"), `Seed ${method().seed}; shares within each group.`);
  return plot.node;
}

/* Nodes of the random sample as marks, ID below OOD, with a ring around the open node. */
function scatter(plot, x, y) {
  const shown = state.task.nodes.node.map((_, i) => i).filter((i) => state.task.nodes.sample[i] && known(x(i)) && known(y(i)));
  const order = { id: 0, ood: 1, wrong: 2 };
  shown.sort((a, b) => order[kindOf(a)] - order[kindOf(b)]);
  plot.node.append(svg("g", {}, shown.map((i) => mark(kindOf(i), plot.X(x(i)), plot.Y(y(i)), { "data-i": i },
    svg("title", {}, `node ${nodeName(i)}, ${className(i)} (${KINDS[kindOf(i)]}): ${num(x(i))}, ${num(y(i))}`)))));
  const ring = svg("circle", { r: 6, class: "dot open", visibility: "hidden" });
  plot.node.append(ring);
  const update = () => {
    const i = state.open;
    ring.setAttribute("visibility", "hidden");
    if (!known(i) || !known(x(i)) || !known(y(i))) return;
    build(ring, { cx: plot.X(x(i)), cy: plot.Y(y(i)), visibility: "visible", "data-i": i }, []);
  };
  update();
  whenOpened.push(update);
  plot.node.addEventListener("click", (event) => {
    const dot = event.target.closest("[data-i]");
    if (dot) openNode(Number(dot.dataset.i));
  });
  return shown;
}
const sampleNote = (shown) => (shown === state.task.nodes.total ? `All ${count(shown)} test nodes.`
  : `A random sample of ${count(shown)} of ${count(state.task.nodes.total)} test nodes.`);
const keys = () => [key("id"), predicted().prediction ? key("wrong") : null, key("ood")].filter(Boolean);

function drawUncertainties(width, caption) {
  if (missing()) return missing();
  const { AU, EU } = predicted().scores;
  if (!AU || !EU) return `${state.method} has one score: it does not separate aleatoric and epistemic uncertainty.`;
  const mid = (ood) => num(median(EU.filter((_, i) => isOOD(i) === ood && state.task.nodes.sample[i])));
  const plot = chart(width, 250, { lo: 0, hi: Math.max(range(AU)[1] * 1.05, LEAST), title: "AU (bits)" }, { lo: 0, hi: Math.max(range(EU)[1] * 1.05, LEAST), title: "EU (bits)" },
    `Scatter of aleatoric against epistemic uncertainty of ${state.method}: median EU ${mid(false)} bits of ID and ${mid(true)} bits of OOD nodes`);
  const shown = scatter(plot, (i) => AU[i], (i) => EU[i]);
  caption.append(...keys(), sampleNote(shown.length));
  return plot.node;
}

function drawAgainst(width, caption, what, fact) {
  if (missing()) return missing();
  const facts = state.task.nodes.graph && state.task.nodes.graph[fact];
  if (!facts) return "graph.parquet is missing: run the benchmark with --predictions first.";
  const at = (i) => facts[i];
  const there = facts.map((_, i) => i).filter((i) => known(at(i))); // any of these may be open
  const all = there.filter((i) => state.task.nodes.sample[i]);
  if (!all.length) return "None of these nodes has incoming edges.";
  const [low, high] = range(there.map(what.value));
  const axis = fact === "degree" ? { lo: 0, hi: Math.max(range(facts)[1], 3) * 1.1, title: "degree (incoming edges)", log: true }
    : { lo: 0, hi: 1, title: "share of neighbours of the same class" };
  const pad = (high - low) * 0.04 || 0.5;
  const across = known(what.lo) ? { lo: what.lo, hi: Math.max(high * 1.04, LEAST) } : { lo: low - pad, hi: high + pad };
  const plot = chart(width, 250, axis, { ...across, title: what.name },
    `Scatter of ${what.name} of ${state.method} against ${fact === "degree" ? "degree" : "local homophily"}: median ${num(median(all.map(what.value)))}`);
  const shown = scatter(plot, at, what.value);
  for (const kind of ["id", "ood"]) {
    const bins = Array.from({ length: 8 }, () => []);
    const part = (i) => (axis.log ? Math.log10(1 + at(i)) / Math.log10(1 + axis.hi) : at(i));
    for (const i of shown) if (isOOD(i) === (kind === "ood")) bins[Math.min(7, Math.floor(8 * part(i)))].push(i);
    const whole = bins.filter((bin) => bin.length >= 5);
    const line = points(whole.map((bin) => median(bin.map(at))), whole.map((bin) => median(bin.map(what.value))), plot.X, plot.Y);
    if (line.length > 1) plot.node.append(svg("polyline", { class: `median ${kind}`, points: line.join(" ") }));
  }
  const sampled = state.task.nodes.sample.filter(Boolean).length, lonely = sampled - shown.length;
  caption.append(...keys(), sampleNote(sampled), lonely ? ` ${count(lonely)} of them have no incoming edges and are not drawn.` : "",
    " Lines: medians of ID and OOD nodes.");
  return plot.node;
}

function drawTraining(width, caption, kind, one) {
  const sign = kind === "monitor" && ["id_f1", "ood_auroc"].includes(one.config.monitor) ? -1 : 1; // these were turned round, so that less is better
  const curve = (run) => run[kind].map((value) => (known(value) ? sign * value : value));
  const values = one.training.flatMap(curve).filter(known);
  if (!values.length) return "The records hold no such values.";
  const [low, high] = range(values), pad = (high - low) * 0.04 || 0.5;
  const name = kind === "monitor" ? one.config.monitor || "monitor" : "loss";
  const ends = one.training.map((run) => run.epoch[run.epoch.length - 1]);
  const plot = chart(width, 250, { lo: 0, hi: Math.max(...one.training.flatMap((run) => run.epoch), 1), title: "epoch" },
    { lo: low - pad, hi: high + pad, title: name }, `Training curves of ${state.method}: ${name} of ${plural(ends.length, "run")}, `
      + `from ${num(values[0])} at first; the median run ended at epoch ${median(ends)}`);
  for (const run of one.training) {
    plot.node.append(svg("polyline", { class: "run", points: points(run.epoch, curve(run), plot.X, plot.Y).join(" ") }, svg("title", {}, `seed ${run.seed}`)));
  }
  caption.append(`One line a seed: ${some(one.training.map((run) => String(run.seed)), 12)}.`);
  return plot.node;
}

function showNumbers(one, row) {
  const shown = row && row.runs > 1 ? 4 : 1;
  const lines = Object.entries(row ? row.values : {}).map(([name, values]) =>
    el("tr", {}, el("th", { scope: "row" }, name.replaceAll("_", " ")), values.slice(0, shown).map((value) => el("td", { class: "number" }, num(value)))));
  const heads = ["Mean", "Std", "95 % from", "to"].slice(0, shown).map((name) => [shown > 1 ? name : "Value", true]);
  $("numbers").replaceChildren(plainTable([["Number"], ...heads], lines));
  $("config").textContent = JSON.stringify(one.config, null, 2);
}

/* ---------- credal sets of three classes in the triangle ---------- */

/* Corners of {p : lower <= p <= upper, sum p = 1} around their middle: on an edge two of the three are at a bound. */
function corners(lower, upper) {
  const list = [];
  for (let free = 0; free < 3; free += 1) {
    const a = (free + 1) % 3, b = (free + 2) % 3;
    for (const x of [lower[a], upper[a]]) {
      for (const y of [lower[b], upper[b]]) {
        const rest = 1 - x - y, p = [];
        p[a] = x; p[b] = y; p[free] = rest;
        if (rest >= lower[free] - 1e-3 && rest <= upper[free] + 1e-3) list.push(p); // bounds are rounded
      }
    }
  }
  const flat = (p) => [p[0] * 0.5 + p[2], p[0] * Math.sqrt(0.75)];
  const middle = [0, 1].map((k) => list.reduce((sum, p) => sum + flat(p)[k], 0) / list.length);
  const angle = (p) => Math.atan2(flat(p)[1] - middle[1], flat(p)[0] - middle[0]);
  return list.map(flat).map((point, k) => [angle(list[k]), point]).sort(([a], [b]) => a - b).map(([, point]) => point);
}

function ternaryNodes() {
  const { scores, picks } = predicted(), nodes = state.task.nodes, all = nodes.node.map((_, i) => i);
  const least = (places, value) => places.reduce((best, i) => (best === null || value(i) < value(best) ? i : best), null);
  const ood = all.filter((i) => isOOD(i) && nodes.sample[i]);
  const middle = ood.length ? median(ood.map((i) => scores.EU[i])) : 0;
  return [["most certain", least(all, (i) => scores.TU[i])], ["most aleatoric", picks.aleatoric[0]], ["most epistemic", picks.epistemic[0]],
    ["OOD of median EU", least(ood, (i) => Math.abs(scores.EU[i] - middle))]].filter(([, i]) => known(i));
}

function drawTernary(width, caption) {
  if (missing()) return missing();
  const height = 250, side = Math.min(width - 40, (height - 46) / Math.sqrt(0.75)), left = (width - side) / 2, base = height - 24;
  const at = ([x, y]) => `${(left + side * x).toFixed(1)},${(base - side * y).toFixed(1)}`;
  const chosen = ternaryNodes();
  const words = chosen.map(([role, i]) => `${role} node ${nodeName(i)}, widest interval ${pct(widest(i))} %`);
  const node = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", class: "ternary",
    "aria-label": `Credal sets in the triangle of three classes: ${words.join("; ")}` });
  const line = (from, to, name) => node.append(svg("polyline", { class: name, points: `${at(from)} ${at(to)}` }));
  for (const t of [0.25, 0.5, 0.75]) { // lines of equal probability of one class
    const [p, q, r] = [[[t, 1 - t, 0], [t, 0, 1 - t]], [[1 - t, t, 0], [0, t, 1 - t]], [[1 - t, 0, t], [0, 1 - t, t]]];
    for (const [from, to] of [p, q, r]) line([from[0] / 2 + from[2], from[0] * Math.sqrt(0.75)], [to[0] / 2 + to[2], to[0] * Math.sqrt(0.75)], "grid");
  }
  const ends = [[0.5, Math.sqrt(0.75)], [0, 0], [1, 0]];
  node.append(svg("polygon", { class: "axis", points: ends.map(at).join(" ") }));
  state.task.classes.forEach((name, k) => {
    const [x, y] = at(ends[k]).split(",").map(Number);
    const anchor = ["middle", "start", "end"][k];
    const shift = k === 0 ? 0 : (k === 1 ? -1 : 1) * Math.min(16, left - 2);
    node.append(svg("text", { class: "strong", x: x + shift, y: y + (k ? 17 : -8), "text-anchor": anchor }, short(name, 20), svg("title", {}, name)));
  });
  const layer = svg("g", {}), list = el("ul", {});
  node.append(layer);
  const update = () => {
    const shown = known(state.open) ? [...chosen, ["open", state.open]] : chosen;
    const drawSet = ([, i], k) => {
      const list = corners(predicted().lower[i], predicted().upper[i]), colour = `var(--s${k})`;
      const [cx, cy] = at([0, 1].map((axis) => list.reduce((sum, point) => sum + point[axis], 0) / list.length)).split(",");
      return [svg("polygon", { class: "set", "data-node": nodeName(i), points: list.map(at).join(" "), fill: colour, stroke: colour }),
        svg("circle", { cx, cy, r: 3, fill: colour })]; // keeps the smallest sets visible
    };
    const entry = ([role, i], k) => el("li", {}, svg("svg", { viewBox: "0 0 14 12", "aria-hidden": "true" },
      svg("rect", { class: "set", x: 2, y: 2, width: 10, height: 8, fill: `var(--s${k})`, stroke: `var(--s${k})` })),
      `${role}: `, el("button", { type: "button", onclick: () => openNode(i) }, `node ${nodeName(i)}`),
      ` ${short(className(i), 24)}${isOOD(i) ? ", OOD" : isWrong(i) ? ", wrong" : ""}`);
    layer.replaceChildren(...shown.flatMap(drawSet));
    list.replaceChildren(...[...list.children].slice(0, chosen.length), ...shown.map(entry).slice(Math.min(list.children.length, chosen.length)));
  };
  update();
  whenOpened.push(update);
  caption.append(list, "A polygon contains all distributions within the bounds; the convex hull of an ensemble lies within it.");
  return node;
}
