// Live bytes by site over the steps (uPlot), and what was live at the point chosen.

const STACKED = 12;

function timeline(run, into) {
  const title = h("h2", { id: "timeline-title" }, "Timeline");
  const plot = h("div", { class: "plot", tabindex: "0", role: "slider", "aria-label": "Chosen step",
    "aria-valuemin": run.points[0]?.step ?? 0, "aria-valuemax": run.points.at(-1)?.step ?? 0 });
  const legend = h("div", { class: "legend" }), live = h("div", { class: "live", id: "live" });
  if (!run.points.length || !run.groups.length) {
    into.replaceChildren(title, h("p", { class: "empty" }, "No allocation was seen."));
    return;
  }
  const x = run.points.map(p => p.step), seconds = run.points.map(p => p.at_s);
  const lines = { peak: true, reserved: false };
  let group = 0, byTime = false, chosen = run.history.at, base = null, u = null, colours = new Map();

  const steps = run.points.length > 1;
  const groupChoice = run.groups.length > 1
    ? h("label", {}, "of ", h("select", { change: e => { group = +e.target.value; draw(); } },
        run.groups.map((_, i) => h("option", { value: i }, run.groupName(i)))))
    : h("span", { class: "soft" }, run.groupName(0));
  const check = name => h("label", {}, h("input", { type: "checkbox", "data-line": name, change: e => { lines[name] = e.target.checked; draw(); } }),
    { peak: "peak within the steps", reserved: "reserved" }[name]);
  const checks = ["peak", "reserved"].map(check);
  const zoom = h("span", { class: "group", role: "group", "aria-label": "Zoom" },
    h("button", { type: "button", "aria-label": "Zoom in", click: () => scale(.5) }, "+"),
    h("button", { type: "button", "aria-label": "Zoom out", click: () => scale(2) }, "−"),
    h("button", { type: "button", id: "zoom-all", click: () => scale(0) }, "all"));
  const tools = h("div", { class: "tools" }, groupChoice,
    choice("Over", [["steps", "steps"], ["time", "time"]], "steps", v => { byTime = v === "time"; draw(); }),
    checks, h("span", { class: "end" }, zoom));
  into.replaceChildren(title, steps ? tools : "", steps ? h("div", {}, plot) : h("p", { class: "empty" },
    "No step was seen in this run, so there is one moment to show: its end."), live);
  if (steps) plot.append(h("div", { class: "u" }), legend);

  const annotations = [];
  run.points.forEach((p, i) => (p.annotations || []).forEach(text => annotations.push([i, text])));

  function draw() {
    if (!steps) return show();
    const { slots, rows, rest } = run.series(group, STACKED);
    const palette = siteColours(), grey = darkly.matches ? "#5b6570" : "#b4bcc5";
    const leaking = run.leaking, reds = leakColours();
    let red = 0;
    const kept = slots.map((s, i) => ({ slot: s, row: rows[i], colour: leaking.has(s) ? reds[red++ % reds.length] : palette[i % palette.length] }));
    // What leaks lies on top of what stays.
    kept.sort((a, b) => leaking.has(a.slot) - leaking.has(b.slot));
    colours = new Map(kept.map(k => [k.slot, k.colour]));
    if (rest.some(v => v > 0)) kept.unshift({ slot: null, row: rest, colour: grey });
    const sums = [];
    kept.forEach((k, i) => sums.push(Float64Array.from(k.row, (v, at) => v + (i ? sums[i - 1][at] : 0))));
    const axis = byTime ? seconds : x, totals = f => run.points.map(p => p.totals[group][f]);
    const isDevice = run.groups[group].kind === "device";
    const most = f => totals(f).reduce((a, b) => Math.max(a, b), 0);
    // A line that would press the sites flat is not shown until it is asked for.
    if (lines.peak === true) lines.peak = most(1) <= 4 * most(0);
    checks.forEach(label => {
      const box = label.querySelector("input");
      box.checked = lines[box.dataset.line];
      label.hidden = !isDevice;
    });
    const data = [axis, ...sums], series = [{}];
    kept.forEach(k => series.push({ stroke: k.colour, fill: k.colour + (darkly.matches ? "c0" : "b8"), width: 1, points: { show: false } }));
    const bands = kept.slice(1).map((_, i) => ({ series: [i + 2, i + 1] }));
    const extra = [["peak", 1, css("--ink"), []], ["reserved", 2, css("--soft"), [5, 4]]].filter(([name]) => isDevice && lines[name]);
    extra.forEach(([, f, stroke, dash]) => { data.push(totals(f)); series.push({ stroke, dash, width: 1, points: { show: false } }); });
    const ink = css("--soft"), grid = { stroke: css("--faint"), width: 1 }, font = "11px " + css("--sans");
    const powers = Array.from({ length: 50 }, (_, i) => 2 ** i);
    const box = plot.querySelector(".u"), before = u && u.wasByTime === byTime ? u.scales.x : null;
    const view = before && { min: before.min, max: before.max };
    if (u) u.destroy();
    u = new uPlot({
      width: Math.max(300, plot.clientWidth - 6), height: 300, legend: { show: false }, bands,
      scales: { x: { time: false }, y: { range: (_, lo, hi) => [0, Math.max(1, hi) * 1.06] } },
      axes: [{ stroke: ink, grid, ticks: grid, font, values: (_, v) => v.map(n => byTime ? n + " s" : whole(n)), incrs: byTime ? undefined : [1, 2, 5].flatMap(m => [1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7].map(t => m * t)).sort((a, b) => a - b) },
        { stroke: ink, grid, ticks: grid, font, size: 78, incrs: powers, values: (_, v) => v.map(n => n ? size(n).replace(".0 ", " ") : "0") }],
      cursor: { y: false, drag: { x: true, y: false, dist: 5 }, points: { show: false } },
      series, hooks: { draw: [overlay], setCursor: [hover] },
    }, data, box);
    u.wasByTime = byTime;
    if (view) u.setScale("x", view);
    let down = null;
    u.over.addEventListener("mousedown", e => { down = e.clientX; });
    u.over.addEventListener("mouseup", e => {
      if (down !== null && Math.abs(e.clientX - down) < 5 && u.cursor.idx !== null) pick(u.cursor.idx);
      down = null;
    });
    u.over.addEventListener("mouseleave", () => tip(null, null));
    legend.replaceChildren(...kept.map(k => h("span", {}, h("span", { class: "swatch", style: "background:" + k.colour }), k.slot === null ? "all other sites" : run.location(k.slot) + (run.via(k.slot) ? " in " + run.via(k.slot) : "") + (leaking.has(k.slot) ? " (leak)" : ""))),
      ...extra.map(([name, , stroke, dash]) => h("span", {}, h("i", { style: `border-top-color:${stroke};border-top-style:${dash.length ? "dashed" : "solid"}` }), name === "peak" ? "peak within the step" : "reserved by the allocator")),
      ...[["phase", "--faint", "ended by a loop"], ["collections", "--good", "garbage collection"], ["failures", "--bad", "out of memory"]].filter(([what]) => run.points.some(p => p[what]))
        .map(([, colour, text]) => h("span", {}, h("span", { class: "swatch", style: `background:var(${colour})` }), text)));
    show();
  }

  const xOf = i => (byTime ? seconds : x)[i];

  function overlay(u) {
    const { ctx, bbox } = u, ratio = devicePixelRatio;
    const line = (i, colour, dash) => {
      const at = Math.round(u.valToPos(xOf(i), "x", true));
      if (at < bbox.left || at > bbox.left + bbox.width) return null;
      ctx.beginPath();
      ctx.setLineDash(dash.map(d => d * ratio));
      ctx.strokeStyle = colour;
      ctx.lineWidth = ratio;
      ctx.moveTo(at, bbox.top);
      ctx.lineTo(at, bbox.top + bbox.height);
      ctx.stroke();
      return at;
    };
    ctx.save();
    ctx.font = `${11 * ratio}px ${css("--sans")}`;
    ctx.fillStyle = css("--soft");
    // As the axes left them.
    ctx.textAlign = "left";
    ctx.textBaseline = "alphabetic";
    // Steps that a loop ended between those of the program: a ground of their own.
    ctx.globalAlpha = .5;
    ctx.fillStyle = css("--faint");
    run.points.forEach((p, i) => {
      if (!p.phase) return;
      const from = u.valToPos(xOf(Math.max(0, i - 1)), "x", true), to = u.valToPos(xOf(i), "x", true);
      ctx.fillRect(Math.max(bbox.left, from), bbox.top, Math.min(to, bbox.left + bbox.width) - Math.max(bbox.left, from), bbox.height);
    });
    ctx.globalAlpha = 1;
    // Collections are ticks on the axis, failed allocations lines.
    run.points.forEach((p, i) => {
      const at = Math.round(u.valToPos(xOf(i), "x", true));
      if (p.failures) line(i, css("--bad"), []);
      if (!p.collections || at < bbox.left || at > bbox.left + bbox.width) return;
      ctx.fillStyle = css("--good");
      ctx.fillRect(at - ratio, bbox.top + bbox.height - 7 * ratio, 2 * ratio, 7 * ratio);
    });
    ctx.fillStyle = css("--soft");
    let free = -Infinity;
    for (const [i, text] of annotations) {
      const at = line(i, css("--soft"), [2, 3]), width = ctx.measureText(text).width;
      if (at === null || at < free || at + 4 * ratio + width > bbox.left + bbox.width) continue;
      ctx.fillText(text, at + 4 * ratio, bbox.top + 11 * ratio);
      free = at + width + 12 * ratio;
    }
    if (base !== null) line(base, css("--accent"), [4, 3]);
    line(chosen, css("--accent"), []);
    ctx.restore();
  }

  function hover(u) {
    const i = u.cursor.idx;
    if (i === null || i === undefined || u.cursor.left < 0) return tip(null, null);
    const box = u.over.getBoundingClientRect(), p = run.points[i];
    const text = [`step ${whole(p.step)} · ${p.at_s.toFixed(2)} s`, `${size(p.totals[group][0])} live at its end`];
    if (run.groups[group].kind === "device") text.push(`${size(p.totals[group][1])} at the peak, ${size(p.totals[group][2])} reserved`);
    if (p.phase) text.push("ended by a loop, between the program's own steps");
    if (p.collections) text.push(count(p.collections, "garbage collection"));
    if (p.failures) text.push(count(p.failures, "failed allocation"));
    (p.annotations || []).forEach(m => text.push("annotation: " + m));
    tip({ clientX: box.left + u.cursor.left, clientY: box.top + u.cursor.top }, text.join("\n"));
  }

  function pick(i) {
    chosen = Math.max(0, Math.min(run.points.length - 1, i));
    if (u) u.redraw(false);
    show();
    const p = run.points[chosen];
    say(`Step ${p.step}: ${size(p.totals[group][0])} live.`);
  }

  function scale(factor) {
    if (!u) return;
    const axis = byTime ? seconds : x, lo = axis[0], hi = axis.at(-1);
    if (!factor) return u.setScale("x", { min: lo, max: hi });
    const { min, max } = u.scales.x, middle = Math.min(max, Math.max(min, xOf(chosen)));
    const half = Math.max((max - min) * factor, byTime ? 1e-6 : 2) / 2;
    u.setScale("x", { min: Math.max(lo, middle - half), max: Math.min(hi, middle + half) });
  }

  plot.addEventListener("keydown", e => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const tenth = Math.max(1, Math.round(run.points.length / 10));
    const to = { ArrowLeft: chosen - 1, ArrowRight: chosen + 1, ArrowDown: chosen - 1, ArrowUp: chosen + 1, PageUp: chosen + tenth,
      PageDown: chosen - tenth, Home: 0, End: run.points.length - 1 }[e.key];
    if (to !== undefined) pick(to);
    else if (e.key === "+" || e.key === "=") scale(.5);
    else if (e.key === "-") scale(2);
    else if (e.key === "0") scale(0);
    else return;
    e.preventDefault();
  });

  /** The table of what was live at the chosen point. */
  function show(all = false) {
    const p = run.points[chosen], now = run.live(chosen), then = base === null ? null : run.live(base);
    plot.setAttribute("aria-valuenow", p.step);
    plot.setAttribute("aria-valuetext", `step ${p.step}, ${size(p.totals[group][0])} live`);
    const total = p.totals[group][0];
    const slots = [...now.bytes.keys()].filter(s => run.sites[s].group === group && (now.blocks[s] > 0 || (then && then.blocks[s] > 0)));
    const order = then ? s => -Math.abs(now.bytes[s] - then.bytes[s]) : s => -now.bytes[s];
    slots.sort((a, b) => order(a) - order(b));
    const most = all ? slots.length : 20;
    const heads = [["Allocated at"], ["Layer"], ["Blocks", 1], ["Bytes", 1], ["Share", 1]];
    if (then) heads.push([`Since step ${whole(run.points[base].step)}`, 1]);
    const rows = slots.slice(0, most).map(s => siteRows(run, s, [
      h("td", {}, run.sites[s].layer || "–"), h("td", { class: "n" }, whole(now.blocks[s])), bytesCell(now.bytes[s]),
      h("td", { class: "n" }, share(now.bytes[s], total)),
      then ? bytesCell(now.bytes[s] - then.bytes[s], signed) : null,
    ].filter(Boolean), colours.get(s) || (colours.size ? "transparent" : null), run.sites[s].layer === "" ? count(run.unnamed(group), "other site") : undefined));
    const when = steps ? `Live at the end of step ${whole(p.step)}` : "Live at the end";
    const head = h("div", { class: "tools" },
      h("h3", {}, when), h("span", { class: "soft", title: exact(total) }, `${size(total)} in ${count(slots.length, "site")}`),
      steps ? h("button", { type: "button", id: "compare", title: "Show what changed between this step and the one you click next",
        click: () => { base = base === null ? chosen : null; if (u) u.redraw(false); show(); } },
        base === null ? "compare from here" : `stop comparing with step ${whole(run.points[base].step)}`) : null);
    live.replaceChildren(head,
      slots.length ? table(null, heads, rows) : h("p", { class: "empty" }, "Nothing was live."),
      slots.length > most ? h("p", {}, h("button", { type: "button", click: () => show(true) }, `show all ${whole(slots.length)}`)) : "",
      steps ? h("p", { class: "keys" }, "Click a point, or focus the chart: ← → one point, Page keys ten percent, Home and End; + − 0 zoom. Drag to zoom in.") : "");
  }

  draw();
  addEventListener("resize", () => { if (u && plot.isConnected) u.setSize({ width: Math.max(300, plot.clientWidth - 6), height: 300 }); });
  darkly.addEventListener("change", () => { if (plot.isConnected) draw(); });
}
