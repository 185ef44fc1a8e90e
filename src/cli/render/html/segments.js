// The segments of the caching allocators: how much of each is used, and which blocks keep it from being returned to the driver.

const STRIPS = 40;

function segmentMap(run, into) {
  const map = run.segments, title = h("h2", { id: "segments-title" }, "Segments");
  if (!map.count) {
    into.replaceChildren(title, h("p", { class: "empty" }, "No caching allocator had a segment at that moment."));
    return;
  }
  const many = new Set(map.segments.map(s => s.device)).size > 1;
  let order = map.pinned ? "pinned" : "address", shown = STRIPS, site = null;
  const strips = h("div", { class: "strips" }), told = h("div", { id: "segment-told" });
  const orders = {
    pinned: (a, b) => b.pinned - a.pinned || (b.bytes - b.used) - (a.bytes - a.used),
    size: (a, b) => b.bytes - a.bytes,
    address: () => 0,
  };
  const watch = new IntersectionObserver(all => all.filter(e => e.isIntersecting).forEach(e => { paint(e.target); watch.unobserve(e.target); }), { rootMargin: "200px" });

  function paint(canvas) {
    const s = canvas.segment, width = Math.max(1, Math.round(canvas.clientWidth * devicePixelRatio));
    canvas.width = width;
    canvas.height = 16 * devicePixelRatio;
    const ctx = canvas.getContext("2d"), used = css("--used"), pin = css("--pin"), lit = css("--accent");
    s.cells.forEach(c => {
      ctx.fillStyle = site !== null && c.site === site ? lit : s.pinned ? pin : used;
      // A stretch of several blocks is as tall as it is full.
      const tall = Math.max(.25, Math.min(1, c.used / Math.max(1, c.bytes))) * canvas.height;
      ctx.fillRect(c.offset / s.bytes * width, canvas.height - tall, Math.max(1, c.bytes / s.bytes * width - (c.bytes / s.bytes * width > 3 ? 1 : 0)), tall);
    });
  }

  const cellText = c => `${c.site < 0 ? "blocks of several sites" : run.location(c.site)}\n${size(c.used)} in ${count(c.blocks, "block")} at +${size(c.offset)}`
    + (c.birth && c.birth < 4294967295 ? `, oldest from step ${whole(c.birth)}` : "");

  function strip(s) {
    const canvas = h("canvas", { role: "img", tabindex: "0", "aria-label": `Segment ${s.start} of device ${s.device}: ${size(s.used)} of ${size(s.bytes)} used by ${count(s.blocks, "block")}${s.pinned ? "; not returned to the driver" : ""}` });
    canvas.segment = s;
    let at = -1;
    const under = e => {
      const box = canvas.getBoundingClientRect(), offset = (e.clientX - box.left) / box.width * s.bytes, near = s.bytes / box.width * 2;
      return s.cells.findIndex(c => offset >= c.offset - near && offset <= c.offset + c.bytes + near);
    };
    const tell = i => {
      at = i;
      const c = s.cells[i];
      site = c && c.site >= 0 ? c.site : null;
      told.replaceChildren(c ? h("p", {}, h("b", {}, s.start), "  ", cellText(c).replace("\n", ": ")) : "",
        c && c.site >= 0 ? framesList(run, c.site) : "");
      strips.querySelectorAll("canvas").forEach(paint);
      if (c) say(cellText(c));
    };
    canvas.addEventListener("mousemove", e => { const c = s.cells[under(e)]; tip(e, c ? cellText(c) : "free"); });
    canvas.addEventListener("mouseleave", () => tip(null, null));
    canvas.addEventListener("click", e => tell(under(e)));
    canvas.addEventListener("keydown", e => {
      if (e.key === "ArrowRight") tell(Math.min(s.cells.length - 1, at + 1));
      else if (e.key === "ArrowLeft") tell(Math.max(0, at - 1));
      else return;
      e.preventDefault();
    });
    watch.observe(canvas);
    return h("div", { class: "strip" }, h("span", { class: "mono soft" }, s.start + (many ? ` device ${s.device}` : "")), canvas,
      h("span", { class: "n" + (s.pinned ? " pins" : "") }, `${size(s.used)} of ${size(s.bytes)}`));
  }

  function list() {
    const sorted = [...map.segments].sort(orders[order]);
    strips.replaceChildren(...sorted.slice(0, shown).map(strip),
      sorted.length > shown ? h("p", {}, h("button", { type: "button", click: () => { shown += 200; list(); } }, `show more of ${whole(sorted.length)}`)) : "");
  }

  map.segments.forEach(s => {
    if (Array.isArray(s.cells) && typeof s.cells[0] === "object") return;
    const flat = s.cells;
    s.cells = [];
    for (let k = 0; k < flat.length; k += 6) {
      s.cells.push({ offset: flat[k], bytes: flat[k + 1], used: flat[k + 2], site: flat[k + 3], blocks: flat[k + 4], birth: flat[k + 5] });
    }
  });
  const free = map.bytes - map.used;
  const facts = h("p", {}, `${size(map.bytes)} in ${count(map.count, "segment")}: ${size(map.used)} used, ${size(free)} free`,
    map.pinned ? `; ${size(map.pinned)} of that is not returned to the driver because of the few blocks in segments that are less than half used.` : ".");
  const pins = map.pins.length ? table("Blocks that pin segments", [["Allocated at"], ["From step", 1], ["Bytes", 1], ["Segment"], ["Free in it", 1]],
    map.pins.map(p => siteRows(run, p.site, [h("td", { class: "n" }, whole(p.birth)), bytesCell(p.bytes), h("td", { class: "mono soft" }, p.segment), p.free ? bytesCell(p.free) : h("td", { class: "n soft" }, "the same")]))) : "";
  into.replaceChildren(title, facts, pins,
    h("div", { class: "tools", style: "margin-top:14px" },
      choice("Order", [["pinned", "least used first"], ["size", "largest first"], ["address", "by address"]], order, o => { order = o; list(); }),
      h("span", { class: "key" }, h("i", { style: "background:var(--used)" }), "used"),
      h("span", { class: "key" }, h("i", { style: "background:var(--pin)" }), "used, pins a segment that is less than half used"),
      h("span", { class: "key" }, h("i", { style: "background:var(--faint)" }), "free")),
    strips, told,
    map.segments.length < map.count ? h("p", { class: "soft" }, `${whole(map.count - map.segments.length)} more are not listed here.`) : "",
    h("p", { class: "keys" }, "Click a block for its stack; with a strip focused, ← → go through its blocks."));
  list();
  addEventListener("resize", () => { if (strips.isConnected) strips.querySelectorAll("canvas").forEach(paint); });
  darkly.addEventListener("change", () => { if (strips.isConnected) strips.querySelectorAll("canvas").forEach(paint); });
}
