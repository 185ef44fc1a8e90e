// The page over all recordings: each run's answer, its findings by ranks, who ended how. Opens the page of one recording.

const RUNS = JSON.parse(document.getElementById("overview-data").textContent);

/** Draws the page over all; `open` shows the page of a recording, by its index among the pages. */
function overview(element, open) {
  const page = file => PAGES.findIndex(p => p.file === file);
  const link = (run, process, text) => {
    const at = page(run.files[process]);
    return at < 0 ? text : h("button", { class: "link", type: "button", click: () => open(at) }, text);
  };
  const cause = (run, c) => h("article", { class: "finding whole " + c.kind },
    h("div", { class: "head" }, h("h3", { class: "kind" }, c.title), h("b", {}, c.much), h("span", { class: "location" }, c.at)),
    h("div", {}, h("p", {}, h("b", {}, "On "), c.on), c.held ? h("p", {}, code(c.held)) : "", h("p", {}, h("b", {}, "Why: "), code(c.why)),
      c.fix ? h("p", { class: "advice" }, h("b", {}, "Fix: "), code(c.fix)) : "", h("p", {}, link(run, c.process, "its page: " + run.files[c.process]))));
  const row = (run, r) => h("tr", {}, h("td", { class: "where" }, r.early ? h("b", { class: "bad" }, r.name) : r.name),
    h("td", {}, r.text, r.first ? h("b", { class: "bad" }, "  ended first") : ""),
    h("td", { class: "pages" }, r.members.slice(0, 8).map(i => h("div", {}, link(run, i, run.files[i]))), r.members.length > 8 ? h("span", { class: "soft" }, `and ${whole(r.members.length - 8)} more`) : ""));
  element.hidden = false;
  element.replaceChildren(...RUNS.map((run, i) => h("div", { class: "run" },
    h(i ? "h2" : "h1", {}, run.answer),
    h("div", { class: "command" }, run.command),
    h("div", { class: "facts" }, h("span", {}, "begun ", h("b", {}, run.began)), h("span", {}, h("b", {}, count(run.files.length, "recording"))),
      run.dropped_events ? h("span", {}, h("b", {}, count(run.dropped_events, "event") + " lost")) : ""),
    run.causes.map(c => cause(run, c)),
    table(null, [["Ranks"], ["How they ended, and what they held"], ["Pages"]], run.rows.map(r => row(run, r))),
    run.figures.length ? table("Spread", [["Figure"], ["From the least to the most"], ["Outliers"]],
      run.figures.map(f => h("tr", {}, h("td", {}, f.name), h("td", {}, f.text), h("td", {}, f.outliers || "none")))) : "",
    run.unread.length ? h("div", {}, h("h3", {}, "Not read"), h("ul", { class: "plain" }, run.unread.map(([file, why]) => h("li", {}, `${file}: ${why}`)))) : "")));
}
