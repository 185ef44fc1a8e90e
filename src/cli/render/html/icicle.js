// The flame graph, outermost frame on top (an icicle; laid out by d3-hierarchy). Frames are a tree for keyboards and
// screen readers as well.

const MODES = {
  retained: ["retained_bytes", "live at the reported moment: the end of the last step, or the one asked for"],
  live: ["live_bytes", "live as of the latest event; after a finished run that is what its teardown left"],
  growth: ["growth_bytes", "what is retained now and was not yet there in the middle of the run"],
  peak: ["peak_bytes", "the most that each site ever held, not all at one moment"],
};
const FRAME_HEIGHT = 19, MIN_WIDTH = 2;

function icicle(run, into) {
  // Of a program without Python, native frames are all there is.
  let mode = "retained", only = run.stacks.frames.some(f => f[0] === 0) ? "python" : "all", zoomed = null, root = null, term = "", lines = new Set(), focus = null;
  const canvas = h("div", { class: "canvas", role: "tree", "aria-label": "Frames by bytes, outermost first" });
  const box = h("div", { class: "icicle" }, canvas);
  const found = h("span", { class: "soft", id: "found", role: "status" });
  const total = h("span", { class: "soft", id: "flame-total" }), what = h("p", { class: "soft", id: "flame-what" });
  const search = h("input", { type: "search", id: "flame-search", placeholder: "function, file or line", "aria-label": "Search frames", size: 26,
    input: () => { term = search.value.trim().toLowerCase(); lines = new Set(); paint(); } });
  const hasNative = run.stacks.frames.some(f => f[0] !== 0);
  const tools = h("div", { class: "tools" },
    choice("Bytes", Object.keys(MODES).map(m => [m, m, MODES[m][1]]), mode, m => { mode = m; build(); }),
    choice("Frames", [["all", "all frames"], ["python", "Python"], ["own", "own code"]], only, o => { only = o; build(); }),
    h("label", {}, "search", search), found, h("span", { class: "end" }, total,
      " ", h("button", { type: "button", id: "zoom-out", click: () => zoom(root) }, "zoom out")));
  const key = (name, text) => h("span", { class: "key" }, h("i", { style: `background:var(${name})` }), text);
  into.replaceChildren(h("h2", { id: "flame-title" }, "Flame graph"), tools, what, box,
    h("p", { class: "keys" }, key("--own", "own code"), key("--python", "Python"), hasNative ? key("--native", "native") : "", key("--autograd", "autograd"),
      "↓ ↑ inner and outer frame, ← → neighbours, Enter zooms, Esc zooms out."));

  const wanted = f => only === "all" || (only === "own" ? f.own : f.kind !== 1);

  /** The tree of frames with the bytes of the mode: sites merge where their frames are the same. */
  function tree() {
    const top = { id: -1, text: "all", bytes: 0, children: new Map() };
    const figure = MODES[mode][0];
    const names = new Map();
    run.sites.forEach((s, slot) => {
      const bytes = s[figure];
      if (!(bytes > 0)) return;
      const path = run.stackOf(slot).reverse().filter(id => wanted(run.frame(id)));
      // Nothing of the kind asked for: at least the line that the site is known by.
      if (!path.length && s.location !== null) path.push(s.location);
      const group = "g" + s.group;
      const steps = run.groups.length > 1 ? [group, ...path] : path;
      if (s.layer === "" || !path.length) steps.push("o" + slot);
      let node = top;
      for (const id of steps) {
        let next = node.children.get(id);
        if (!next) {
          if (!names.has(id)) names.set(id, typeof id === "number" ? run.frameText(id) : id === group ? run.groupName(s.group) : run.location(slot));
          const f = typeof id === "number" ? run.frame(id) : null;
          next = { id, text: names.get(id), kind: f ? f.kind : -1, own: f ? f.own : false, file: f ? f.file : "", bytes: 0, children: new Map() };
          node.children.set(id, next);
        }
        node = next;
      }
      node.bytes += bytes;
    });
    return top;
  }

  function build() {
    const path = zoomed ? zoomed.ancestors().reverse().slice(1).map(n => n.data.id) : [];
    root = d3.hierarchy(tree(), n => [...n.children.values()]).sum(n => n.bytes).sort((a, b) => b.value - a.value);
    d3.partition()(root);
    zoomed = root;
    for (const id of path) {
      const next = (zoomed.children || []).find(c => c.data.id === id);
      if (!next) break;
      zoomed = next;
    }
    focus = zoomed;
    what.textContent = "Bytes " + MODES[mode][1] + ".";
    paint();
  }

  const words = n => `${n.data.text} · ${size(n.value)}, ${share(n.value, root.value)}`;

  function paint() {
    const width = box.clientWidth - 2, from = zoomed.x0, span = zoomed.x1 - zoomed.x0 || 1;
    // A frame named in full is meant alone.
    const named = new Set(lines.size ? lines : term !== "" && root.descendants().some(n => n.data.text.toLowerCase() === term) ? [term] : []);
    const matches = n => term !== "" && (named.size ? named.has(n.data.text.toLowerCase()) : n.data.text.toLowerCase().includes(term));
    let hits = 0, bytes = 0;
    (function seek(n, inside) {
      n.hit = matches(n);
      if (n.hit) { hits++; if (!inside) bytes += n.value; }
      (n.children || []).forEach(c => seek(c, inside || n.hit));
    })(root, false);
    found.textContent = term === "" ? "" : `${count(hits, "frame")}, ${size(bytes)} (${share(bytes, root.value)})`;
    total.textContent = `${size(root.value)} in all`;
    total.title = exact(root.value);
    const shown = [];
    let depth = 0;
    const above = new Set(zoomed.ancestors());
    (function visit(n) {
      const on = above.has(n), left = on ? 0 : (n.x0 - from) / span * width, wide = on ? width : (n.x1 - n.x0) / span * width;
      if (!on && (wide < MIN_WIDTH || n.x0 >= zoomed.x1 || n.x1 <= zoomed.x0)) return;
      depth = Math.max(depth, n.depth);
      const cls = ["frame", n.depth ? "k" + n.data.kind : "root", n.data.own ? "own" : "", n.data.kind === -1 ? "root" : "", on && n !== zoomed ? "above" : "", n.hit ? "hit" : ""];
      const e = h("div", { class: cls.filter(Boolean).join(" "), role: "treeitem", tabindex: "-1", "aria-level": n.depth + 1, "aria-label": words(n), "aria-expanded": n.children ? "true" : null,
        style: `left:${left.toFixed(2)}px;width:${Math.max(1, wide).toFixed(2)}px;top:${n.depth * FRAME_HEIGHT}px` }, wide > 28 ? n.data.text : "");
      e.node = n;
      n.element = e;
      shown.push(e);
      (n.children || []).forEach(visit);
    })(root);
    if (!root.value) shown.push(h("p", { class: "empty", style: "padding:10px" }, "Nothing of this kind."));
    canvas.style.height = (depth + 1) * FRAME_HEIGHT + "px";
    canvas.replaceChildren(...shown);
    if (!focus || !focus.element?.isConnected) focus = zoomed;
    if (focus.element) focus.element.tabIndex = 0;
  }

  function zoom(n) {
    const had = canvas.contains(document.activeElement);
    zoomed = n;
    focus = n;
    paint();
    say(words(n));
    if (had) n.element?.focus();
  }

  function move(n) {
    if (!n || !n.element?.isConnected) return;
    if (focus?.element) focus.element.tabIndex = -1;
    focus = n;
    n.element.tabIndex = 0;
    n.element.focus();
  }

  const nodeOf = e => e.target.closest?.(".frame")?.node;
  canvas.addEventListener("click", e => { const n = nodeOf(e); if (n) zoom(n); });
  canvas.addEventListener("mousemove", e => {
    const n = nodeOf(e);
    tip(e, n ? `${n.data.text}\n${size(n.value)} (${exact(n.value)}), ${share(n.value, root.value)} of all${n.data.file ? "\n" + n.data.file : ""}` : null);
  });
  canvas.addEventListener("mouseleave", () => tip(null, null));
  canvas.addEventListener("keydown", e => {
    const n = nodeOf(e);
    if (!n) return;
    const near = n.parent ? n.parent.children : [n], at = near.indexOf(n);
    if (e.key === "ArrowDown") move(n.children?.[0]);
    else if (e.key === "ArrowUp") move(n.parent);
    else if (e.key === "ArrowRight") move(near[at + 1]);
    else if (e.key === "ArrowLeft") move(near[at - 1]);
    else if (e.key === "Enter" || e.key === " ") zoom(n);
    else if (e.key === "Escape") zoom(zoomed.parent || root);
    else return;
    e.preventDefault();
  });
  search.addEventListener("keydown", e => { if (e.key === "Escape") { search.value = term = ""; paint(); } });
  addEventListener("resize", () => { if (box.isConnected) paint(); });
  build();
  // All lines of a finding are marked, and the first is named.
  return texts => { search.value = texts[0] || ""; term = search.value.trim().toLowerCase(); lines = new Set(texts.map(text => text.toLowerCase())); paint(); };
}
