// The page: findings, holders and coverage, and when the charts are drawn.

const $ = id => document.getElementById(id);
const KINDS = {
  leak: "Leak", growing: "Possible leak", "pending-gc": "Waiting for garbage collection", residue: "Left after unload", "last-loop": "Growth in the last loop", "after-last": "Growth after the last step", fragmentation: "Fragmentation",
  "carry-over": "Carry-over", periodic: "Sawtooth", "warm-up": "Warm-up", plateau: "Plateau", cache: "Cache", "larger-inputs": "Larger inputs", doubling: "Doubling buffer", gathered: "Gathered", spike: "Spike", "reserved-growth": "Reserved growth",
};
// Steps beyond which nobody waits for a device to run out of memory.
const FAR = 10_000_000;

function summary(run) {
  const { program: p, steps, devices, step } = run.report;
  const fact = (name, value) => value !== null && value !== "" && value !== undefined ? h("span", {}, name + " ", h("b", {}, value)) : null;
  const rows = devices.map(d => h("tr", {}, h("td", {}, String(d.index)), h("td", {}, d.name || "–"), bytesCell(d.live_bytes), bytesCell(d.peak_bytes),
    bytesCell(d.reserved_bytes), d.unattributed_bytes === null ? h("td", { class: "n soft" }, "not known") : bytesCell(d.unattributed_bytes),
    d.total_bytes ? bytesCell(d.total_bytes) : h("td", { class: "n soft" }, "not known")));
  $("summary").replaceChildren(
    h("h1", {}, code(run.words.answer)),
    h("div", { class: "command" }, run.words.run),
    ...run.report.coverage.gaps.filter(gap => gap.startsWith("CPython ")).map(gap => h("p", { class: "lacking" }, gap)),
    run.words.after_last ? h("p", { class: "lacking" }, run.words.after_last) : "",
    h("div", { class: "facts" }, fact("Python", p.python), fact("step source", steps.source), fact("as of the end of step", step),
      run.report.host_bytes ? fact("pinned host memory", size(run.report.host_bytes)) : null),
    run.words.out_of_memory.length ? outOfMemory(run) : "",
    devices.length ? table(null, [["Device"], ["Name"], ["Live", 1], ["Peak", 1], ["Reserved", 1], ["Unattributed", 1], ["Total", 1]], rows) : h("p", { class: "empty" }, "No device was used."));
  document.title = `${run.words.answer.replaceAll("`", "")} · ${run.file}`;
}

/** What memory ran out for, and what was live then: what people came for, where it happened. */
function outOfMemory(run) {
  const last = run.report.out_of_memory.at(-1), at = r => r.allocated_at ? `${run.path(r.allocated_at.file)}:${r.allocated_at.line} ${r.allocated_at.function}` : r.entry_point || "no stack";
  return h("article", { class: "finding whole leak", id: "out-of-memory" }, h("div", { class: "head" }, h("h3", { class: "kind" }, "Out of memory")),
    h("div", {}, run.words.out_of_memory.map(words => h("p", {}, code(words))),
      table("Live at that moment", [["Allocated at"], ["Blocks", 1], ["Bytes", 1]], last.retained.slice(0, 10).map(r => h("tr", {}, h("td", { class: "where mono" }, at(r)), h("td", { class: "n" }, whole(r.live_blocks)), bytesCell(r.live_bytes))))));
}

/** Bytes over the points as a small drawing. */
function spark(run, slots) {
  const values = run.sumOf(slots), most = values.reduce((a, b) => Math.max(a, b), 1);
  if (values.length < 2) return null;
  const first = run.points[0].step, span = run.points.at(-1).step - first || 1;
  const stride = Math.ceil(values.length / 240), at = [];
  for (let i = 0; i < values.length; i += stride) {
    const part = values.subarray(i, i + stride), top = part.reduce((a, b) => Math.max(a, b), 0);
    at.push(`${((run.points[i].step - first) / span * 100).toFixed(2)} ${(30 - top / most * 28).toFixed(2)}`);
  }
  at.push(`100 ${(30 - values.at(-1) / most * 28).toFixed(2)}`);
  const svg = (tag, a, ...c) => { const e = document.createElementNS("http://www.w3.org/2000/svg", tag); for (const k in a) e.setAttribute(k, a[k]); e.append(...c); return e; };
  return svg("svg", { class: "spark", viewBox: "0 0 100 30", preserveAspectRatio: "none", role: "img", "aria-label": `From ${size(values[0])} at step ${first} to ${size(values.at(-1))} at step ${first + span}` },
    svg("path", { class: "area", d: `M0 30 L${at.join(" L")} L100 30 Z` }), svg("path", { class: "line", d: `M${at.join(" L")}` }));
}

function finding(run, f, slots, card, look) {
  const location = s => s.allocated_at ? `${run.path(s.allocated_at.file)}${s.allocated_at.line ? ":" + s.allocated_at.line : ""}` : s.entry_point || "no stack";
  const row = (name, value, title) => value === null ? [] : [h("dt", {}, name), h("dd", { title: title || null }, value)];
  const grows = f.kind !== "carry-over";
  const figures = [
    f.bytes_per_step > 0 ? row(grows ? "per growing step" : "per step", size(f.bytes_per_step), exact(f.bytes_per_step)) : [],
    f.growth_bytes_per_step > 0 ? row("growth per step", size(f.growth_bytes_per_step), exact(f.growth_bytes_per_step)) : [],
    f.growth_step_ratio > 0 && f.growth_step_ratio < 1 ? row(grows ? "grows in" : "in", share(f.growth_step_ratio, 1) + " of steps") : [],
    f.period_steps ? row("period", count(f.period_steps, "step")) : [],
    row("live", size(f.live_bytes), exact(f.live_bytes)),
    row("blocks", whole(f.live_blocks)),
    f.oldest_step ? row("oldest from step", whole(f.oldest_step)) : [],
    f.peak_reduction_bytes ? row("peak lower by", size(f.peak_reduction_bytes), exact(f.peak_reduction_bytes)) : [],
    f.reserved_growth_bytes ? row("reserved growth", size(f.reserved_growth_bytes), exact(f.reserved_growth_bytes)) : [],
    f.steps_to_oom !== null && f.steps_to_oom < FAR ? row("out of memory in", "about " + count(f.steps_to_oom, "step")) : [],
  ];
  const sites = f.sites.map((s, i) => {
    const list = h("div", { hidden: true });
    const button = h("button", { class: "link", type: "button", "aria-expanded": "false", click: () => {
      if (!list.childNodes.length) list.append(framesList(run, slots[i]));
      list.hidden = !list.hidden;
      button.setAttribute("aria-expanded", String(!list.hidden));
    } }, `${location(s)} ${s.allocated_at ? s.allocated_at.function : ""}`);
    const figure = h("span", { class: "soft" }, `  ${size(s.live_bytes)} in ${count(s.live_blocks, "block")}`,
      s.forward_site ? `, in the backward pass of ${run.path(s.forward_site.file)}:${s.forward_site.line}` : "");
    return h("li", {}, button, figure, list);
  });
  const holders = f.holders.slice(0, 6).map(o => h("div", {}, h("span", { class: "holder" }, code(o.path)), h("span", { class: "soft" }, `  ${size(o.bytes)} in ${count(o.blocks, "block")}, seen at step ${whole(o.step)}`)));
  const first = f.sites[0];
  const lines = card.lines.map((l, i) => h("tr", {}, h("th", { scope: "row" }, i && card.lines[i - 1].label === l.label ? "" : l.label),
    h("td", { class: "where mono" }, l.at), h("td", { class: "mono source" }, l.source || "")));
  return h("article", { class: "finding " + f.kind },
    h("div", { class: "head" }, h("h3", { class: "kind" }, card.title), h("b", { class: "much" }, card.much), h("span", { class: "location" }, card.at),
      card.held ? h("span", { class: "held" }, code(card.held)) : ""),
    h("div", { class: "side" }, spark(run, slots), h("dl", {}, figures)),
    h("div", {}, lines.length ? h("div", { class: "wide" }, h("table", { class: "lines" }, h("tbody", {}, lines))) : "",
    h("p", {}, h("b", {}, f.kind === "leak" || f.kind === "growing" ? "Why a leak: " : "Why: "), code(card.why)),
    card.fix ? h("p", { class: "advice" }, h("b", {}, "Fix: "), code(card.fix)) : "",
    card.growth.length ? h("p", { class: "soft" }, card.growth.join("; ")) : "",
    holders.length ? h("div", {}, h("h4", {}, "Held by"), holders, f.holders.length > 6 ? h("a", { href: "#holders" }, `and ${f.holders.length - 6} more`) : "") : "",
    h("div", {}, h("h4", {}, "Stacks"), h("ul", { class: "sites" }, sites.slice(0, 6)),
      sites.length > 6 ? h("details", {}, h("summary", { class: "soft" }, `and ${count(sites.length - 6, "more line")}`), h("ul", { class: "sites" }, sites.slice(6))) : "",
      first && run.sites[slots[0]].location !== null ? h("p", {}, h("button", { type: "button", click: () => { look([...new Set(slots.map(s => run.sites[s].location).filter(l => l !== null).map(l => run.frameText(l)))]); $("flame").scrollIntoView(); } }, "find in the flame graph")) : "")));
}

function listFindings(run, look, most = 50) {
  const { findings, non_leaks: nonLeaks } = run.report;
  $("findings").replaceChildren(h("h2", { id: "findings-title" }, "Findings"),
    ...(findings.length ? findings.slice(0, most).map((f, i) => finding(run, f, run.finding_sites[i], run.words.cards[i], look)) : [h("p", { class: "empty" }, "None.")]),
    findings.length > most ? h("p", {}, h("button", { type: "button", click: () => listFindings(run, look, findings.length) }, `show all ${whole(findings.length)}`)) : "",
    nonLeaks.length ? h("details", {}, h("summary", {}, `Not leaks (${whole(nonLeaks.length)})`),
      h("ul", { class: "non-leaks" }, nonLeaks.map(f => h("li", {}, h("b", {}, KINDS[f.kind] || f.kind), ": ", code(f.explanation))))) : "");
}

const HOLDER_COLUMNS = [["Held by"], ["Blocks", 1], ["Bytes", 1], ["As of step", 1]];

/** A holder as a table row, with more cells behind its path. */
function holderRow(holder, ...cells) {
  return h("tr", {}, h("td", { class: "where mono" }, code(holder.path)), cells,
    h("td", { class: "n" }, whole(holder.blocks)), bytesCell(holder.bytes), h("td", { class: "n" }, whole(holder.step)));
}

function holders(run) {
  const { findings, non_leaks: nonLeaks, holder_searches: searches } = run.report;
  const all = [...findings, ...nonLeaks].flatMap(f => f.holders.map(holder => [holder, f])).sort((a, b) => b[0].bytes - a[0].bytes);
  const rows = all.map(([holder, f]) => holderRow(holder, h("td", {}, KINDS[f.kind] || f.kind)));
  $("holders").replaceChildren(h("h2", { id: "holders-title" }, "Holders"),
    rows.length ? table(null, [HOLDER_COLUMNS[0], ["Finding"], ...HOLDER_COLUMNS.slice(1)], rows) : h("p", { class: "empty" }, "No holder was found."),
    searches ? h("p", { class: "soft" }, `${count(searches.count, "search").replace(/searchs$/, "searches")}; the program waited ${searches.seconds.toFixed(2)} s for them, ${searches.longest_s.toFixed(2)} s at most for one.`) : "");
}

function coverage(run) {
  const { coverage: c, warnings, out_of_memory: oom, out_of_memory_count: ooms } = run.report, hist = run.history;
  const agrees = c.ledger_matches_allocator;
  const rows = [["Events lost", c.dropped_events], ["Frees without a recorded allocation", c.frees_without_allocation], ["Addresses reused without a recorded free", c.allocations_without_free], ["Freed with their context", c.freed_with_context]];
  const list = (items, none) => items.length ? h("ul", { class: "plain" }, items.map(i => h("li", {}, i))) : h("p", { class: "soft" }, none);
  $("coverage").replaceChildren(h("h2", { id: "coverage-title" }, "Coverage"),
    h("div", { class: "columns" },
      h("div", {}, h("h3", {}, "Coverage gaps and untracked calls"), list([...c.gaps, ...c.untracked_calls.map(m => `${m.entry_point}: called ${whole(m.calls)} times${m.bytes ? ", " + size(m.bytes) : ", size unknown"}`)], "None known."), warnings.length ? [h("h3", {}, "Warnings"), list(warnings, "")] : ""),
      h("div", {}, table(null, [["Count"], ["", 1]], [...rows.map(([name, n]) => h("tr", {}, h("td", {}, name), h("td", { class: "n" }, whole(n)))),
        h("tr", {}, h("td", {}, "Agrees with the allocator's own totals"), h("td", { class: "n" }, agrees === null ? "nothing to compare" : agrees ? "yes" : "no")),
        h("tr", {}, h("td", {}, "Points drawn, of the steps kept"), h("td", { class: "n" }, `${whole(run.points.length)} of ${whole(hist.records)}`)),
        h("tr", {}, h("td", {}, "Sites listed by themselves, of all"), h("td", { class: "n" }, `${whole(run.sites.filter(s => s.layer !== "").length)} of ${whole(hist.site_count)}`))]))),
    ooms ? h("div", {}, h("h3", { style: "margin-top:12px" }, `Out of memory ${count(ooms, "time")}`), oom.map(o => h("div", {}, h("p", {}, o.explanation),
      o.holders.length ? table("Held by (as of the last heap scan)", HOLDER_COLUMNS, o.holders.map(holder => holderRow(holder))) : "",
      table("Live at that moment", [["Allocated at"], ["Blocks", 1], ["Bytes", 1]], o.retained.slice(0, 10).map(r => h("tr", {}, h("td", { class: "where mono" }, r.allocated_at ? `${run.path(r.allocated_at.file)}:${r.allocated_at.line} ${r.allocated_at.function}` : r.entry_point || "no stack"), h("td", { class: "n" }, whole(r.live_blocks)), bytesCell(r.live_bytes))))))) : "");
}

function show(page) {
  const run = new Run(page);
  let look = null, waiting = null;
  summary(run);
  listFindings(run, texts => { if (look) look(texts); else waiting = texts; });
  holders(run);
  coverage(run);
  // What people came for stands there; the rest comes once it has been painted.
  const later = f => setTimeout(f, 30);
  $("flame").replaceChildren(h("h2", { id: "flame-title" }, "Flame graph"));
  $("segments").replaceChildren(h("h2", { id: "segments-title" }, "Segments"));
  timeline(run, $("timeline"));
  later(() => {
    look = icicle(run, $("flame"));
    if (waiting) look(waiting);
    segmentMap(run, $("segments"));
    document.body.dataset.ready = "yes";
  });
}

/** Shows one recording, or the page over all (-1). */
function open(at) {
  delete document.body.dataset.ready;
  document.querySelectorAll("main > section, nav").forEach(e => { e.hidden = (e.id === "overview") !== (at < 0); });
  $("run").value = at;
  scrollTo(0, 0);
  if (at >= 0) return show(PAGES[at]);
  overview($("overview"), open);
  document.title = RUNS[0].answer + " · leaktrace";
  document.body.dataset.ready = "yes";
}

if (RUNS) {
  const names = PAGES.map((p, i) => h("option", { value: i }, `${p.file}${p.report.program.rank === null ? "" : " · rank " + p.report.program.rank} · ${count(p.report.findings.length, "finding")}`));
  $("runs").append(h("label", {}, "show ", h("select", { id: "run", "aria-label": "Recording", change: e => open(+e.target.value) },
    h("option", { value: -1 }, "all recordings"), names)));
} else if (PAGES.length) $("runs").append(h("span", { class: "mono soft" }, PAGES[0].file));
const leftOut = +document.body.dataset.leftOut;
if (leftOut) $("runs").append(h("span", { class: "soft", title: "to keep the file small" }, `  ${whole(leftOut)} left out`));

const links = [...document.querySelectorAll("nav a")];
const seen = new IntersectionObserver(all => all.forEach(e => {
  if (e.isIntersecting) links.forEach(a => a.hash === "#" + e.target.id ? a.setAttribute("aria-current", "true") : a.removeAttribute("aria-current"));
}), { rootMargin: "-20% 0px -70% 0px" });
links.forEach(a => seen.observe($(a.hash.slice(1))));
if (RUNS) open(-1);
else if (PAGES.length) show(PAGES[0]);
