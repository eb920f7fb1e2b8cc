/* Uncertainty over all nodes of the graph, and p-values. */

const SPREADS = "Dot: median; box: the middle half; line: 80 % of the nodes.";

function drawFigures() {
  const by = {
    degree: { title: "neighbours", name: "number of neighbours", axis: (bins) => ({ lo: 0, hi: Math.max(range(bins.map((bin) => bin.to))[1], 3) * 1.05, log: true, title: "neighbours" }) },
    coverage: { title: "coverage", name: "coverage", axis: () => ({ lo: 0, hi: 1, title: "coverage (share of full)" }) },
  };
  const what = {
    measure: { title: data.credal ? "Widest interval" : "Probability of the class", hi: () => 1 },
    EU: { title: "EU (epistemic, bits)", hi: (bins) => Math.max(range(bins.flatMap((bin) => bin.EU))[1] * 1.05, LEAST) },
  };
  const drawings = Object.keys(by).filter((fact) => data.figures[fact]).flatMap((fact) => Object.keys(what).filter((value) => data.figures[fact][0][value])
    .map((value) => [`${what[value].title.split(" (")[0]} and ${by[fact].title}`, (width, caption) => drawSpread(width, caption, data.figures[fact], value, by[fact], what[value])]));
  $("doubt-note").textContent = `Over all ${plural(data.total, "node")}. `
    + (data.credal ? "Wide intervals and a large EU mean that training had too little similar data, not that classes look alike. " : "")
    + (data.figures.coverage ? "Coverage is how often similar nodes are labelled: 1 is as often as any." : "");
  figures($("figures"), [["p-values", drawPValues], ...drawings]);
}

function drawSpread(width, caption, bins, value, fact, what) {
  const medians = bins.map((bin) => bin[value][2]);
  const plot = chart(width, 250, fact.axis(bins), { lo: 0, hi: what.hi(bins), title: what.title },
    `${what.title} against ${fact.name}: median ${num(medians[0])} at ${num(bins[0].x)}, ${num(medians[medians.length - 1])} at ${num(bins[bins.length - 1].x)}`);
  const half = Math.min(8, width / bins.length / 5);
  plot.node.append(svg("polyline", { class: "median id", points: points(bins.map((bin) => bin.x), medians, plot.X, plot.Y).join(" ") }),
    ...bins.map((bin) => {
      const [least, low, middle, high, most] = bin[value], x = plot.X(bin.x);
      return svg("g", { "data-nodes": bin.nodes },
        svg("title", {}, `${plural(bin.nodes, "node")} with ${bin.from === bin.to ? num(bin.from) : `${num(bin.from)} to ${num(bin.to)}`}: median ${num(middle)}, half of them ${num(low)} to ${num(high)}`),
        svg("line", { class: "spread", x1: x, x2: x, y1: plot.Y(least), y2: plot.Y(most) }),
        svg("rect", { class: "half", x: x - half, width: 2 * half, y: plot.Y(high), height: Math.max(plot.Y(low) - plot.Y(high), 0.5) }),
        svg("circle", { class: "centre", cx: x, cy: plot.Y(middle), r: 3 }));
    }));
  caption.append(SPREADS);
  return plot.node;
}

function drawPValues(width, caption) {
  if (!data.calibrated) return CALIBRATE;
  const { flagged, others } = data.figures.p_values, n = flagged.length, level = data.new.total / n;
  const high = range(flagged.map((some, k) => some + others[k]))[1];
  const plot = chart(width, 250, { lo: 0, hi: 1, title: "p-value" }, { lo: 0, hi: Math.max(high, level) * 1.05, title: "nodes" },
    `Histogram of p-values of ${plural(data.new.total, "node")}: ${count(data.new.flagged)} flagged, ${count(flagged[0] + others[0])} below ${1 / n}`);
  flagged.forEach((some, k) => {
    const x = plot.X(k / n) + 0.5, w = plot.X((k + 1) / n) - plot.X(k / n) - 1;
    for (const [name, from, to] of [["flagged", 0, some], ["others", some, some + others[k]]]) {
      if (to > from) plot.node.append(svg("rect", { class: name, x, width: w, y: plot.Y(to), height: plot.Y(from) - plot.Y(to), "data-nodes": to - from }));
    }
  });
  plot.node.append(svg("line", { class: "chance", x1: plot.X(0), x2: plot.X(1), y1: plot.Y(level), y2: plot.Y(level) }));
  const key = (name, words) => el("span", { class: "key" }, svg("svg", { viewBox: "0 0 14 10", "aria-hidden": "true" }, svg("rect", { class: name, x: 1, y: 1, width: 11, height: 8 })), words);
  caption.append(key("flagged", "flagged"), key("others", "not flagged"),
    "Nodes that took no part in training. Dotted: expected height if every node were of a known class. A peak at 0 means unfamiliar nodes.");
  return plot.node;
}
