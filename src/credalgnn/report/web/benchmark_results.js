/* Header and table of results. */

/* ---------- header ---------- */

function showHeader() {
  const fact = (name, ...content) => [el("dt", {}, name), el("dd", {}, ...content)];
  const runs = data.tasks.flatMap((task) => task.rows.filter((row) => row.headline)).reduce((sum, row) => sum + row.runs, 0);
  const methods = [...new Set(data.tasks.flatMap((task) => Object.keys(task.methods)))];
  const seeds = [...new Set(data.tasks.flatMap((task) => task.seeds))].sort((a, b) => a - b);
  const [protocols, settings] = ["protocol", "setting"].map((key) => [...new Set(data.tasks.map((task) => task[key]))]);
  $("lead").textContent = data.tasks.length
    ? "Detection of OOD nodes, whose classes were left out of training: "
      + `${plural(methods.length, "method")} on ${plural(new Set(data.tasks.map((task) => task.dataset)).size, "data set")}, ${plural(runs, "run")}.`
    : "No run was successful, so there is nothing to compare.";
  $("compared").append(
    ...(data.tasks.length > 1 ? data.tasks.flatMap((task) => fact(taskName(task), factsOf(task))) : []),
    ...protocols.flatMap((name) => fact("Protocol", `${name}: ${PROTOCOLS[name] || "unknown to this page"}`)),
    ...settings.flatMap((name) => fact("Setting", `${name}: ${SETTINGS[name] || "unknown to this page"}`)),
    ...fact("Methods", methods.join(", ") || "none"),
    ...fact(seeds.length === 1 ? "Seed" : "Seeds", some(seeds.map(String), 12) || "none"),
    ...fact("Made with", Object.entries(data.versions).map(([name, versions]) => `${name} ${versions.join(" and ")}`).join(", ") || "unknown"));
  if (data.failed.length) {
    $("warnings").append(el("section", { class: "warning", "aria-label": "Failed runs" },
      el("h2", {}, `${plural(data.failed.length, "run")} failed`),
      el("ul", {}, data.failed.map((run) => el("li", {},
        el("strong", {}, `${run.dataset}, ${run.method}, seed ${run.seed} `), `(${run.protocol}, ${run.setting})`,
        el("pre", {}, run.error || "no message"))))));
  }
  $("footer").append(el("p", {}, (data.finished ? `Last run finished ${data.finished.slice(0, 16).replace("T", " ")} UTC. ` : "")
    + "This file contains all its data and needs no network."));
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
    ...METRICS.filter(([key]) => key !== "width" || !task.rows.some((row) => row.values.widest_id)).map(([key, label, better, format, title]) => (
      { key, label, better, format, title, number: true, value: (row) => (row.values[key] || [null])[0] })),
    { key: "marks", label: "Marks", value: (row) => Object.keys(row.marks).join(" ") || null },
  ];
  const scale = aurocScale(task);
  const table = sortable($("results-box"), `Results on ${taskName(task)}`, columns, state.rowSort, refresh);
  function refresh() {
    const rows = task.rows.filter((row) => row.headline || !$("headline-only").checked);
    table.show(table.sorted(rows).map((row) => {
      const marked = row.disqualified.length > 0;
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
  const title = row.runs > 1
    ? `${middle}, standard deviation ${spread}, 95 % interval of the mean ${from} to ${to}, ${plural(row.runs, "run")}` : `${middle}, one run`;
  if (column.key !== "auroc") return el("td", { class: "number", title }, middle);
  const dagger = el("span", { class: "dagger" }, row.rank === "tied" ? "†" : "");
  return el("td", { class: "number auroc", title }, middle, dagger,
    row.runs > 1 ? el("span", { class: "std" }, ` ± ${fixed(100 * value[1], 1)}`) : null, intervalBar(row, value, scale));
}

const aurocScale = (task) => range(task.rows.flatMap(({ values: { auroc } }) => (auroc ? [auroc[0], auroc[2], auroc[3]] : [])));

function intervalBar(row, [mean, , low, high], [from, to]) {
  const x = (value) => 3 + (82 * (value - from)) / (to - from || 1);
  const label = row.runs > 1 ? `95 % interval ${pct(low)} to ${pct(high)}` : pct(mean);
  return svg("svg", { viewBox: "0 0 88 14", role: "img", "aria-label": label },
    svg("line", { class: "grid", x1: 3, x2: 85, y1: 7, y2: 7 }),
    from <= 0.5 ? svg("line", { class: "chance", x1: x(0.5), x2: x(0.5), y1: 0, y2: 14 }) : null,
    svg("rect", { class: "interval", x: x(low), width: Math.max(x(high) - x(low), 0.5), y: 4, height: 6, opacity: 0.55 }),
    svg("line", { class: "point", x1: x(mean), x2: x(mean), y1: 1.5, y2: 12.5 }));
}

function badges(row) {
  const badges = Object.entries(row.marks).map(([name, runs]) =>
    el("span", { class: badgeClass(takesOut(row, name)), title: `${meaning(name)}; ${advice(name)} (${runs} of ${plural(row.runs, "run")})` },
      runs === row.runs ? name : `${name} ${runs}/${row.runs}`));
  const most = Math.max(...state.task.rows.map((other) => other.runs));
  if (row.runs && row.runs < most) {
    badges.push(el("span", { class: "badge plain", title: "runs are missing; ranks compare common seeds, of rows with more than half of the runs" }, `${row.runs} of ${most} runs`));
  }
  if (row.failed) badges.push(el("span", { class: "badge plain", title: "runs that ended with an error" }, `${row.failed} failed`));
  return badges;
}

function showResultsLegend(task) {
  const marks = [...new Set(task.rows.flatMap((row) => Object.keys(row.marks)))];
  const has = (test) => task.rows.some(test);
  const line = (...content) => el("p", {}, ...content);
  $("results-legend").replaceChildren(...[
    has((row) => row.runs > 1)
      ? line("AUROC: mean ± standard deviation over the runs; the bar is the 95 % bootstrap interval of the mean on one scale for all rows",
        aurocScale(task)[0] <= 0.5 ? ", a dotted line is at 50 %, chance." : ".") : null,
    has((row) => row.rank === "best") ? line(el("strong", {}, "Bold"), ": best AUROC of the ranked headline scores.") : null,
    has((row) => row.tested) ? line("† not significantly worse than the best (one-sided Wilcoxon signed-rank test over the seeds,",
      " Holm-corrected, 5 %).") : null,
    !has((row) => row.tested) && task.rows.filter((row) => row.competes).length > 1 ? line("There are too few seeds to test differences.") : null,
    has((row) => row.trivial) ? line(el("em", {}, "Italic"), ": needs no model; trained methods should be better.") : null,
    ...marks.map((name) => {
      const out = has((row) => takesOut(row, name));
      return line(el("span", { class: badgeClass(out) }, name),
        ` ${meaning(name)}. ${out ? "Such rows are not ranked" : "This only informs"}: ${advice(name)}.`);
    }),
  ].filter(Boolean));
}
