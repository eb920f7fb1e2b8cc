/* Example nodes: an OOD and an ID node, each with its credal set. */

/* The selected method, or the first one with credal sets. */
function methodOfExamples() {
  const methods = state.task.nodes.methods || {};
  const has = (name) => methods[name] && methods[name].lower && known(methods[name].typical.id) && known(methods[name].typical.ood);
  return [state.method, ...DRAWN, ...Object.keys(state.task.methods)].find(has);
}

function showExamples() {
  const name = methodOfExamples();
  $("examples").hidden = !name;
  $("examples").replaceChildren();
  if (!name) return;
  const { typical } = state.task.nodes.methods[name], { headline } = state.task.methods[name], task = state.task;
  const row = rowOf(name, headline), values = row ? row.values : {};
  const sizes = ["test_ood", "test_id"].map((kind) => (known(task.counts[kind]) ? `${count(task.counts[kind])} ` : ""));
  const median = ["widest_ood", "widest_id"].map((key) => (values[key] || [null])[0]);
  $("examples").append(
    el("h2", { id: "examples-title" }, "An OOD node and an ID node"),
    el("p", {}, el("strong", {}, name), " gives every class a ", el("em", {}, "lower"), " and an ", el("em", {}, "upper"),
      " probability. Narrow bars mean that the model knows such nodes, wide bars that training had little or nothing similar. ",
      "The stroke is the point prediction."),
    el("div", { class: "cards" }, card(name, typical.ood), card(name, typical.id)),
    el("p", { class: "note", id: "examples-rule" },
      `Chosen by a rule: of the ${sizes[0]}OOD test nodes (${some(task.ood, 8)}) and of the ${sizes[1]}ID test nodes, `
      + `each is the one with the median ${headline} (seed ${task.nodes.seed}). `,
      known(median[0]) && known(median[1])
        ? `The median widest interval is ${fixed(median[0], 2)} of OOD nodes and ${fixed(median[1], 2)} of ID nodes${row.runs > 1 ? " (means over the runs)" : ""}. ` : "",
      known(auroc(name, headline)) ? `Over all test nodes ${headline} detects OOD nodes with AUROC ${pct(auroc(name, headline))} %. ` : "",
      name === state.method ? "" : `The selected method, ${state.method}, has no credal sets.`));
}

function verdict(width, ood) {
  const size = sizeOf(width);
  const text = `Its credal set is ${size} (widest interval ${fixed(width, 2)})`;
  if (ood) {
    return `${text}: ${size === "wide" ? "the method recognises the node as unknown."
      : size === "narrow" ? "the method does not recognise the node as unknown." : "the method is in some doubt."}`;
  }
  return `${text}: ${size === "narrow" ? "the method knows such nodes." : size === "wide" ? "more doubt than an ID node should have." : "the method is in some doubt."}`;
}

function card(name, i) {
  const one = state.task.nodes.methods[name], ood = isOOD(i), guess = state.task.classes[one.prediction[i]];
  const { table, rest } = barsOf(name, i, CLASSES);
  const right = one.prediction[i] === state.task.nodes.label[i];
  const prediction = `predicted is ${guess}, which is ${ood ? "necessarily wrong" : right ? "right" : "wrong"}`;
  return el("article", { class: `card ${ood ? "ood" : "id"}`, "data-node": nodeName(i) },
    el("h3", {}, el("span", { class: `tag ${ood ? "ood" : "id"}` }, ood ? "OOD: " : "ID: "), className(i)),
    el("p", { class: "note" }, `Node ${nodeName(i)} is of class ${className(i)}${ood ? ", which was left out of training" : ""}; ${prediction}.`),
    el("div", {}, table, rest ? el("p", { class: "note" }, `${rest} less probable classes are left out.`) : null),
    el("p", {}, verdict(widestOf(one, i), ood)),
    one.reasons ? el("p", { class: "note reasons" }, reasonText(one.reasons[i])) : null,
    el("button", { type: "button", onclick: () => { if (state.method !== name) { $("method").value = name; chooseMethod(name); } openNode(i); } },
      `Show node ${nodeName(i)}`));
}
