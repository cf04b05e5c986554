// Items that changed: the filter by subset.
"use strict";
window.ablation.ready.then(() => { for (const samples of document.querySelectorAll(".samples")) {
  const select = samples.querySelector(".sample-subset");
  if (!select) continue;
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
} });
