/* The first thing a reader sees: a stranger and a known node, each with its credal set. */

/* The method whose nodes are met: the chosen one, or else the first that has credal sets. */
function met() {
  const found = state.task.nodes.methods || {};
  const has = (name) => found[name] && found[name].lower && known(found[name].typical.id) && known(found[name].typical.ood);
  return [state.method, ...DRAWN, ...Object.keys(state.task.methods)].find(has);
}

function showMeeting() {
  const name = met();
  $("meet").hidden = !name;
  $("meet").replaceChildren();
  if (!name) return;
  const { typical } = state.task.nodes.methods[name], { headline } = state.task.methods[name], task = state.task;
  const row = rowOf(name, headline), values = row ? row.values : {};
  const sizes = ["test_ood", "test_id"].map((kind) => (known(task.counts[kind]) ? `${count(task.counts[kind])} ` : ""));
  const median = ["widest_ood", "widest_id"].map((key) => (values[key] || [null])[0]);
  $("meet").append(
    el("h2", { id: "meet-title" }, "A stranger, and a node it knows"),
    el("p", {}, el("strong", {}, name), " gives every class a ", el("em", {}, "lower"), " and an ", el("em", {}, "upper"),
      " probability: at least so much, at most so much, and no more is claimed. Narrow bars say “I know”. ",
      "Wide bars say “I have never been shown anything like this”. The stroke is the best single guess."),
    el("div", { class: "cards" }, card(name, typical.ood), card(name, typical.id)),
    el("p", { class: "note", id: "meet-rule" },
      `Neither is hand-picked: of the ${sizes[0]}test nodes of classes it never saw (${some(task.ood, 8)}) and of the ${sizes[1]}others, `
      + `each is the one with the median ${headline} (seed ${task.nodes.seed}). `,
      known(median[0]) && known(median[1])
        ? `The widest interval of a typical stranger is ${fixed(median[0], 2)}, that of a typical known node ${fixed(median[1], 2)}${row.runs > 1 ? ", both means over the runs" : ""}. ` : "",
      known(auroc(name, headline)) ? `Over all test nodes ${headline} tells strangers from the others with AUROC ${pct(auroc(name, headline))} %. ` : "",
      name === state.method ? "" : `${state.method}, the chosen method, gives no credal sets.`));
}

function verdict(width, stranger) {
  const size = sizeOf(width);
  const text = `Its credal set is ${size} (widest interval ${fixed(width, 2)})`;
  if (stranger) {
    return `${text}: ${size === "wide" ? "“I have never been shown anything like this.”"
      : size === "narrow" ? "this method has not noticed that the node is a stranger." : "some doubt, for a node of a class it never saw."}`;
  }
  return `${text}: ${size === "narrow" ? "“I know such nodes.”" : size === "wide" ? "more doubt than a known class deserves." : "some doubt is left."}`;
}

function card(name, i) {
  const one = state.task.nodes.methods[name], stranger = isOOD(i), guess = state.task.classes[one.prediction[i]];
  const { table, rest } = barsOf(name, i, CLASSES);
  const right = one.prediction[i] === state.task.nodes.label[i];
  const answer = stranger ? `forced to choose, it says ${guess}, which cannot be right` : `it says ${guess}, ${right ? "rightly" : "wrongly"}`;
  return el("article", { class: `card ${stranger ? "ood" : "id"}`, "data-node": nodeName(i) },
    el("h3", {}, el("span", { class: `tag ${stranger ? "ood" : "id"}` }, stranger ? "Stranger: " : "Known: "), className(i)),
    el("p", { class: "note" }, `Node ${nodeName(i)} is of class ${className(i)}${stranger ? ", of which training saw none" : ", which training has seen"}; ${answer}.`),
    el("div", {}, table, rest ? el("p", { class: "note" }, `${rest} less probable classes are left out.`) : null),
    el("p", {}, verdict(widestOf(one, i), stranger)),
    one.reasons ? el("p", { class: "note why" }, because(one.reasons[i])) : null,
    el("button", { type: "button", onclick: () => { if (state.method !== name) { $("method").value = name; chooseMethod(name); } openNode(i); } },
      `Look at node ${nodeName(i)}`));
}
