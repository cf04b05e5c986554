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
