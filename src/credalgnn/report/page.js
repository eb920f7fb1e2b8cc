"use strict";
/* Shows the JSON that page.py has written. Text from it reaches the page as text only (text nodes and attributes). */
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const PAGE = 25; // rows of the node table
  const BARS = 12; // classes in a node's panel
  const DRAWN = ["credal-lj", "credal-ensemble", "classical-ensemble", "energy", "feature-sum"]; // at first, if there
  const COLOURS = 7;

  const PROTOCOLS = {
    sealed: "nothing was chosen by an OOD node or by a test node",
    paper: "early stopping and tuning may look at the OOD nodes of the validation part",
  };
  const SCORES = {
    EU: "epistemic uncertainty (bits)", AU: "aleatoric uncertainty (bits)", TU: "total uncertainty (bits)",
    msp: "1 − largest probability", entropy: "entropy (bits)",
  };
  // Columns of results: key, label, better (1 larger, -1 smaller), format, meaning.
  const METRICS = [
    ["auroc", "AUROC %", 1, pct, "how well the score tells OOD from ID test nodes: the chance that an OOD node scores higher; 50 is guessing"],
    ["aupr", "AUPR %", 1, pct, "area under precision and recall, OOD nodes being positive; the share of OOD nodes is guessing"],
    ["fpr95", "FPR95 %", -1, pct, "share of ID nodes raised as OOD when 95 % of the OOD nodes are caught"],
    ["accuracy", "Acc. %", 1, pct, "accuracy on ID nodes"],
    ["macro_f1", "F1 %", 1, pct, "macro F1: the mean over the classes of F1 on ID nodes"],
    ["nll", "NLL", -1, (x) => fixed(x, 3), "negative log-likelihood of the true class in nats, ID nodes"],
    ["ece", "ECE %", -1, pct, "expected calibration error, 15 bins, ID nodes"],
    ["aurc", "AURC %", -1, pct, "mean error rate of the i most certain ID nodes over all i: does the score know where the classifier errs?"],
    ["width", "Width %", 0, pct, "mean width of all probability intervals of the test nodes"],
  ];

  /* ---------- small helpers ---------- */

  function build(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.flat().filter((child) => child !== null && child !== undefined));
    return node;
  }
  const el = (tag, attributes, ...children) => build(document.createElement(tag), attributes, children);
  const svg = (tag, attributes, ...children) =>
    build(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

  const known = (x) => x !== null && x !== undefined;
  const minus = (text) => text.replace("-", "−");
  function fixed(x, digits) { return known(x) ? minus(x.toFixed(digits)) : "–"; }
  function pct(x) { return x > 0 && x < 0.0005 ? "<0.1" : fixed(known(x) ? 100 * x : null, 1); }
  const count = (n) => n.toLocaleString("en-US");
  const plural = (n, one) => `${count(n)} ${one}${n === 1 ? "" : "s"}`;
  function num(x) {
    if (!known(x)) return "–";
    if (x !== 0 && (Math.abs(x) < 1e-3 || Math.abs(x) >= 1e6)) return minus(Number(x.toPrecision(2)).toExponential());
    return minus(Math.abs(x) >= 1000 ? count(Math.round(x)) : String(Number(x.toPrecision(3))));
  }
  function aligned(values) { // one number of digits for a whole column
    const [low, high] = range(values), size = Math.max(Math.abs(low), Math.abs(high));
    return (x) => fixed(x, size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 3);
  }
  function some(names, most) {
    const rest = names.length - most;
    return names.slice(0, most).join(", ") + (rest > 0 ? ` and ${rest} more` : "");
  }
  const short = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);
  const range = (values) => values.filter(known).reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
  const median = (values) => [...values].sort((a, b) => a - b)[Math.floor((values.length - 1) / 2)];

  /* ---------- what is chosen ---------- */

  const state = { task: null, method: null, score: null, filter: "all", page: 0, open: null, nodeSort: {}, rowSort: {} };
  const drawn = new Map(); // task -> set of methods with curves
  const method = () => state.task.methods[state.method];
  const predicted = () => (state.task.nodes.methods || {})[state.method];
  const rowOf = (name, score) => state.task.rows.find((row) => row.method === name && row.score === score);
  const auroc = (name, score) => ((rowOf(name, score) || { values: {} }).values.auroc || [null])[0];
  const meaning = (mark) => data.marks[mark] || "a mark this page does not know";
  const taskName = (task) =>
    data.tasks.filter((other) => other.dataset === task.dataset).length > 1 ? `${task.dataset} (${task.protocol})` : task.dataset;
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
  const widest = (i) => Math.max(...predicted().upper[i].map((up, k) => up - predicted().lower[i][k]));
  function missing() {
    if (state.task.nodes.missing) return state.task.nodes.missing;
    return predicted() ? null : `There are no predictions per node of ${state.method} for the run that is shown (seed ${state.task.nodes.seed}).`;
  }
  const styleOf = (name) => { // a colour and a dash of its own, the same in every figure
    const names = Object.keys(state.task.methods);
    const at = [...DRAWN.filter((one) => names.includes(one)), ...names.filter((one) => !DRAWN.includes(one))].indexOf(name);
    return { stroke: `var(--s${at % COLOURS})`, "stroke-dasharray": [null, "7 3", "2 3"][Math.floor(at / COLOURS) % 3] };
  };

  /* ---------- tables that sort ---------- */

  function sortable(box, caption, columns, sort, changed) {
    const heads = columns.map((column) =>
      el("th", { scope: "col", class: column.number ? "number" : null },
        el("button", { type: "button", title: column.title, onclick: () => {
          const first = column.better === 1 || column.large ? "descending" : "ascending";
          const turned = sort.order === "ascending" ? "descending" : "ascending";
          sort.order = sort.key === column.key ? turned : first;
          sort.key = column.key;
          changed();
        } }, column.label)));
    const body = el("tbody", {});
    box.replaceChildren(el("table", {}, el("caption", { class: "hidden" }, caption), el("thead", {}, el("tr", {}, heads)), body));
    return {
      show(rows) {
        columns.forEach((column, k) => heads[k].setAttribute("aria-sort", sort.key === column.key ? sort.order : "none"));
        body.replaceChildren(...rows);
      },
      sorted(items) {
        const column = columns.find((one) => one.key === sort.key);
        if (!column) return items;
        const sign = sort.order === "descending" ? -1 : 1;
        return items.map((item) => [column.value(item), item]).sort(([a], [b]) => {
          if (!known(a) || !known(b)) return known(b) - known(a); // what is not there comes last, whatever the order
          return sign * (typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b);
        }).map(([, item]) => item);
      },
    };
  }

  const plainTable = (heads, rows) => el("table", {},
    el("thead", {}, el("tr", {}, heads.map(([name, number]) => el("th", { scope: "col", class: number ? "number" : null }, name)))),
    el("tbody", {}, rows));

  /* ---------- header ---------- */

  function showHeader() {
    const fact = (name, ...content) => [el("dt", {}, name), el("dd", {}, ...content)];
    const runs = data.tasks.flatMap((task) => task.rows.filter((row) => row.headline)).reduce((sum, row) => sum + row.runs, 0);
    const methods = [...new Set(data.tasks.flatMap((task) => Object.keys(task.methods)))];
    const seeds = [...new Set(data.tasks.flatMap((task) => task.seeds))].sort((a, b) => a - b);
    const protocols = [...new Set(data.tasks.map((task) => task.protocol))];
    $("lead").textContent = data.tasks.length
      ? "Which method notices nodes of classes it has never seen? "
        + `${plural(methods.length, "method")} on ${plural(data.tasks.length, "data set")}, ${plural(runs, "run")}.`
      : "No run has ended well, so there is nothing to compare.";
    $("compared").append(
      ...data.tasks.flatMap((task) => fact(taskName(task), factsOf(task))),
      ...protocols.flatMap((name) => fact("Protocol", `${name}: ${PROTOCOLS[name] || "not known to this page"}`)),
      ...fact("Methods", methods.join(", ") || "none"),
      ...fact(seeds.length === 1 ? "Seed" : "Seeds", some(seeds.map(String), 12) || "none"),
      ...fact("Made with", Object.entries(data.versions).map(([name, found]) => `${name} ${found.join(" and ")}`).join(", ") || "unknown"));
    if (data.failed.length) {
      $("failed").append(el("section", { class: "failed", "aria-label": "Failed runs" },
        el("h2", {}, `${plural(data.failed.length, "run")} failed`),
        el("ul", {}, data.failed.map((run) => el("li", {},
          el("strong", {}, `${run.dataset}, ${run.method}, seed ${run.seed} `), `(${run.protocol})`,
          el("pre", {}, run.error || "no message"))))));
    }
    $("footer").append(el("p", {}, (data.finished ? `Last run ended ${data.finished.slice(0, 16).replace("T", " ")} UTC. ` : "")
      + "This file holds all its data and asks the network for nothing."));
    $("glossary").append(...METRICS.flatMap(([, label, , , meaning]) => [el("dt", {}, label), el("dd", {}, meaning)]));
  }

  function factsOf(task) {
    const { test_id: id, test_ood: ood } = task.counts;
    const nodes = known(id) && known(ood) ? `; ${count(id)} ID and ${count(ood)} OOD test nodes` : "";
    return `${task.classes.length} ID classes (${some(task.classes, 8)}), OOD: ${some(task.ood, 8)}${nodes}`;
  }

  /* ---------- results ---------- */

  function showResults() {
    const task = state.task;
    const columns = [
      { key: "method", label: "Method", value: (row) => row.method },
      { key: "score", label: "Score", value: (row) => row.score },
      ...METRICS.map(([key, label, better, format, title]) => (
        { key, label, better, format, title, number: true, value: (row) => (row.values[key] || [null])[0] })),
      { key: "marks", label: "Marks", value: (row) => Object.keys(row.marks).join(" ") || null },
    ];
    const scale = range(task.rows.flatMap((row) => row.values.auroc || []).filter((_, k) => k % 4 !== 1));
    const table = sortable($("results-box"), `Results on ${taskName(task)}`, columns, state.rowSort, refresh);
    function refresh() {
      const rows = task.rows.filter((row) => row.headline || !$("headline-only").checked);
      table.show(table.sorted(rows).map((row) => {
        const marked = Object.keys(row.marks).length > 0;
        const classes = [row.rank, row.trivial && "trivial", marked && "marked", !row.headline && "second"].filter(Boolean).join(" ");
        return el("tr", { class: classes, "data-method": row.method, "data-score": row.score },
          el("th", { scope: "row" }, row.method),
          el("td", {}, row.score),
          columns.slice(2, -1).map((column) => resultCell(row, column, scale)),
          el("td", {}, badges(row)));
      }));
    }
    $("headline-only").onchange = refresh;
    refresh();
    $("task-facts").textContent = `${taskName(task)}: ${factsOf(task)}. ${plural(task.seeds.length, "seed")}.`;
    showResultsLegend(task);
  }

  function resultCell(row, column, scale) {
    const value = row.values[column.key];
    if (!value) return el("td", { class: `number ${column.key}` }, "–");
    const [middle, spread, from, to] = value.map(column.format);
    const title = `${middle}, standard deviation ${spread}, 95 % interval of the mean ${from} to ${to}, ${plural(row.runs, "run")}`;
    if (column.key !== "auroc") return el("td", { class: "number", title }, middle);
    const dagger = el("span", { class: "dagger" }, row.rank === "tied" ? "†" : "");
    return el("td", { class: "number auroc", title }, middle, dagger,
      el("span", { class: "std" }, ` ± ${fixed(100 * value[1], 1)}`), intervalBar(value, scale));
  }

  function intervalBar([mean, , low, high], [from, to]) {
    const x = (value) => 3 + (82 * (value - from)) / (to - from || 1);
    return svg("svg", { viewBox: "0 0 88 14", role: "img", "aria-label": `95 % interval ${pct(low)} to ${pct(high)}` },
      svg("line", { class: "grid", x1: 3, x2: 85, y1: 7, y2: 7 }),
      from <= 0.5 ? svg("line", { class: "chance", x1: x(0.5), x2: x(0.5), y1: 0, y2: 14 }) : null,
      svg("rect", { class: "interval", x: x(low), width: Math.max(x(high) - x(low), 0.5), y: 4, height: 6, opacity: 0.55 }),
      svg("line", { class: "point", x1: x(mean), x2: x(mean), y1: 1.5, y2: 12.5 }));
  }

  function badges(row) {
    const found = Object.entries(row.marks).map(([name, runs]) =>
      el("span", { class: "badge", title: `${meaning(name)} (${runs} of ${plural(row.runs, "run")})` },
        runs === row.runs ? name : `${name} ${runs}/${row.runs}`));
    if (row.failed) found.push(el("span", { class: "badge plain", title: "runs that ended with an error" }, `${row.failed} failed`));
    return found;
  }

  function showResultsLegend(task) {
    const marks = [...new Set(task.rows.flatMap((row) => Object.keys(row.marks)))];
    const has = (test) => task.rows.some(test);
    const line = (...content) => el("p", {}, ...content);
    $("results-legend").replaceChildren(...[
      line("AUROC: mean ± standard deviation over the runs; the bar is the 95 % bootstrap interval of the mean on one scale",
        " for all rows, a dotted line is at 50 %, guessing."),
      has((row) => row.rank === "best") ? line(el("strong", {}, "Bold"), ": the best AUROC of all rows without marks.") : null,
      has((row) => row.rank === "tied") ? line("† not significantly worse than the best (one-sided Wilcoxon signed-rank test over",
        " the seeds, Holm-corrected, 5 %).") : null,
      has((row) => row.trivial) ? line(el("em", {}, "Italic"), ": needs no model; whatever is trained should beat it.") : null,
      ...marks.map((name) => line(el("span", { class: "badge" }, name), ` ${meaning(name)}.`)),
      marks.length ? line("Rows with marks are shown, and not ranked.") : null,
    ].filter(Boolean));
  }

  /* ---------- drawing ---------- */

  function ticks(lo, hi, wanted) {
    const raw = (hi - lo) / wanted, power = 10 ** Math.floor(Math.log10(raw));
    const step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw * 0.999);
    const found = [];
    for (let k = Math.ceil(lo / step - 1e-9); k * step <= hi + step * 1e-6; k += 1) found.push(Number((k * step).toPrecision(12)));
    return found;
  }

  /* An empty chart. An axis is {lo, hi, title, format, log}; log axes show log(1 + value), so that 0 has a place. */
  function chart(width, height, x, y, label) {
    const bend = (axis, value) => (axis.log ? Math.log10(1 + value) : value);
    const place = (axis, value) => (bend(axis, value) - bend(axis, axis.lo)) / (bend(axis, axis.hi) - bend(axis, axis.lo) || 1);
    const marksOf = (axis, wanted) => (axis.log ? [0, 1, 3, 10, 30, 100, 300, 1e3, 3e3, 1e4, 1e5] : ticks(axis.lo, axis.hi, wanted))
      .filter((value) => value >= axis.lo && value <= axis.hi);
    const longest = Math.max(...marksOf(y, 5).map((value) => (y.format || num)(value).length));
    const left = 27 + 7 * Math.max(longest, 3), right = 8, top = 8, bottom = 40;
    const w = width - left - right, h = height - top - bottom;
    const X = (value) => left + w * place(x, value);
    const Y = (value) => top + h * (1 - place(y, value));
    const node = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label,
      "data-frame": [left, top, w, h].join(" "), "data-domain": [x.lo, x.hi, y.lo, y.hi].join(" ") });
    for (const value of marksOf(y, 5)) {
      node.append(svg("line", { class: "grid", x1: left, x2: left + w, y1: Y(value), y2: Y(value) }),
        svg("text", { x: left - 6, y: Y(value) + 4, "text-anchor": "end" }, (y.format || num)(value)));
    }
    for (const value of marksOf(x, Math.min(6, w / 50))) {
      node.append(svg("line", { class: "axis", x1: X(value), x2: X(value), y1: top + h, y2: top + h + 4 }),
        svg("text", { x: X(value), y: top + h + 17, "text-anchor": "middle" }, (x.format || num)(value)));
    }
    node.append(svg("path", { class: "axis", d: `M${left} ${top}V${top + h}H${left + w}` }),
      svg("text", { class: "strong", x: left + w / 2, y: height - 6, "text-anchor": "middle" }, x.title),
      svg("text", { class: "strong", transform: `translate(11 ${top + h / 2}) rotate(-90)`, "text-anchor": "middle" }, y.title));
    return { node, X, Y };
  }

  const points = (xs, ys, X, Y) => xs.map((x, k) => (known(ys[k]) ? `${X(x).toFixed(2)},${Y(ys[k]).toFixed(2)}` : null)).filter(Boolean);

  /* Figures in a grid: ``draw(width, caption)`` returns an SVG, or a sentence that says why there is none. */
  function figures(box, wanted) {
    const shells = wanted.map(([title]) => el("figure", {}, el("h3", {}, title)));
    box.replaceChildren(...shells);
    const widths = shells.map((shell) => shell.clientWidth || 340);
    wanted.forEach(([, draw], k) => {
      const caption = el("figcaption", {});
      const made = draw(widths[k], caption);
      shells[k].append(...(typeof made === "string" ? [el("p", { class: "empty" }, made)] : [made, caption]));
    });
  }

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
      return el("label", { onpointerenter: () => emphasise(name, true), onpointerleave: () => emphasise(name, false) }, box,
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
      const found = shown.filter((name) => state.task.methods[name].roc);
      if (!found.length) return shown.length ? "The chosen methods have no ROC curves." : "No method is chosen.";
      const words = found.map((name) => `${name} ${state.task.methods[name].headline} ${pct(auroc(name, state.task.methods[name].headline))} %`);
      const plot = chart(width, Math.min(380, width * 0.85), { lo: 0, hi: 1, title: "ID nodes raised (FPR, %)", format: (x) => fixed(100 * x, 0) },
        { lo: 0, hi: 1, title: "OOD nodes caught (TPR, %)", format: (x) => fixed(100 * x, 0) }, `ROC curves ${on}, AUROC: ${words.join("; ")}`);
      plot.node.append(svg("line", { class: "chance", x1: plot.X(0), y1: plot.Y(0), x2: plot.X(1), y2: plot.Y(1) }),
        ...lines("roc", plot, Array.from({ length: 101 }, (_, k) => k / 100)));
      caption.append("Numbers beside the names above are mean AUROCs in per cent. Dotted: guessing.");
      return plot.node;
    };
    const drawRejection = (width, caption) => {
      const found = shown.filter((name) => state.task.methods[name].rejection);
      if (!found.length) return shown.length ? "The chosen methods do not classify." : "No method is chosen.";
      const [least] = range(found.flatMap((name) => state.task.methods[name].rejection.low));
      const words = found.map((name) => {
        const { mean } = state.task.methods[name].rejection;
        return `${name} ${pct(mean[0])} % of all and ${pct(mean[25])} % of the surer half`;
      });
      const plot = chart(width, Math.min(380, width * 0.85), { lo: 0, hi: 1, title: "ID nodes rejected (%)", format: (x) => fixed(100 * x, 0) },
        { lo: Math.max(0, Math.floor(least * 20) / 20), hi: 1, title: "accuracy of the rest (%)", format: (x) => fixed(100 * x, 0) },
        `Accuracy-rejection curves ${on}, right: ${words.join("; ")}`);
      plot.node.append(...lines("rejection", plot, Array.from({ length: 50 }, (_, k) => k / 50)));
      const silent = shown.filter((name) => !state.task.methods[name].rejection);
      caption.append("ID nodes only. A score that knows where its classifier errs rises to the right.",
        silent.length ? ` Not drawn, because they do not classify: ${silent.join(", ")}.` : "");
      return plot.node;
    };
    figures($("curve-figures"), [["ROC: finding OOD nodes", drawROC], ["Accuracy when the least certain are rejected", drawRejection]]);
  }

  /* ---------- one method in depth ---------- */

  let whenOpened = []; // figures that show the opened node

  function drawDepth() {
    const one = method(), row = rowOf(state.method, state.score);
    const [mean, std] = (row && row.values.auroc) || [null, null];
    const seed = state.task.nodes.missing ? "" : ` Single nodes are of seed ${state.task.nodes.seed}.`;
    const score = SCORES[state.score] ? `${state.score}, ${SCORES[state.score]},` : state.score;
    $("depth-note").textContent = `${state.method} by ${score} on ${taskName(state.task)}: `
      + `AUROC ${pct(mean)} ± ${pct(std)} % over ${plural(row ? row.runs : 0, "run")}.${seed}`;
    for (const [name, runs] of Object.entries(row ? row.marks : {})) {
      $("depth-note").append(" ", el("span", { class: "badge" }, name), ` ${runs} of ${plural(row.runs, "run")}: ${meaning(name)}.`);
    }
    const credal = predicted() && predicted().lower;
    const what = credal ? { name: "widest interval", value: widest, lo: 0 }
      : { name: state.score, value: (i) => predicted().scores[state.score][i] };
    const upper = credal ? "Widest interval" : state.score;
    whenOpened = [];
    figures($("depth-figures"), [
      [`${state.score} of ID and OOD nodes`, (width, caption) => drawHistogram(width, caption, one.histograms[state.score])],
      ["Aleatoric and epistemic", drawUncertainties],
      [`${upper} and degree`, (width, caption) => drawAgainst(width, caption, what, "degree")],
      [`${upper} and local homophily`, (width, caption) => drawAgainst(width, caption, what, "homophily")],
      ["Training loss", (width, caption) => drawTraining(width, caption, "loss", one)],
      ["What early stopping watched", (width, caption) => drawTraining(width, caption, "monitor", one)],
      state.task.classes.length === 3 && (credal || missing()) ? ["Credal sets of single nodes", drawTernary] : null,
    ].filter(Boolean));
    showNumbers(one, row);
  }

  function drawHistogram(width, caption, found) {
    if (!found) return `The records hold no histogram of ${state.score}.`;
    const sum = (counts) => counts.reduce((a, b) => a + b, 0);
    const share = { id: found.id.map((n) => n / (sum(found.id) || 1)), ood: found.ood.map((n) => n / (sum(found.ood) || 1)) };
    const { edges } = found;
    const plot = chart(width, 250, { lo: edges[0], hi: edges[edges.length - 1], title: state.score },
      { lo: 0, hi: range([...share.id, ...share.ood])[1] * 1.05 || 1, title: "share of nodes (%)", format: (y) => num(100 * y) },
      `Histogram of ${state.score} of ${state.method}: ${count(sum(found.id))} ID against ${count(sum(found.ood))} OOD nodes, `
        + `AUROC ${pct(auroc(state.method, state.score))} %`);
    for (const side of ["id", "ood"]) {
      const steps = share[side].map((y, k) => `V${plot.Y(y).toFixed(1)}H${plot.X(edges[k + 1]).toFixed(1)}`).join("");
      plot.node.append(svg("path", { class: `bars-${side}`, d: `M${plot.X(edges[0])} ${plot.Y(0)}${steps}V${plot.Y(0)}Z` }));
    }
    caption.append(key("id"), key("ood"), `${plural(found.runs, "run")}${found.runs > 1 ? " pooled" : ""}; shares within each group.`);
    return plot.node;
  }

  /* Nodes of the random sample as marks, ID below OOD; the opened node gets a ring. */
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
    if (!AU || !EU) return `${state.method} gives one score: it does not tell aleatoric from epistemic uncertainty.`;
    const mid = (ood) => num(median(EU.filter((_, i) => isOOD(i) === ood && state.task.nodes.sample[i])));
    const plot = chart(width, 250, { lo: 0, hi: range(AU)[1] * 1.05 || 1, title: "AU (bits)" }, { lo: 0, hi: range(EU)[1] * 1.05 || 1, title: "EU (bits)" },
      `Scatter of aleatoric against epistemic uncertainty of ${state.method}: median EU ${mid(false)} bits of ID and ${mid(true)} bits of OOD nodes`);
    const shown = scatter(plot, (i) => AU[i], (i) => EU[i]);
    caption.append(...keys(), sampleNote(shown.length));
    return plot.node;
  }

  function drawAgainst(width, caption, what, fact) {
    if (missing()) return missing();
    const facts = state.task.nodes.graph && state.task.nodes.graph[fact];
    if (!facts) return "The facts about the graph (graph.parquet) are not there: run the benchmark with --predictions first.";
    const at = (i) => facts[i];
    const all = facts.map((_, i) => i).filter((i) => state.task.nodes.sample[i] && known(at(i)));
    if (!all.length) return "None of these nodes has neighbours.";
    const [low, high] = range(all.map(what.value));
    const axis = fact === "degree" ? { lo: 0, hi: Math.max(range(facts)[1], 3) * 1.1, title: "degree", log: true }
      : { lo: 0, hi: 1, title: "share of neighbours of the same class" };
    const pad = (high - low) * 0.04 || 0.5;
    const plot = chart(width, 250, axis, { lo: known(what.lo) ? what.lo : low - pad, hi: high + pad, title: what.name },
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
    caption.append(...keys(), `${sampleNote(shown.length)} Lines: medians of ID and OOD nodes.`);
    return plot.node;
  }

  function drawTraining(width, caption, kind, one) {
    if (!one.training.length) return `${state.method} trains no network of its own.`;
    const values = one.training.flatMap((run) => run[kind]).filter(known);
    if (!values.length) return "The records hold no such values.";
    const [low, high] = range(values), pad = (high - low) * 0.04 || 0.5;
    const name = kind === "monitor" ? one.config.monitor || "monitor" : "loss";
    const ends = one.training.map((run) => run.epoch[run.epoch.length - 1]);
    const plot = chart(width, 250, { lo: 0, hi: Math.max(...one.training.flatMap((run) => run.epoch), 1), title: "epoch" },
      { lo: low - pad, hi: high + pad, title: name }, `Training curves of ${state.method}: ${name} of ${plural(ends.length, "run")}, `
        + `from ${num(values[0])} at first; the median run ended at epoch ${median(ends)}`);
    for (const run of one.training) {
      plot.node.append(svg("polyline", { class: "run", points: points(run.epoch, run[kind], plot.X, plot.Y).join(" ") }, svg("title", {}, `seed ${run.seed}`)));
    }
    caption.append(`One line a seed: ${some(one.training.map((run) => String(run.seed)), 12)}.`);
    return plot.node;
  }

  function showNumbers(one, row) {
    const lines = Object.entries(row ? row.values : {}).map(([name, [mean, std]]) =>
      el("tr", {}, el("th", { scope: "row" }, name.replaceAll("_", " ")), el("td", { class: "number" }, num(mean)), el("td", { class: "number" }, num(std))));
    $("numbers").replaceChildren(plainTable([["Number"], ["Mean", true], ["Std", true]], lines));
    $("config").textContent = JSON.stringify(one.config, null, 2);
  }

  /* ---------- credal sets of three classes in the triangle ---------- */

  /* Corners of {p : lower <= p <= upper, sum p = 1} around their middle: on an edge two of the three are at a bound. */
  function corners(lower, upper) {
    const found = [];
    for (let free = 0; free < 3; free += 1) {
      const a = (free + 1) % 3, b = (free + 2) % 3;
      for (const x of [lower[a], upper[a]]) {
        for (const y of [lower[b], upper[b]]) {
          const rest = 1 - x - y, p = [];
          p[a] = x; p[b] = y; p[free] = rest;
          if (rest >= lower[free] - 1e-3 && rest <= upper[free] + 1e-3) found.push(p); // bounds are rounded
        }
      }
    }
    const flat = (p) => [p[0] * 0.5 + p[2], p[0] * Math.sqrt(0.75)];
    const middle = [0, 1].map((k) => found.reduce((sum, p) => sum + flat(p)[k], 0) / found.length);
    const angle = (p) => Math.atan2(flat(p)[1] - middle[1], flat(p)[0] - middle[0]);
    return found.map(flat).map((point, k) => [angle(found[k]), point]).sort(([a], [b]) => a - b).map(([, point]) => point);
  }

  function ternaryNodes() {
    const { scores, picks } = predicted(), nodes = state.task.nodes, all = nodes.node.map((_, i) => i);
    const least = (places, value) => places.reduce((best, i) => (best === null || value(i) < value(best) ? i : best), null);
    const ood = all.filter((i) => isOOD(i) && nodes.sample[i]);
    const middle = ood.length ? median(ood.map((i) => scores.EU[i])) : 0;
    return [["surest", least(all, (i) => scores.TU[i])], ["most aleatoric", picks.aleatoric[0]], ["most epistemic", picks.epistemic[0]],
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
      const shown = known(state.open) ? [...chosen, ["opened", state.open]] : chosen;
      const drawSet = ([, i], k) => {
        const found = corners(predicted().lower[i], predicted().upper[i]), colour = `var(--s${k})`;
        const [cx, cy] = at([0, 1].map((axis) => found.reduce((sum, point) => sum + point[axis], 0) / found.length)).split(",");
        return [svg("polygon", { class: "set", "data-node": nodeName(i), points: found.map(at).join(" "), fill: colour, stroke: colour }),
          svg("circle", { cx, cy, r: 3, fill: colour })]; // the smallest sets are seen, too
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
    caption.append(list, "A polygon holds all distributions between the bounds; the hull of an ensemble lies within it.");
    return node;
  }

  /* ---------- the table of nodes ---------- */

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
      ["wrong", "Wrong and sure", () => `The ${n("wrong")} of known classes with the least ${sure} among those classified wrongly.`],
      ["ood", "OOD and sure", () => `The ${n("ood")} of classes never seen with the least ${sure}.`],
    ].filter(([name]) => name === "all" || picks[name]);
  }

  function showNodes() {
    const gap = missing(), nodes = state.task.nodes;
    $("nodes-body").hidden = Boolean(gap);
    if (gap) { $("nodes-note").textContent = gap; return; }
    const shown = nodes.node.length;
    const whole = shown === nodes.total;
    $("nodes-note").textContent = `${whole ? "All " : `${count(shown)} of `}${count(nodes.total)} test nodes of seed ${nodes.seed}, `
      + `as ${state.method} sees them${whole ? "" : ": the most extreme ones for each method and a random sample"}. Open a node to see why.`;
    const { scores, prediction, lower } = predicted(), graph = nodes.graph;
    const columns = [
      { key: "node", label: "Node", value: nodeName },
      { key: "class", label: "Class", value: className },
      { key: "kind", label: "Kind", value: (i) => KINDS[kindOf(i)] },
      prediction && { key: "prediction", label: "Predicted", value: (i) => state.task.classes[prediction[i]] },
      ...Object.entries(scores).map(([name, values]) => (
        { key: `score ${name}`, label: name, title: SCORES[name], number: true, large: true, value: (i) => values[i], text: aligned(values) })),
      lower && { key: "widest", label: "Widest %", title: "width of the widest interval", number: true, large: true, value: widest, text: pct },
      graph && { key: "degree", label: "Degree", number: true, large: true, value: (i) => graph.degree[i], text: num },
      graph && { key: "homophily", label: "Homophily %", title: "share of the neighbours that have the node's own class",
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
    const found = nodeTable.sorted(places.filter(fits));
    const pages = Math.max(1, Math.ceil(found.length / PAGE));
    state.page = Math.min(state.page, pages - 1);
    const from = state.page * PAGE, visible = found.slice(from, from + PAGE);
    nodeTable.show(visible.map((i) => el("tr", { "data-node": nodeName(i), onclick: (event) => {
      event.currentTarget.querySelector("button").focus();
      openNode(i);
    } }, nodeTable.columns.map((column) => nodeCell(column, i)))));
    for (const button of $("filters").children) button.setAttribute("aria-pressed", String(button.dataset.filter === state.filter));
    const [, , note] = filters().find(([name]) => name === state.filter);
    $("filter-note").textContent = (note ? note() : "") + (words
      ? ` ${plural(found.length, "node")} with a number that begins with, or a class that contains, “${$("find").value.trim()}”.` : "");
    $("where").textContent = found.length ? `${count(from + 1)}–${count(from + visible.length)} of ${count(found.length)}` : "no nodes";
    $("previous").disabled = state.page === 0;
    $("next").disabled = state.page >= pages - 1;
  }

  function nodeCell(column, i) {
    const value = column.value(i);
    if (column.key === "node") return el("th", { scope: "row" }, el("button", { type: "button", "aria-label": `Open node ${value}` }, String(value)));
    if (column.key === "kind") return el("td", {}, el("span", { class: `tag ${kindOf(i)}` }, value));
    if (column.number) return el("td", { class: "number" }, column.text(value));
    return el("td", { title: value }, short(String(value), 32));
  }

  /* ---------- the panel of one node ---------- */

  const trail = []; // nodes that were open before a neighbour was

  function openNode(i, kept) {
    const panel = $("panel");
    if (!panel.open) trail.length = 0;
    else if (!kept) trail.push(state.open);
    state.open = i;
    for (const update of whenOpened) update();
    const back = trail.length ? el("button", { type: "button", onclick: () => openNode(trail.pop(), true) },
      `Back to node ${nodeName(trail[trail.length - 1])}`) : null;
    panel.replaceChildren(
      el("div", { class: "head" }, el("h2", { id: "panel-title", tabindex: "-1" }, `Node ${nodeName(i)}`),
        el("div", {}, back, back ? " " : null, el("button", { type: "button", id: "close", onclick: () => panel.close() }, "Close"))),
      nodeFacts(i), ...classBars(i), ...otherMethods(i), ...neighboursOf(i));
    if (!panel.open) panel.showModal();
    panel.scrollTop = 0;
    $("close").focus();
  }

  function nodeFacts(i) {
    const { graph, label } = state.task.nodes, { prediction, scores } = predicted();
    const verdict = () => (isOOD(i) ? "" : prediction[i] === label[i] ? ", rightly" : ", wrongly");
    const facts = [["True class", `${className(i)}${isOOD(i) ? " (out of distribution: never seen in training)" : ""}`]];
    if (prediction) facts.push(["Predicted", `${state.task.classes[prediction[i]]}${verdict()}`]);
    facts.push([`Scores of ${state.method}`, Object.entries(scores).map(([name, values]) => `${name} ${num(values[i])}`).join(", ")]);
    if (graph && known(graph.degree[i])) {
      const alike = graph.homophily[i];
      facts.push(["Degree", num(graph.degree[i])],
        ["Homophily", known(alike) ? `${pct(alike)} % of the neighbours have its class` : "no neighbours"]);
    }
    return el("dl", { class: "facts" }, facts.flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]));
  }

  function classBars(i) {
    const { lower, upper, prediction } = predicted(), p = probabilities(state.method), classes = state.task.classes;
    if (!p) return [el("h3", {}, "Classes"), el("p", { class: "note" }, `${state.method} does not classify.`)];
    const high = upper ? upper[i] : p[i], truth = state.task.nodes.label[i];
    const kept = classes.map((_, k) => k).sort((a, b) => high[b] - high[a]).slice(0, BARS);
    if (truth >= 0 && !kept.includes(truth)) kept.push(truth);
    kept.sort((a, b) => a - b);
    const X = (value) => (100 * value).toFixed(2) + "%";
    const lines = kept.map((k) => {
      const from = lower ? lower[i][k] : 0, to = high[k];
      const text = `${lower && pct(from) !== pct(to) ? `${pct(from)}–` : ""}${pct(to)} %`;
      const roles = [k === truth ? "true" : null, k === prediction[i] ? "predicted" : null].filter(Boolean);
      return el("tr", { class: k === truth ? "true" : null, "data-class": k },
        el("th", { scope: "row" }, classes[k], roles.length ? el("span", { class: "std" }, ` (${roles.join(", ")})`) : null),
        el("td", {}, svg("svg", { role: "img", "aria-label": `${classes[k]}: ${text}` },
          svg("rect", { class: "track", x: 0, y: 2, width: "100%", height: 10 }),
          svg("rect", { class: "interval", x: X(from), y: 2, width: X(Math.max(to - from, 0.002)), height: 10 }),
          lower ? svg("line", { class: "point", x1: X(p[i][k]), x2: X(p[i][k]), y1: 0, y2: 14 }) : null)),
        el("td", { class: "number" }, text));
    });
    const rest = classes.length - kept.length;
    return [el("h3", {}, lower ? `Probability intervals of ${state.method}` : `Probabilities of ${state.method}`),
      el("div", { class: "scroll" }, el("table", { class: "intervals" }, el("tbody", {}, lines))),
      el("p", { class: "note" },
        lower ? "Bars reach from the lower to the upper probability; the stroke is the one distribution a decision is made by. " : "",
        isOOD(i) ? `None of these classes is right: the node is of class ${className(i)}. ` : "",
        rest ? `${rest} less probable classes are left out.` : "")];
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
        el("td", { class: "number" }, num(one.scores[headline][i])),
        el("td", { class: "number rank" }, scale, ` ${fixed(100 * rank, 0)} %`),
        el("td", {}, one.prediction ? short(state.task.classes[one.prediction[i]], 24) : "–"));
    });
    const heads = [["Method"], ["Score"], ["Value", true], ["Less certain than", true], ["Predicted"]];
    return [el("h3", {}, "What every method says"),
      el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "What every method says" }, plainTable(heads, lines)),
      el("p", { class: "note" }, `“Less certain than” is the share of all ${count(state.task.nodes.total)} test nodes with a lower score.`)];
  }

  function neighboursOf(i) {
    const { graph, node, names } = state.task.nodes;
    if (!graph) return [el("h3", {}, "Neighbours"), el("p", { class: "note" }, "The facts about the graph (graph.parquet) are not there.")];
    const found = graph.neighbours[i], more = graph.degree[i] - found.length;
    const entries = found.map((other, k) => {
      const place = node.indexOf(other), text = `${other}: ${names[graph.neighbour_classes[i][k]]}`;
      return el("li", {}, place >= 0 ? el("button", { type: "button", onclick: () => openNode(place) }, text)
        : el("span", { title: "not among the test nodes in this page" }, text));
    });
    const note = more > 0 ? `${count(more)} more are left out.` : found.length ? "" : "It has none.";
    return [el("h3", {}, "Neighbours"), el("ul", { class: "neighbours" }, entries), note ? el("p", { class: "note" }, note) : null].filter(Boolean);
  }

  /* ---------- choosing ---------- */

  const fill = (select, names, value) => {
    select.replaceChildren(...names.map(([key, label]) => el("option", { value: key }, label)));
    select.value = value;
  };

  function chooseTask(k) {
    state.task = data.tasks[k];
    Object.assign(state, { open: null, page: 0, filter: "all", nodeSort: {}, rowSort: {} });
    $("find").value = "";
    const names = Object.keys(state.task.methods);
    const [kept] = [state.method, ...DRAWN, ...names].filter((name) => names.includes(name));
    fill($("method"), names.map((name) => [name, name]), kept);
    showResults();
    showChoice();
    drawCurves();
    chooseMethod(kept);
  }

  function chooseMethod(name) {
    state.method = name;
    const { scores, headline } = method();
    state.score = scores.includes(state.score) ? state.score : headline;
    state.nodeSort = {};
    fill($("score"), scores.map((one) => [one, one]), state.score);
    drawDepth();
    showNodes();
  }

  function start() {
    showHeader();
    if (!data.tasks.length) {
      for (const part of [document.querySelector(".bar"), document.querySelector("main")]) part.hidden = true;
      return;
    }
    fill($("task"), data.tasks.map((task, k) => [k, taskName(task)]), 0);
    $("task").addEventListener("change", (event) => chooseTask(Number(event.target.value)));
    $("method").addEventListener("change", (event) => chooseMethod(event.target.value));
    $("score").addEventListener("change", (event) => { state.score = event.target.value; drawDepth(); });
    $("find").addEventListener("input", () => { state.page = 0; refreshNodes(); });
    $("previous").addEventListener("click", () => { state.page -= 1; refreshNodes(); });
    $("next").addEventListener("click", () => { state.page += 1; refreshNodes(); });
    $("panel").addEventListener("click", (event) => { // beside it
      const { left, right, top, bottom } = $("panel").getBoundingClientRect();
      const inside = event.clientX >= left && event.clientX <= right && event.clientY >= top && event.clientY <= bottom;
      if (event.target === $("panel") && !inside) $("panel").close();
    });
    let width = window.innerWidth;
    window.addEventListener("resize", () => {
      if (window.innerWidth === width) return;
      width = window.innerWidth;
      requestAnimationFrame(() => { drawCurves(); drawDepth(); });
    });
    chooseTask(0);
  }

  start();
})();
