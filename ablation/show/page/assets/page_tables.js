// Sorting (tablesort) and filtering of the comparison tables.
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
})();
