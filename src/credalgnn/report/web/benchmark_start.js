/* Selection of a data set, a method and a score; runs last. */

const fill = (select, names, value) => {
  select.replaceChildren(...names.map(([key, label]) => el("option", { value: key }, label)));
  select.value = value;
};

function chooseTask(k) {
  state.task = data.tasks[k];
  Object.assign(state, { open: null, page: 0, filter: "all", nodeSort: {}, rowSort: {} });
  $("find").value = "";
  const names = Object.keys(state.task.methods);
  const [name] = [state.method, ...DRAWN, ...names].filter((one) => names.includes(one));
  fill($("method"), names.map((one) => [one, one]), name);
  showResults();
  showChoice();
  drawCurves();
  chooseMethod(name);
}

function chooseMethod(name) {
  state.method = name;
  const { scores, headline } = method();
  state.score = scores.includes(state.score) ? state.score : headline;
  state.nodeSort = {};
  fill($("score"), scores.map((one) => [one, one]), state.score);
  showExamples();
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
  closeBeside($("panel"));
  whenResized(() => { drawCurves(); drawDepth(); });
  chooseTask(0);
}

start();
