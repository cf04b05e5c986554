// A served page: what runs now, every few seconds, and a newer page, by itself until the reader has used this one.
(function () {
  "use strict";
  const section = document.getElementById("now"), [text, note] = [section.querySelector("pre"), section.querySelector("p")];
  let used = false;
  for (const event of ["click", "input", "keydown"]) addEventListener(event, () => { used = true; }, { capture: true });

  async function poll() {
    if (document.hidden) return;
    try {
      const said = await (await fetch("/now")).text(), end = said.indexOf("\n");
      text.textContent = said.slice(end + 1);
      note.textContent = "";
      if (said.slice(0, end) === section.dataset.page) return;
      if (!used) location.reload(); // the browser keeps the place
      else note.textContent = "Newer results are available; reload the page.";
    } catch {
      note.textContent = "The server has stopped; this page is no longer updated.";
    }
  }
  setInterval(poll, 5000);
})();
