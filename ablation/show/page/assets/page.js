// What the page holds packed: lists that stand folded go to their places, and `data` to the scripts that draw it.
(function () {
  "use strict";

  const bytes = Uint8Array.from(atob(document.getElementById("packed").textContent), (c) => c.charCodeAt(0));
  const opened = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const ready = new Response(opened).json().then(({ folded, data }) => {
    // One that holds others is counted after them, and must be there before them.
    folded.map((html, i) => [html, i]).reverse().forEach(([html, i]) => { document.querySelector(`[data-folded="${i}"]`).outerHTML = html; });
    window.ablation.data = data;
    const aim = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (aim) aim.scrollIntoView();
  });
  window.ablation = { ready };
  ready.then(() => { document.documentElement.dataset.ready = "yes"; });
})();

// Sorting (tablesort) and filtering of tables and lists, and what a print shows.
(function () {
  "use strict";

  Tablesort.extend("number", () => false, (a, b) => parseFloat(b) - parseFloat(a) || 0);

  function isMissing(row, column) {
    const value = row.cells[column].dataset.sort;
    return value === undefined || value === "" || Number.isNaN(Number(value));
  }

  // A missing value is neither the best nor the worst: whichever way one sorts, it comes last.
  function missingLast(table) {
    const header = table.querySelector("th[aria-sort]");
    if (!header) return;
    const body = table.tBodies[0];
    Array.from(body.rows)
      .filter((row) => row.dataset.sortMethod !== "none" && isMissing(row, header.cellIndex))
      .forEach((row) => body.appendChild(row));
  }

  document.querySelectorAll("table[data-sortable]").forEach((table) => {
    new Tablesort(table);
    table.addEventListener("afterSort", () => missingLast(table));
    table.querySelectorAll("thead th").forEach((th) => th.removeAttribute("tabindex")); // its button takes the focus
  });

  document.querySelectorAll("[data-filter-for]").forEach((controls) => {
    const table = document.getElementById(controls.dataset.filterFor);
    const text = controls.querySelector(".filter");
    const verdict = controls.querySelector(".verdict-filter");
    const count = controls.querySelector(".count");
    function apply() {
      const words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
      const rows = Array.from(table.tBodies[0].rows).filter((row) => row.dataset.words !== undefined);
      let shown = 0;
      rows.forEach((row) => {
        const content = row.dataset.words.toLowerCase();
        const fits = words.every((word) => content.includes(word)) && (!verdict || !verdict.value || row.dataset.verdict.split("|").includes(verdict.value));
        row.hidden = !fits;
        shown += fits ? 1 : 0;
      });
      count.textContent = shown === rows.length ? `${rows.length} variants` : `${shown} of ${rows.length} variants`;
    }
    text.addEventListener("input", apply);
    if (verdict) verdict.addEventListener("change", apply);
    apply();
  });

  // Of the tables by the value of a key one is shown.
  window.ablation.ready.then(() => document.querySelectorAll(".groups").forEach((groups) => {
    const key = groups.querySelector(".group-key");
    const tables = Array.from(groups.querySelectorAll(".group"));
    const show = () => tables.forEach((table, i) => { table.hidden = i !== key.selectedIndex; });
    groups.querySelector(".controls").hidden = false;
    key.addEventListener("change", show);
    show();
  }));

  // A print shows the evidence and changes of every edge, not the long tails of lists; afterwards the page is as it was.
  let opened = [];
  window.addEventListener("beforeprint", () => {
    opened = Array.from(document.querySelectorAll(".lineage .c-evidence > details:not([open]), .lineage details.more:not([open])"));
    opened.forEach((details) => { details.open = true; });
  });
  window.addEventListener("afterprint", () => opened.forEach((details) => { details.open = false; }));

  // Items that changed: the filter by subset.
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
