// A served page follows the grid: what runs now every few seconds, the page itself when the server has a newer one.
// A reader keeps the place: scroll, open details, choices, sorting and focus stay over a reload, which waits for a pause.
(function () {
  "use strict";

  const EVERY = 5000; // ms between two questions, while the page is in sight
  const PAUSE = 8000; // ms without a touch, after which the page may change under the reader
  const KEPT = "ablation-serve";
  const CONTROLS = "input, select, textarea";
  const section = () => document.getElementById("now");
  const ours = section().dataset.page;
  const title = document.title;
  let touched = 0, text = "", lost = null;

  // --- what the reader has chosen -------------------------------------------------------------------------------

  // The nearest named element above, and the place among its descendants of that kind.
  function address(element) {
    if (element.id) return `#${element.id}`;
    const home = element.parentElement.closest("[id]") || document.body;
    return `${home.id}|${element.tagName}|${Array.from(home.querySelectorAll(element.tagName)).indexOf(element)}`;
  }

  function find(place) {
    if (place.startsWith("#")) return document.getElementById(place.slice(1));
    const [id, tag, index] = place.split("|");
    const home = id ? document.getElementById(id) : document.body;
    return (home && home.querySelectorAll(tag)[Number(index)]) || null;
  }

  const valueOf = (control) => (control.type === "checkbox" || control.type === "radio" ? control.checked : control.value);

  function isChosen(control) {
    if (control.tagName === "SELECT") {
      const first = Array.from(control.options).findIndex((option) => option.defaultSelected);
      return control.selectedIndex !== Math.max(first, 0);
    }
    return control.type === "checkbox" || control.type === "radio" ? control.checked !== control.defaultChecked : control.value !== control.defaultValue;
  }

  function set(control, value) {
    if (control.tagName === "SELECT" && !Array.from(control.options).some((option) => option.value === value)) return; // it has gone
    if (control.type === "checkbox" || control.type === "radio") control.checked = value;
    else control.value = value;
  }

  function tell(control, ...events) {
    events.forEach((name) => control.dispatchEvent(new Event(name, { bubbles: true })));
  }

  // The last step, which is another one when a run has gone on.
  const atEnd = (control) => control.matches(".step") && control.value === control.max;

  const curves = new Set(); // whose controls a reader has used: their script sets them too

  function keep() {
    const controls = Array.from(document.querySelectorAll(CONTROLS));
    const anchor = Array.from(document.querySelectorAll("main [id]:not(#now):not(#now *)")).filter((e) => e.getClientRects().length && e.getBoundingClientRect().top <= 80).pop();
    const state = {
      open: Array.from(document.querySelectorAll("details[open]")).map(address),
      chosen: controls.filter((c) => !c.closest(".curves") && isChosen(c)).map((c) => [address(c), valueOf(c)]),
      curves: [...curves].map((root) => [address(root), Array.from(root.querySelectorAll(CONTROLS)).map((c) => (atEnd(c) ? null : valueOf(c)))]),
      sorted: Array.from(document.querySelectorAll("th[aria-sort] button")).map((b) => [address(b), b.closest("th").getAttribute("aria-sort")]),
      focus: document.activeElement && document.activeElement !== document.body ? address(document.activeElement) : null,
      anchor: anchor ? [address(anchor), anchor.getBoundingClientRect().top] : null,
      y: window.scrollY,
    };
    sessionStorage.setItem(KEPT, JSON.stringify(state));
  }

  function restore() {
    const kept = sessionStorage.getItem(KEPT);
    sessionStorage.removeItem(KEPT);
    if (!kept) return;
    const state = JSON.parse(kept);
    const each = (list, use) => list.forEach(([place, value]) => { const element = find(place); if (element) use(element, value); });
    each(state.open.map((place) => [place]), (details) => { details.open = true; });
    each(state.sorted, (button, way) => {
      for (let i = 0; i < 2 && button.closest("th").getAttribute("aria-sort") !== way; i++) button.click();
    });
    each(state.chosen, (control, value) => { set(control, value); tell(control, "input", "change"); });
    each(state.curves, (root, values) => {
      curves.add(root);
      // They are drawn when they come into sight, and choose their first variants then.
      const wait = () => (root.curves ? again(root, values) : setTimeout(wait, 50));
      new IntersectionObserver((entries, observer) => {
        if (!entries.some((entry) => entry.isIntersecting)) return;
        observer.disconnect();
        wait();
      }, { rootMargin: "600px" }).observe(root);
    });
    const back = () => {
      const anchor = state.anchor && find(state.anchor[0]);
      if (anchor) window.scrollBy(0, anchor.getBoundingClientRect().top - state.anchor[1]);
      else window.scrollTo(0, state.y);
    };
    back();
    if (state.focus && find(state.focus)) find(state.focus).focus({ preventScroll: true });
    setTimeout(() => { if (!touched) back(); }, 300); // curves above have been drawn, and are higher now
  }

  function again(root, values) {
    const search = root.querySelector(".metric-search");
    const controls = Array.from(root.querySelectorAll(CONTROLS));
    if (controls.length !== values.length) return; // other variants than before
    if (search) {
      search.value = values[controls.indexOf(search)];
      tell(search, "input");
    }
    controls.forEach((control, at) => { if (!control.matches(".step")) set(control, values[at]); });
    const [metric, step] = [root.querySelector(".metric"), root.querySelector(".step")];
    if (metric) tell(metric, "change");
    if (!step || values[controls.indexOf(step)] === null) return;
    set(step, values[controls.indexOf(step)]);
    tell(step, "input");
  }

  // --- following ------------------------------------------------------------------------------------------------

  const bar = document.createElement("p");
  bar.className = "controls now-follow";
  bar.innerHTML = '<label class="check"><input type="checkbox" checked> show new results when I pause</label> <button type="button" hidden>New results are there: show them</button> <span role="status"></span>';
  section().after(bar);
  const [follow, show, status] = ["input", "button", "span"].map((name) => bar.querySelector(name));
  follow.id = "now-follow";
  follow.setAttribute("autocomplete", "off");

  function reload() {
    keep();
    history.scrollRestoration = "manual";
    location.reload();
  }

  // Nobody reads closely, writes or marks text just now.
  function paused() {
    if (document.hidden) return true;
    const active = document.activeElement;
    const writes = active && active.matches('select, textarea, input:not([type="checkbox"]):not([type="range"])');
    return Date.now() - touched > PAUSE && !writes && window.getSelection().isCollapsed;
  }

  function look() {
    const newer = section().dataset.page !== ours;
    show.hidden = !newer;
    if (newer && ((follow.checked && paused()) || !ours)) reload();
  }

  function place(html) {
    if (html === text) return;
    text = html;
    const fresh = new DOMParser().parseFromString(html, "text/html").getElementById("now");
    if (!fresh) return;
    const old = section();
    old.querySelectorAll("details[open]").forEach((details) => {
      const same = details.id && fresh.querySelector(`#${details.id}`);
      if (same) same.open = true;
    });
    const focused = old.contains(document.activeElement) ? address(document.activeElement) : null;
    old.replaceWith(document.adoptNode(fresh));
    if (focused && find(focused)) find(focused).focus({ preventScroll: true });
    const { done, stages } = fresh.dataset;
    document.title = Number(done) < Number(stages) ? `${done}/${stages} ${title}` : title;
  }

  async function ask() {
    if (document.hidden) return;
    try {
      const answer = await fetch("/now", { cache: "no-cache", signal: AbortSignal.timeout(60000) });
      if (!answer.ok) throw new Error(String(answer.status));
      place(await answer.text());
      lost = null;
      status.textContent = "";
    } catch {
      lost = lost || new Date();
      status.textContent = `The server has not answered since ${lost.toLocaleTimeString()}: all that is here is of then.`;
    }
    status.className = lost ? "lost" : "";
    look();
  }

  async function loop() {
    await ask();
    setTimeout(loop, EVERY);
  }

  show.addEventListener("click", reload);
  follow.addEventListener("change", look);
  ["pointerdown", "keydown", "wheel", "touchmove"].forEach((name) => document.addEventListener(name, () => { touched = Date.now(); }, { passive: true }));
  ["input", "change"].forEach((name) => document.addEventListener(name, (event) => {
    const root = event.isTrusted && event.target.closest(".curves");
    if (root) curves.add(root);
  }));
  document.addEventListener("visibilitychange", () => { if (!document.hidden) ask(); });
  (window.ablation ? window.ablation.ready : Promise.resolve()).then(restore);
  loop();
})();
