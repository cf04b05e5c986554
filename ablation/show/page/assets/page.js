// Unpack the compressed part of the page: folded HTML goes to its placeholders, and `data` to the scripts that draw it.
(function () {
  "use strict";

  const bytes = Uint8Array.from(atob(document.getElementById("packed").textContent), (c) => c.charCodeAt(0));
  const opened = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const ready = new Response(opened).json().then(({ folded, data }) => {
    // A part that contains placeholders has a higher number than their content, and must be inserted before it.
    folded.map((html, i) => [html, i]).reverse().forEach(([html, i]) => { document.querySelector(`[data-folded="${i}"]`).outerHTML = html; });
    window.ablation.data = data;
    const aim = () => {
      const place = document.getElementById(decodeURIComponent(location.hash.slice(1)));
      if (!place) return;
      for (let node = place.querySelector(":scope > details") || place; node; node = node.parentElement) if (node.localName === "details") node.open = true;
      place.scrollIntoView();
    };
    window.addEventListener("hashchange", aim);
    aim();
  });
  window.ablation = { ready };
  ready.then(() => { document.documentElement.dataset.ready = "yes"; });
})();

// Sort (tablesort) and filter tables and lists, and unfold parts for a print.
(function () {
  "use strict";

  Tablesort.extend("number", () => false, (a, b) => parseFloat(b) - parseFloat(a) || 0);

  function isMissing(row, column) {
    const value = row.cells[column].dataset.sort;
    return value === undefined || value === "" || Number.isNaN(Number(value));
  }

  // A missing value is neither the best nor the worst, so it comes last in either order.
  function missingLast(table) {
    const header = table.querySelector("th[aria-sort]");
    if (!header) return;
    const body = table.tBodies[0];
    Array.from(body.rows)
      .filter((row) => row.dataset.sortMethod !== "none" && isMissing(row, header.cellIndex))
      .forEach((row) => body.appendChild(row));
  }

  window.ablation.ready.then(() => document.querySelectorAll("table[data-sortable]").forEach((table) => {
    new Tablesort(table);
    table.addEventListener("afterSort", () => missingLast(table));
    table.querySelectorAll("thead th").forEach((th) => th.removeAttribute("tabindex")); // its button takes the focus
  }));

  window.ablation.ready.then(() => document.querySelectorAll("[data-filter-for]").forEach((controls) => {
    const table = document.getElementById(controls.dataset.filterFor);
    const text = controls.querySelector(".filter");
    const verdict = controls.querySelector(".verdict-filter");
    const count = controls.querySelector(".count");
    function apply() {
      const words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
      const rows = Array.from(table.tBodies ? table.tBodies[0].rows : table.children).filter((row) => row.dataset.text !== undefined);
      let shown = 0;
      rows.forEach((row) => {
        const content = row.dataset.text.toLowerCase();
        const fits = words.every((word) => content.includes(word)) && (!verdict || !verdict.value || row.dataset.verdict.split("|").includes(verdict.value));
        row.hidden = !fits;
        shown += fits ? 1 : 0;
      });
      const all = `${rows.length} variant${rows.length === 1 ? "" : "s"}`;
      count.textContent = shown === rows.length ? all : `${shown} of ${all}`;
    }
    text.addEventListener("input", apply);
    if (verdict) verdict.addEventListener("change", apply);
    apply();
  }));

  // Show one of the tables that are grouped by the value of a key.
  window.ablation.ready.then(() => document.querySelectorAll(".groups").forEach((groups) => {
    const key = groups.querySelector(".group-key");
    const tables = Array.from(groups.querySelectorAll(".group"));
    const show = () => tables.forEach((table, i) => { table.hidden = i !== key.selectedIndex; });
    groups.querySelector(".controls").hidden = false;
    key.addEventListener("change", show);
    show();
  }));

  // A print shows everything except the long tails of lists; afterwards the page is folded as before.
  let opened = [];
  window.addEventListener("beforeprint", () => {
    opened = Array.from(document.querySelectorAll(".study > details:not([open]), .part:not([open]), .row > details:not([open])"));
    opened.forEach((details) => { details.open = true; });
  });
  window.addEventListener("afterprint", () => opened.forEach((details) => { details.open = false; }));

  // Filter the items that changed by subset.
  window.ablation.ready.then(() => document.querySelectorAll(".samples").forEach((samples) => {
    const select = samples.querySelector(".sample-subset");
    if (!select) return;
    const items = [...samples.querySelectorAll("li[data-subset]")];
    const count = samples.querySelector("output");
    const show = () => {
      for (const item of items) item.hidden = select.value !== "" && item.dataset.subset !== select.value;
      const shown = items.filter((item) => !item.hidden).length;
      count.textContent = shown === items.length ? "" : `${shown} of ${items.length} items`;
    };
    select.addEventListener("change", show);
    samples.querySelector(".controls").hidden = false;
    show(); // a browser may restore the choice of an earlier visit
  }));
})();

// Save the data of a figure (CSV) or its picture (SVG); both are made in the browser and sent nowhere.
(function () {
  "use strict";

  const STYLES = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "opacity", "font-size", "text-anchor"];

  function element(name, text, className) {
    const node = document.createElement(name);
    if (text !== undefined && text !== null) node.textContent = text;
    if (className) node.className = className;
    return node;
  }

  function drawn(name, attributes, ...children) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    Object.entries(attributes).forEach(([key, value]) => node.setAttribute(key, value));
    node.append(...children);
    return node;
  }

  const label = (x, y, text, more) => drawn("text", { x, y, fill: "#1d1d1b", "font-size": 12, ...more }, text);

  function save(name, type, text) {
    const link = element("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  function saveSvg(name, title, width, height, parts) {
    const paper = drawn("rect", { width: "100%", height: "100%", fill: "#ffffff" });
    const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "font-family": "Helvetica, Arial, sans-serif" });
    svg.append(drawn("title", {}, title), paper, label(8, 20, title, { "font-weight": 600, "font-size": 14 }), ...parts);
    save(`${name}.svg`, "image/svg+xml", new XMLSerializer().serializeToString(svg));
  }

  // Numbers stay as they are; text that a spreadsheet would run as a formula gets a leading apostrophe.
  function csv(rows) {
    const cell = (value) => {
      if (value === null || value === undefined) return "";
      if (typeof value === "number") return String(value);
      const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
      return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    return rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";
  }

  // A copy of a drawing of the page, with its styles as attributes, at the position (x, y) of another drawing.
  function still(svg, x, y) {
    const copy = svg.cloneNode(true), shown = [svg, ...svg.querySelectorAll("*")];
    [copy, ...copy.querySelectorAll("*")].forEach((node, i) => {
      const style = getComputedStyle(shown[i]);
      STYLES.forEach((name) => node.setAttribute(name, style.getPropertyValue(name)));
    });
    copy.setAttribute("x", x);
    copy.setAttribute("y", y);
    return copy;
  }

  // The axis of the variant tree, and a row for each change: its interval as on the page, the numbers and the verdict.
  function effects(article, { rows }) {
    const [axis, ...forests] = article.querySelectorAll(".row .forest");
    const parts = rows.flatMap(([variant, against, , verdict], i) => {
      const y = 70 + 24 * i, effect = forests[i].closest(".line").querySelector(".c-effect").textContent.replace(/\s+/g, " ").trim();
      const word = { "text-anchor": "end", "font-weight": 600, fill: getComputedStyle(forests[i]).color };
      return [label(8, y + 16, `${variant}, from ${against}`.slice(0, 40)), still(forests[i], 250, y), label(500, y + 16, effect, { "font-size": 11 }), label(752, y + 16, verdict, word)];
    });
    return [": effect of each change", 760, 80 + 24 * rows.length, [still(axis, 250, 36), ...parts]];
  }

  // The panels of the page, three side by side, and their key.
  function published(article, plots) {
    const panels = [...article.querySelectorAll(".panels svg")], [width, height] = ["width", "height"].map((side) => panels[0][side].baseVal.value);
    const rows = Math.ceil(panels.length / 3), y = 50 + rows * (height + 30);
    const parts = panels.flatMap((svg, i) => {
      const [left, top] = [(i % 3) * width, 50 + Math.floor(i / 3) * (height + 30)];
      return [label(left + 8, top - 6, plots[i].label, { "font-weight": 600 }), still(svg, left, top)];
    });
    const [measured, reported] = [...article.querySelectorAll("svg.key")].reverse();
    const key = [still(reported, 8, y - 10), label(24, y, "published"), still(measured, 100, y - 10), label(116, y, "measured, ± one standard deviation over seeds")];
    return [": published and measured", Math.max(width * Math.min(3, panels.length), 400), y + 12, [...parts, ...key]];
  }

  const FIGURES = {
    effects: { draw: effects, table: ({ columns, rows }) => [columns, ...rows] },
    published: {
      draw: published,
      table: (plots) => [["column", "variant", "published", "measured", "sd"], ...plots.flatMap(({ label, rows }) => rows.map((row) => [label, ...row]))],
    },
  };

  window.ablation.ready.then(() => document.querySelectorAll(".figure-tools").forEach((tools) => {
    const { title, [tools.dataset.figure]: content } = window.ablation.data[tools.dataset.source];
    const { draw, table } = FIGURES[tools.dataset.figure];
    const article = tools.closest("article"), name = `${article.id}-${tools.dataset.figure}`;
    tools.querySelector(".save-svg").addEventListener("click", () => {
      document.documentElement.classList.add("paper"); // light colours, even if the page is dark
      const [what, ...picture] = draw(article, content);
      document.documentElement.classList.remove("paper");
      saveSvg(name, `${title}${what}`, ...picture);
    });
    tools.querySelector(".save-csv").addEventListener("click", () => save(`${name}.csv`, "text/csv", csv(table(content))));
    tools.hidden = false;
  }));

  Object.assign(window.ablation, { element, drawn, label, save, saveSvg, csv });
})();
