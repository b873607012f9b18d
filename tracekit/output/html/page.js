/* The page's behaviour: draws pictures when they come into view, light and dark, tabs, choices, filters, zoom. */
"use strict";
(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const charts = read("charts"), payloads = read("payloads"), colours = read("colours");
  const drawn = new Map(); // name of a picture -> its Bokeh document
  const root = document.documentElement;
  const ready = {}; // name of a picture -> what to do once it is drawn

  const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;

  function paint(doc) {
    const style = getComputedStyle(root);
    const [text, soft, line] = ["--text", "--soft", "--line"].map((n) => style.getPropertyValue(n).trim());
    const font = "system-ui, sans-serif";
    for (const model of doc._all_models.values()) {
      if (model.type === "Figure") {
        Object.assign(model, {background_fill_color: null, border_fill_color: null, outline_line_color: null});
      } else if (/Axis$/.test(model.type)) {
        Object.assign(model, {axis_line_color: line, major_tick_line_color: line, minor_tick_line_color: null,
          major_label_text_color: soft, axis_label_text_color: soft, major_label_text_font: font, axis_label_text_font: font,
          major_label_text_font_size: "12px", axis_label_text_font_size: "12px", axis_label_text_font_style: "normal"});
      } else if (model.type === "Grid") {
        Object.assign(model, {grid_line_color: line, grid_line_alpha: 0.55});
      } else if (model.type === "Line") {
        model.line_color = text;
      }
    }
  }

  async function draw(place) {
    const name = place.dataset.chart;
    if (place.dataset.state) return;
    place.dataset.state = "drawing";
    await Bokeh.embed.embed_item(charts[name], place.id);
    const doc = Bokeh.documents[Bokeh.documents.length - 1];
    drawn.set(name, doc);
    paint(doc);
    if (ready[name]) await ready[name]();
    place.dataset.state = "drawn";
  }

  let queue = Promise.resolve(); // one picture after the other, so that its document is the last
  const later = (place) => { queue = queue.then(() => draw(place)).catch((e) => { place.dataset.state = "failed"; console.error(e); }); };
  const watch = new IntersectionObserver((entries) => {
    for (const e of entries) if (e.isIntersecting) { watch.unobserve(e.target); later(e.target); }
  }, {rootMargin: "400px"});
  all(".chart").forEach((place) => watch.observe(place));
  addEventListener("load", () => setTimeout(() => all(".chart").forEach(later), 300)); // the others after those in view
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = all("details:not([open])");
    folded.forEach((d) => { d.open = true; });
    const widest = Math.max(1, ...all(".chart").map((c) => c.clientWidth));
    root.style.setProperty("--print-zoom", Math.min(1, 690 / widest)); // canvases keep the width of the screen
    const theme = root.dataset.theme; // paper is light: labels on canvases have to be dark before it is printed
    if (dark()) { root.dataset.theme = "light"; onto(); unprint = () => { restore(theme); onto(); }; }
  });
  addEventListener("afterprint", () => {
    folded.forEach((d) => { d.open = false; });
    unprint(); unprint = () => {};
  });
  let unprint = () => {};
  const restore = (theme) => { if (theme) root.dataset.theme = theme; else delete root.dataset.theme; };
  function onto() { // colours of the theme on every picture, drawn at once: the next frame would be too late
    drawn.forEach(paint);
    for (const view of Bokeh.index.roots ?? Bokeh.index) view.paint?.();
  }

  const model = (chart, name) => drawn.get(chart)?.get_model_by_name(`${chart}:${name}`);
  function fill(chart, layer, data) { const source = model(chart, layer); if (source) source.data = data; }
  function range(chart, axis, [start, end], bounded) {
    const r = model(chart, axis);
    if (!r) return;
    if (bounded) r.bounds = null;
    r.setv({start, end});
    if (bounded) r.bounds = [start, end];
  }
  function ticks(chart, pairs) {
    const doc = drawn.get(chart);
    const axis = [...doc._all_models.values()].filter((m) => /Axis$/.test(m.type)).find((m) => m.dimension === 1 || m.panel?.side === "left")
      ?? doc.roots()[0].left[0];
    axis.major_label_overrides = new Map(pairs);
    axis.ticker.ticks = pairs.map(([at]) => at);
  }
  function height(chart, pixels) {
    const place = document.getElementById(`chart-${chart}`);
    place.style.height = `${pixels}px`;
    drawn.get(chart).roots()[0].height = pixels;
  }
  const say = (name, text) => { const p = document.querySelector(`[data-note="${name}"]`); if (p) p.textContent = text; };

  // -- choices ---------------------------------------------------------------------------------------------------
  const pick = (name) => document.querySelector(`[data-pick="${name}"]`);
  function theory() {
    const kind = payloads.theory[+pick("theory").value];
    for (const layer of ["calls", "groups", "band", "limit"]) fill("theory", layer, kind[layer]);
    range("theory", "x", kind.x); range("theory", "y", kind.y);
    say("theory", kind.note);
  }
  function pipeline() {
    const view = payloads.pipeline[+pick("pipeline").value];
    fill("pipeline", "idle", view.idle); fill("pipeline", "work", view.work);
    range("pipeline", "x", view.x, true); range("pipeline", "y", view.y);
    ticks("pipeline", view.ticks);
    say("pipeline", view.note);
  }
  if (payloads.theory) { ready.theory = theory; pick("theory").addEventListener("change", theory); }
  if (payloads.pipeline) { ready.pipeline = pipeline; pick("pipeline").addEventListener("change", pipeline); }

  // -- timeline --------------------------------------------------------------------------------------------------
  let ranks = null;
  async function unpack(text) {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  }
  const ms = (ns) => { const v = ns / 1e6, a = Math.abs(v); return a >= 1000 ? Math.round(v).toLocaleString("en-US") : a >= 10 ? v.toFixed(1) : v.toFixed(3); };
  const colour = (lane) => lane.kind === "comm" ? colours.strategies[lane.name.split("|")[0]] ?? colours.strategies.unknown
    : colours.lanes[lane.name];
  function put(into, blocks, at, low, lane, what) {
    const [offset, length, busy, count] = blocks;
    for (let i = 0; i < offset.length; i++) {
      const left = at + offset[i], right = left + length[i], full = length[i] ? busy[i] / length[i] : 1;
      into.left.push(left / 1e6); into.right.push(right / 1e6);
      into.bottom.push(low + 0.08); into.top.push(low + 0.08 + 0.84 * Math.max(full, 0.06));
      into.colour.push(colour(lane)); into.what.push(`${what}, ${count[i]} ${count[i] === 1 ? "activity" : "activities"}`);
      into.ms.push(`${ms(busy[i])} of ${ms(length[i])}`);
      at = right;
    }
  }
  const empty = () => ({left: [], right: [], bottom: [], top: [], colour: [], what: [], ms: []});
  const sum = (blocks) => blocks[2].reduce((a, b) => a + b, 0);
  function lanes() {
    const chosen = all("[data-rank]").map((s) => s.value).filter((v) => v !== "").map((v) => ranks[+v]);
    const rows = chosen.flatMap((rank) => rank.lanes.map((lane) => [rank, lane]));
    const pale = empty(), solid = empty(), labels = [], sums = [];
    rows.forEach(([rank, lane], i) => {
      const low = rows.length - 1 - i, name = `rank ${rank.name}, ${lane.name}`;
      labels.push([low + 0.5, chosen.length > 1 ? `${rank.name} ${lane.name}` : lane.name]);
      if (lane.kind === "comm") {
        put(pale, lane.all, rank.start, low, lane, name);
        put(solid, lane.exposed, rank.start, low, lane, `${name}, exposed`);
      } else put(solid, lane.all, rank.start, low, lane, name);
      sums.push([rank.name, lane.name, sum(lane.all), lane.exposed ? sum(lane.exposed) : null]);
    });
    fill("timeline", "pale", pale); fill("timeline", "solid", solid);
    range("timeline", "y", [0, Math.max(rows.length, 1)]);
    ticks("timeline", labels);
    height("timeline", 70 + 34 * Math.max(rows.length, 3));
    const table = document.createElement("table");
    const line = (tag, cells) => {
      const tr = document.createElement("tr");
      cells.forEach((c, i) => { const td = document.createElement(tag); td.textContent = c; if (i > 1) td.className = "n"; tr.append(td); });
      return tr;
    };
    const body = document.createElement("tbody"), head = document.createElement("thead");
    head.append(line("th", ["rank", "lane", "busy (ms)", "exposed (ms)"]));
    sums.forEach(([r, l, b, e]) => {
      const tr = line("td", [r, l, ms(b), e === null ? "–" : ms(e)]);
      tr.dataset.busy = b; if (e !== null) tr.dataset.exposed = e;
      body.append(tr);
    });
    table.append(head, body);
    const wide = document.createElement("div");
    wide.className = "wide"; wide.append(table);
    document.querySelector('[data-note="timeline"]').replaceChildren(wide);
  }
  if (payloads.timeline) {
    ready.timeline = async () => {
      if (typeof DecompressionStream === "undefined") { say("timeline", "This browser cannot unpack the timeline; one of 2023 or later can."); return; }
      ranks ??= await unpack(payloads.timeline.ranks);
      lanes();
    };
    all("[data-rank]").forEach((s) => s.addEventListener("change", () => { if (ranks) lanes(); }));
  }

  // -- zoom ------------------------------------------------------------------------------------------------------
  all("[data-zoom]").forEach((button) => button.addEventListener("click", () => {
    const r = model(button.dataset.of, "x");
    if (!r) return;
    const [low, high] = r.bounds, width = r.end - r.start, middle = (r.start + r.end) / 2;
    let [a, b] = {in: [middle - width / 4, middle + width / 4], out: [middle - width, middle + width], all: [low, high],
      left: [r.start - width / 2, r.end - width / 2], right: [r.start + width / 2, r.end + width / 2]}[button.dataset.zoom];
    if (a < low) { b = Math.min(high, b + low - a); a = low; }
    if (b > high) { a = Math.max(low, a - (b - high)); b = high; }
    r.setv({start: a, end: b});
  }));

  // -- tabs ------------------------------------------------------------------------------------------------------
  all('[role="tablist"]').forEach((list) => {
    const tabs = all('[role="tab"]', list);
    const select = (tab) => tabs.forEach((t) => {
      t.setAttribute("aria-selected", t === tab); t.tabIndex = t === tab ? 0 : -1;
      document.getElementById(t.getAttribute("aria-controls")).hidden = t !== tab;
    });
    tabs.forEach((tab, i) => {
      tab.addEventListener("click", () => select(tab));
      tab.addEventListener("keydown", (e) => {
        const to = {ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: tabs.length - 1}[e.key];
        if (to === undefined) return;
        const next = tabs[(to + tabs.length) % tabs.length];
        select(next); next.focus(); e.preventDefault();
      });
    });
  });

  // -- findings --------------------------------------------------------------------------------------------------
  const search = document.querySelector('[data-find="findings"]'), boxes = all("input[data-severity]"), cards = all("li[data-severity]");
  function filter() {
    const wanted = new Set(boxes.filter((b) => b.checked).map((b) => b.dataset.severity)), text = search.value.toLowerCase();
    for (const card of cards) card.hidden = !(wanted.has(card.dataset.severity) && card.textContent.toLowerCase().includes(text));
    document.querySelector('[data-none="findings"]').hidden = cards.some((c) => !c.hidden);
  }
  if (search) { search.addEventListener("input", filter); boxes.forEach((b) => b.addEventListener("change", filter)); }

  // -- theme and place -------------------------------------------------------------------------------------------
  const toggle = document.getElementById("theme");
  const label = () => { toggle.textContent = dark() ? "light" : "dark"; toggle.setAttribute("aria-label", `use ${toggle.textContent} colours`); };
  const repaint = () => { label(); drawn.forEach(paint); };
  toggle.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; repaint(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  label();
  const links = new Map(all("nav a").map((a) => [a.hash.slice(1), a]));
  const here = new IntersectionObserver((entries) => {
    for (const e of entries) if (e.isIntersecting) {
      links.forEach((a) => a.removeAttribute("aria-current"));
      links.get(e.target.id)?.setAttribute("aria-current", "true");
    }
  }, {rootMargin: "-20% 0px -70% 0px"});
  all("main > section").forEach((s) => here.observe(s));
  document.body.dataset.ready = "true";
})();
