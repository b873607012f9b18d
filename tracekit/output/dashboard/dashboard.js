/* Links change the place without a new page; back and forward work; pictures follow light and dark. */
"use strict";
(() => {
  const root = document.documentElement;
  const push = history.pushState.bind(history);
  history.pushState = (state, title, url) => { if (new URL(url, location.href).href !== location.href) push(state, title, url); };

  const models = () => (window.Bokeh?.documents ?? []).flatMap((d) => [...d._all_models.values()]);
  const place = () => models().find((m) => m.type === "panel.models.location.Location");
  function go(search) {
    const model = place();
    if (!model) { location.search = search; return; }
    model.search = search;
    scrollTo({top: 0, behavior: "instant"});
  }
  addEventListener("popstate", () => { const model = place(); if (model) model.search = location.search; });
  addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    const link = event.composedPath().find((e) => e instanceof HTMLAnchorElement);
    const to = link?.getAttribute("href");
    if (!to?.startsWith("?")) return;
    event.preventDefault();
    go(to === "?" ? "" : to);
  });

  const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  function paint() {
    const style = getComputedStyle(root);
    const [ground, soft, line] = ["--bg", "--soft", "--line"].map((n) => style.getPropertyValue(n).trim());
    const font = "system-ui, sans-serif";
    for (const model of models()) {
      if (model.type === "Figure") {
        model.setv({background_fill_color: ground, border_fill_color: ground, outline_line_color: null}, {sync: false});
      } else if (/Axis$/.test(model.type)) {
        model.setv({axis_line_color: line, major_tick_line_color: line, minor_tick_line_color: null,
          major_label_text_color: soft, axis_label_text_color: soft, major_label_text_font: font, axis_label_text_font: font,
          major_label_text_font_size: "12px", axis_label_text_font_size: "12px", axis_label_text_font_style: "normal"}, {sync: false});
      } else if (model.type === "Grid" && model.grid_line_color !== null) {
        model.setv({grid_line_color: line, grid_line_alpha: 0.55}, {sync: false});
      }
    }
  }

  const button = document.getElementById("theme");
  function themed() {
    button.textContent = dark() ? "light" : "dark";
    button.setAttribute("aria-label", `use ${button.textContent} colours`);
    paint();
  }
  button.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; themed(); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", themed);

  let asked = 0;
  const later = () => { if (!asked) asked = requestAnimationFrame(() => { asked = 0; paint(); document.body.dataset.shown = Number(document.body.dataset.shown ?? 0) + 1; }); };
  const watched = new Set();
  const start = setInterval(() => {
    for (const doc of window.Bokeh?.documents ?? []) {
      if (watched.has(doc)) continue;
      watched.add(doc);
      doc.on_change((event) => { if (event.constructor.name !== "ModelChangedEvent" || event.attr === "children" || event.attr === "objects") later(); });
      later();
    }
    if (watched.size && place()) { clearInterval(start); document.body.dataset.ready = "true"; }
  }, 50);
  themed();
})();
