// The data of the page and the words for it. Draws nothing.

const PAGES = JSON.parse(document.getElementById("data").textContent);

/** An element: attributes (functions are listeners, null leaves one out), then children. Text is only ever text. */
function h(tag, attributes, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") e.addEventListener(name, value);
    else e.setAttribute(name, value === true ? "" : value);
  }
  e.append(...children.flat(Infinity).filter(c => c !== null && c !== undefined && c !== false));
  return e;
}

/** A text in which `names` are set apart, as they are in the text of a terminal. */
const code = text => text.split("`").map((part, i) => i % 2 ? h("code", {}, part) : part);

const numbers = new Intl.NumberFormat("en-US");
const whole = n => numbers.format(Math.round(n));

/** Bytes for people, as every report of leaktrace words them. */
function size(bytes) {
  let value = Math.abs(bytes);
  const sign = bytes < 0 ? "−" : "";
  for (const unit of ["B", "KiB", "MiB", "GiB", "TiB"]) {
    if (value < 1024 || unit === "TiB") {
      return sign + (unit === "B" && Number.isInteger(value) ? value : value.toFixed(1)) + " " + unit;
    }
    value /= 1024;
  }
}
const signed = bytes => (bytes > 0 ? "+" : "") + size(bytes);
const exact = bytes => whole(bytes) + " B";
const share = (part, all) => (all > 0 ? (100 * part / all).toFixed(1) + " %" : "–");
const count = (n, noun) => whole(n) + " " + noun + (n === 1 ? "" : "s");

/** A cell with bytes: short to read, exact to hover over. */
const bytesCell = (bytes, words = size) => h("td", { class: "n", title: exact(bytes) }, words(bytes));

/** One recording. */
class Run {
  constructor(page) {
    Object.assign(this, page);
    this.sites = this.history.sites;
    this.points = this.history.points;
    this.groups = this.history.groups;
    this.home = this.commonFolder();
  }

  /** The folder that all of the user's own files lie in. */
  commonFolder() {
    const own = new Set(this.stacks.frames.filter(f => f[1] === 1).map(f => this.stacks.names[f[2]]).filter(f => f.startsWith("/")));
    const parts = [...own].map(f => f.split("/").slice(0, -1));
    if (!parts.length) return "";
    const upto = parts[0].findIndex((p, i) => parts.some(q => q[i] !== p));
    const common = upto < 0 ? parts[0] : parts[0].slice(0, upto);
    return common.length > 1 ? common.join("/") : "";
  }

  /** The sites of leaks. */
  get leaking() {
    return new Set(this.report.findings.flatMap((f, i) => f.kind === "leak" ? this.finding_sites[i] : []));
  }

  /** How many sites of a group have no history of their own. */
  unnamed(group) {
    const mine = this.sites.filter(s => s.group === group);
    return mine.reduce((sum, s) => sum + s.others + (s.summed ? 1 : 0), 0);
  }

  /** A path relative to the working directory or the user's folder. */
  path(file) {
    const cwd = this.report.program.cwd.replace(/\/+$/, "");
    for (const folder of [this.words.base.replace(/\/+$/, ""), cwd, this.home]) {
      if (folder && file.startsWith(folder + "/")) return file.slice(folder.length + 1);
    }
    return file.replace(/^.*\/(site|dist)-packages\//, "").replace(/^.*\/lib(64)?\/(python3\.\d+\/)/, "$2");
  }

  frame(id) {
    const [kind, own, file, line, name] = this.stacks.frames[id];
    return { kind, own: own === 1, file: this.stacks.names[file], line, name: this.stacks.names[name] };
  }

  /** A frame in one line. */
  frameText(id) {
    const f = this.frame(id);
    const at = this.path(f.file) + (f.line ? ":" + f.line : "");
    return f.name ? (at ? f.name + "  " + at : f.name) : at;
  }

  /** Where a site allocates. */
  location(slot) {
    const s = this.sites[slot];
    if (s.layer === "") return s.others ? count(s.others, "other site") : "other sites";
    if (s.location === null) return s.entry_point || "(no stack was taken)";
    const f = this.frame(s.location);
    const at = f.file ? this.path(f.file) + (f.line ? ":" + f.line : "") : "";
    return at && f.name ? at + " " + f.name : at || f.name;
  }

  /** What distinguishes a site from others at its line: the innermost Python frame, or the node of the backward pass. */
  via(slot) {
    const s = this.sites[slot];
    const id = this.stackOf(slot).find(id => this.frame(id).kind !== 1 && id !== s.location);
    if (id === undefined || s.location === null || id === s.location) return "";
    const f = this.frame(id);
    // Only frames further in than the allocating line.
    return this.stackOf(slot).indexOf(id) < this.stackOf(slot).indexOf(s.location) ? f.name : "";
  }

  groupName(group) {
    const g = this.groups[group];
    if (g.kind === "host") return "pinned host memory";
    if (g.kind === "external") return "external memory";
    if (g.kind === "code") return "compiled programs";
    return "device " + g.device;
  }

  /** The frames of a site's stack, innermost first. */
  stackOf(slot) {
    const ids = [];
    for (let n = this.sites[slot].stack; n >= 0; n = this.stacks.parents[n]) ids.push(this.stacks.nodes[n]);
    return ids;
  }

  /** Blocks and bytes by site that were live at a point. */
  live(point) {
    const blocks = new Float64Array(this.sites.length), bytes = new Float64Array(this.sites.length);
    for (let i = 0; i <= point; i++) {
      const c = this.points[i].changes;
      for (let k = 0; k < c.length; k += 3) {
        blocks[c[k]] += c[k + 1];
        bytes[c[k]] += c[k + 2];
      }
    }
    return { blocks, bytes };
  }

  /** The sites of a group that were largest at any point, and the bytes of each at every point; the rest in one row. */
  series(group, most) {
    const now = new Float64Array(this.sites.length), top = new Float64Array(this.sites.length);
    for (const p of this.points) {
      for (let k = 0; k < p.changes.length; k += 3) {
        const s = p.changes[k];
        now[s] += p.changes[k + 2];
        if (now[s] > top[s]) top[s] = now[s];
      }
    }
    const mine = [...top.keys()].filter(s => top[s] > 0 && this.sites[s].group === group && this.sites[s].layer !== "");
    const slots = mine.sort((a, b) => top[b] - top[a]).slice(0, most);
    const row = new Map(slots.map((s, i) => [s, i]));
    const rows = slots.map(() => new Float64Array(this.points.length));
    const rest = new Float64Array(this.points.length);
    const held = new Float64Array(slots.length);
    this.points.forEach((p, i) => {
      for (let k = 0; k < p.changes.length; k += 3) {
        const at = row.get(p.changes[k]);
        if (at !== undefined) held[at] += p.changes[k + 2];
      }
      let sum = 0;
      held.forEach((bytes, at) => { rows[at][i] = bytes; sum += bytes; });
      rest[i] = p.totals[group][0] - sum;
    });
    return { slots, rows, rest };
  }

  /** The bytes of some sites together, at every point. */
  sumOf(slots) {
    const mine = new Set(slots), out = new Float64Array(this.points.length);
    let sum = 0;
    this.points.forEach((p, i) => {
      for (let k = 0; k < p.changes.length; k += 3) if (mine.has(p.changes[k])) sum += p.changes[k + 2];
      out[i] = sum;
    });
    return out;
  }
}

/** Of sites that leak. */
const REDS = { light: ["#b3261e", "#cf5a4f", "#8f2f3a", "#d98078"], dark: ["#f2877e", "#d1635c", "#f5aaa2", "#b85a66"] };
const SITE_COLOURS = {
  light: ["#3d6fb4", "#d0862d", "#3f8f63", "#7c66b5", "#2f8f9d", "#a9852a", "#6f8f2f", "#a55f9d", "#8a5a3c", "#5f7f95", "#8f9a3c", "#4b5fa5"],
  dark: ["#5f94dc", "#e0a04b", "#58b07f", "#9c87d8", "#4fb2c0", "#c9a447", "#90b14c", "#c680bd", "#b07d5c", "#83a4bb", "#b5bf5a", "#7a8ddb"],
};
const darkly = matchMedia("(prefers-color-scheme: dark)");
const leakColours = () => REDS[darkly.matches ? "dark" : "light"];
const siteColours = () => SITE_COLOURS[darkly.matches ? "dark" : "light"];
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Announces a text to screen readers. */
function say(text) { document.getElementById("said").textContent = text; }

function tip(event, text) {
  const t = document.getElementById("tip");
  t.hidden = !text;
  if (!text) return;
  t.textContent = text;
  const { innerWidth: w, innerHeight: tall } = window, box = t.getBoundingClientRect();
  t.style.left = Math.max(4, Math.min(event.clientX + 14, w - box.width - 8)) + "px";
  t.style.top = (event.clientY + 18 + box.height > tall ? event.clientY - box.height - 10 : event.clientY + 18) + "px";
}

/** A group of buttons, one of them pressed. */
function choice(name, options, chosen, change) {
  const buttons = options.map(([value, text, title]) =>
    h("button", { type: "button", "data-value": value, title: title || null, "aria-pressed": String(value === chosen), click: () => pick(value) }, text));
  function pick(value) {
    buttons.forEach(b => b.setAttribute("aria-pressed", String(b.dataset.value === String(value))));
    change(value);
  }
  return h("span", { class: "group", role: "group", "aria-label": name }, buttons);
}

/** The frames of a site, the user's own standing out. */
function framesList(run, slot) {
  const s = run.sites[slot], ids = run.stackOf(slot);
  if (!ids.length) return h("p", { class: "soft" }, s.layer === "" ? "These sites are not listed separately on this page." : "No stack was taken.");
  let marked = false;
  const items = ids.map(id => {
    const f = run.frame(id), at = !marked && id === s.location;
    marked = marked || at;
    const where = f.file ? "  " + run.path(f.file) + (f.line ? ":" + f.line : "") : "";
    return h("li", { class: [f.own ? "own" : "", at ? "at" : ""].join(" ").trim() || null, title: f.file || null }, (f.name || "?") + where);
  });
  return h("ol", { class: "frames", "aria-label": "Stack, innermost frame first" }, items);
}

/** A table row of a site, which opens its stack. */
function siteRows(run, slot, cells, swatch, name = run.location(slot)) {
  const colspan = cells.length + 1;
  let open = null;
  const button = h("button", { class: "link", type: "button", "aria-expanded": "false", click: () => {
    if (open) { open.remove(); open = null; }
    else { open = h("tr", { class: "stack" }, h("td", { colspan }, framesList(run, slot))); row.after(open); }
    button.setAttribute("aria-expanded", String(open !== null));
  } }, name);
  const via = run.via(slot);
  const mark = swatch ? h("span", { class: "swatch", style: "background:" + swatch, "aria-hidden": "true" }) : null;
  const row = h("tr", { "data-site": slot }, h("td", { class: "where" }, mark, button, via ? h("span", { class: "soft via" }, "in " + via) : null), cells);
  return row;
}

function table(caption, heads, rows) {
  const head = heads.map(([text, n]) => h("th", { scope: "col", class: n ? "n" : null }, text));
  return h("div", { class: "wide" }, h("table", {}, caption ? h("caption", {}, caption) : null,
    h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows)));
}
