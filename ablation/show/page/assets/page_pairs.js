// Any two variants: the effect, the differences between their configurations, and their curves.
(function () {
  "use strict";

  const TURNED = { better: "worse", worse: "better" };
  const MINUS = "\u2212";

  const { element, drawn } = window.ablation;

  // As ablation/contract/numbers.py: `up` rounds an end of an interval outwards.
  function signed(value, decimals, up) {
    let text = value.toFixed(decimals);
    const step = 10 ** -decimals, inside = up === undefined ? 0 : (value - Number(text)) * (up ? 1 : -1);
    if (inside > 1e-9 * step) text = (Number(text) + (up ? step : -step)).toFixed(decimals);
    if (Number(text) === 0) {
      const dust = up === undefined || Math.abs(value) <= 1e-9 * step;
      return dust ? text.replace("-", "") : signed(value, decimals + 1, up);
    }
    return `${value < 0 ? "" : "+"}${text}`.replace("-", MINUS);
  }

  function pValue(p) {
    if (p <= 0) return "p < 1e\u2212300";
    const text = p < 1e-4 ? p.toExponential(1).replace(".0e", "e").replace(/e-(\d)$/, "e-0$1") : String(Number(p.toPrecision(2)));
    return `p = ${text.replace("-", MINUS)}`;
  }

  const counted = (number, what) => `${number.toLocaleString("en")} ${what}${number === 1 ? "" : "s"}`;

  const marked = (name) => name.replace(" ", "-"); // as a class and an id

  function verdict(name) {
    const mark = drawn("svg", { class: "mark", width: 14, height: 14, "aria-hidden": "true" }, drawn("use", { href: `#m-${marked(name)}` }));
    const node = element("span", undefined, `verdict v-${marked(name)}`);
    node.append(mark, `\u00a0${name}`);
    return node;
  }

  class Compare {
    constructor(root) {
      this.root = root;
      this.data = window.ablation.data[root.dataset.source];
      this.find = (selector) => root.querySelector(selector);
      this.decimals = Number(root.dataset.decimals);
      ["one", "other"].forEach((name) => this.find(`.${name}`).addEventListener("change", () => this.choose()));
      this.find(".equal").addEventListener("change", () => this.differences());
      this.find(".swap").addEventListener("click", () => {
        const [one, other] = [this.find(".one"), this.find(".other")];
        [one.value, other.value] = [other.value, one.value];
        this.choose();
      });
      this.find(".save-pairs").addEventListener("click", () => {
        window.ablation.save(`${root.closest("article").id}-pairs.csv`, "text/csv", window.ablation.csv(this.table()));
      });
      const matrix = root.parentElement.querySelector(".matrix");
      if (matrix) {
        matrix.classList.add("live");
        matrix.tBodies[0].addEventListener("click", (event) => {
          const cell = event.target.closest("td");
          if (!cell || !cell.textContent) return;
          this.find(".one").selectedIndex = cell.parentElement.rowIndex - 1;
          this.find(".other").selectedIndex = cell.cellIndex - 1;
          this.choose();
          this.find(".one").focus();
        });
      }
      root.hidden = false;
      this.draw();
    }

    // The numbers of every pair, each pair once.
    table() {
      const { variants, pairs, verdicts } = this.data;
      const rows = Object.entries(pairs).map(([names, [effect, low, high, p, verdict, seeds, items]]) => {
        const [one, other] = names.split(" ").map((at) => variants[at]);
        return [one, other, effect, low, high, p, verdicts[verdict], seeds, items];
      });
      return [["variant", "against", "effect", "low", "high", "p, not corrected", "verdict", "seeds", "items"], ...rows];
    }

    // The curves below show the same pair, now or when they come into sight.
    choose() {
      this.draw();
      const curves = this.root.closest("article").querySelector(".curves");
      if (!curves || this.one === this.other) return;
      curves.dataset.pair = `${this.other}\t${this.one}`;
      if (curves.curves) curves.curves.start();
    }

    // [effect, low, high, p, verdict, seeds, items, why] of the first against the second, or null.
    numbers() {
      const [i, j] = [this.one, this.other].map((name) => this.data.variants.indexOf(name));
      const forward = this.data.pairs[`${i} ${j}`];
      const row = forward || this.data.pairs[`${j} ${i}`];
      if (!row) return null;
      const name = this.data.verdicts[row[4]];
      const [effect, low, high] = forward ? row : [row[0], row[2], row[1]].map((value) => (value === null ? null : -value));
      return { effect, low, high, p: row[3], verdict: forward ? name : TURNED[name] || name, seeds: row[5], items: row[6], why: this.data.whys[row[7]],
        comparison: this.data.comparisons[`${i} ${j}`] };
    }

    draw() {
      this.one = this.find(".one").value;
      this.other = this.find(".other").value;
      this.differences();
      const row = this.numbers();
      const outcome = this.find(".outcome");
      outcome.replaceChildren();
      const notes = [];
      if (this.one === this.other) outcome.append("Choose two different variants.");
      else if (!row) outcome.append(`${this.one} against ${this.other}`);
      else {
        outcome.append(element("strong", this.one), " against ", element("strong", this.other), ": ");
        if (row.effect === null) outcome.append(verdict(row.verdict));
        else {
          outcome.append(element("span", signed(row.effect, this.decimals), "num"), " ");
          if (row.low !== null) outcome.append(element("span", `[${signed(row.low, this.decimals, false)}, ${signed(row.high, this.decimals, true)}]`, "num range"), " ");
          outcome.append(verdict(row.verdict), this.forest(row));
          notes.push(`${row.p === null ? "" : `${pValue(row.p)}, not corrected; `}${this.root.dataset.confidence} interval; ${counted(row.seeds, "seed")}${row.items === null ? "" : `, ${counted(row.items, "item")}`}.`);
        }
        if (row.comparison && row.effect !== null) notes.push(row.comparison === "not run" ? "The study has no verdict on this change yet." : `The study’s adjusted verdict on this change is ${row.comparison}.`);
        if (this.factors.length > 1 && row.effect !== null) notes.push(`${this.factors.length} factors differ (${this.factors.join(", ")}); the effect is their joint effect.`);
        if (row.why) notes.push(row.why.endsWith("?") ? row.why : `${row.why}.`);
      }
      this.find(".outcome-notes").textContent = notes.join(" ");
    }

    forest(row) {
      const { limit, width, pad, margin } = Object.fromEntries(["limit", "width", "pad", "margin"].map((key) => [key, Number(this.root.dataset[key])]));
      const x = (value) => pad + ((Math.min(Math.max(value / limit, -1), 1) + 1) / 2) * (width - 2 * pad);
      const svg = drawn("svg", { class: `forest v-${marked(row.verdict)}`, viewBox: `0 0 ${width} 24`, width, height: 24, "aria-hidden": "true" });
      if (margin) svg.append(drawn("rect", { class: "margin", x: x(-margin), y: 0, width: x(margin) - x(-margin), height: 24 }));
      svg.append(drawn("line", { class: "zero", x1: x(0), x2: x(0), y1: 0, y2: 24 }));
      if (row.low !== null) {
        svg.append(drawn("line", { class: "whisker", x1: x(row.low), x2: x(row.high), y1: 12, y2: 12 }));
        [row.low, row.high].forEach((end, which) => {
          if (Math.abs(end) > limit && end > 0 !== which > 0) return; // the whole interval is off the axis
          const arrow = `M${x(end) - 4 * Math.sign(end)} 8 ${x(end)} 12 ${x(end) - 4 * Math.sign(end)} 16`;
          svg.append(Math.abs(end) > limit ? drawn("path", { class: "stroke", d: arrow }) : drawn("line", { class: "whisker", x1: x(end), x2: x(end), y1: 8.5, y2: 15.5 }));
        });
      }
      svg.append(drawn("circle", { class: "point", cx: x(row.effect) - (Math.abs(row.effect) > limit ? 8 * Math.sign(row.effect) : 0), cy: 12, r: 4 }));
      return svg;
    }

    values(name) {
      const different = this.data.own[this.data.variants.indexOf(name)];
      return this.data.keys.map((_, at) => (at in different ? different[at] : this.data.base[at]));
    }

    differences() {
      const { keys } = this.data;
      const [first, second] = [this.find(".one").value, this.find(".other").value].map((name) => this.values(name));
      // `none` became a mapping, or the other way round: the keys below it show the change.
      const below = (values, key) => keys.some((other, at) => other.startsWith(`${key}.`) && values[at] !== null);
      const opened = (at) => (first[at] === null && below(first, keys[at])) || (second[at] === null && below(second, keys[at]));
      const shown = keys.map((_, at) => at).filter((at) => (first[at] !== null || second[at] !== null) && !opened(at));
      const differing = shown.filter((at) => first[at] !== second[at]);
      this.factors = [...new Set(differing.map((at) => this.data.factors[keys[at]] || keys[at]))];
      const table = this.find(".diff");
      table.querySelector(".of-one").textContent = this.find(".one").value;
      table.querySelector(".of-other").textContent = this.find(".other").value;
      const equal = this.find(".equal").checked;
      const rest = equal || !differing.length ? "" : "; the others are not shown";
      table.caption.textContent = shown.length ? `${differing.length} of ${counted(shown.length, "key")} ${differing.length === 1 ? "differs" : "differ"}${rest}` : "The configurations are not recorded";
      table.tHead.hidden = !(equal ? shown : differing).length;
      table.tBodies[0].replaceChildren(...(equal ? shown : differing).map((at) => {
        const row = element("tr", undefined, differing.includes(at) ? "differs" : "quiet");
        const name = element("th");
        name.scope = "row";
        name.append(element("code", keys[at]));
        // A key below a key that is `none` is also `none`.
        const none = (values) => keys.some((above, i) => values[i] === "none" && keys[at].startsWith(`${above}.`));
        const cell = (values) => {
          const node = element("td");
          if (values[at] !== null) node.append(element("code", values[at]));
          else node.append(none(values) ? element("code", "none") : element("span", "no such key", "quiet"));
          return node;
        };
        row.append(name, cell(second), cell(first));
        return row;
      }));
    }
  }

  window.ablation.ready.then(() => document.querySelectorAll(".compare").forEach((root) => { root.compare = new Compare(root); }));
})();
