// Learning curves (uPlot): the mean over seeds, with a band from the lowest to the highest seed.
(function () {
  "use strict";

  // Okabe and Ito's palette, darkened or lightened to stay readable; each colour has its own dash.
  const LIGHT = ["#0068a8", "#c24e00", "#007a5a", "#a8527f", "#8a6500", "#2f8fc4", "#3a3a3a"];
  const DARK = ["#6ab7ec", "#f08c4a", "#3fc39c", "#df9cc0", "#e6b53c", "#a9d8f5", "#e4e4e4"];
  const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3], [4, 2], [1, 2], [12, 4]];
  const SLOTS = LIGHT.length;
  const WHOLE = Array.from({ length: 9 }, (_, power) => [1, 2, 5].map((digit) => digit * 10 ** power)).flat(); // steps between ticks
  const { element, drawn, label, save, saveSvg, csv } = window.ablation;
  const dark = window.matchMedia("screen and (prefers-color-scheme: dark)");

  // Return a function that writes the numbers of one table with the same decimals: four digits of the largest, two of the smallest.
  function writer(values) {
    const sizes = values.filter((value) => value).map(Math.abs);
    const places = (size, digits) => digits - 1 - Math.floor(Math.log10(size));
    const most = Math.max(...sizes), least = Math.min(...sizes);
    const tiny = sizes.length > 0 && (most < 1e-3 || most >= 1e5);
    const decimals = sizes.length ? Math.max(places(most, 4), Math.min(places(least, 2), places(most, 6)), 0) : 3;
    return (value) => {
      if (value === null || value === undefined) return "–";
      return (tiny ? value.toExponential(2) : value.toFixed(decimals)).replace("-", "−");
    };
  }

  function swatch(colour, dash) {
    const line = drawn("line", { x1: 0, x2: 26, y1: 5, y2: 5, stroke: colour, "stroke-width": 2, "stroke-dasharray": dash.join(" ") });
    return drawn("svg", { width: 26, height: 10, viewBox: "0 0 26 10" }, line);
  }

  // Fill gaps between the values of a seed by straight lines, because another run may have logged at other steps.
  function bridged(values) {
    const filled = values.slice();
    let last = -1;
    values.forEach((value, i) => {
      if (value === null) return;
      for (let j = last + 1; last >= 0 && j < i; j++) {
        filled[j] = values[last] + ((value - values[last]) * (j - last)) / (i - last);
      }
      last = i;
    });
    return filled;
  }

  // Summarise only steps at which every seed has a value: after an early stop, the mean of the other seeds is not that of the variant.
  function summary(seeds, count) {
    const mean = [], low = [], high = [];
    for (let i = 0; i < count; i++) {
      const values = seeds.map((seed) => seed.values[i]);
      const all = values.length > 0 && values.every((value) => value !== null);
      mean.push(all ? values.reduce((sum, value) => sum + value, 0) / values.length : null);
      low.push(all ? Math.min(...values) : null);
      high.push(all ? Math.max(...values) : null);
    }
    return { mean, low, high };
  }

  // Exponential moving average, corrected for its start at zero, as in TensorBoard; gaps stay gaps.
  function smoothed(values, weight) {
    let sum = 0, norm = 0;
    return values.map((value) => {
      if (value === null) return null;
      sum = weight * sum + (1 - weight) * value;
      norm = weight * norm + (1 - weight);
      return sum / norm;
    });
  }

  // The lowest, highest and last value of a line: {min, max, last}, each [value, index]; null for an empty line.
  function extremes(values) {
    const known = values.map((value, i) => [value, i]).filter(([value]) => value !== null);
    if (!known.length) return null;
    const by = (better) => known.reduce((best, point) => (better(point[0], best[0]) ? point : best));
    return { min: by((a, b) => a < b), max: by((a, b) => a > b), last: known[known.length - 1] };
  }

  // Interpolate values known at some x linearly at other x; null outside their range.
  function interpolated(x, values, wanted) {
    const known = x.map((at, i) => [at, values[i]]).filter(([, value]) => value !== null);
    let place = 0;
    return wanted.map((at) => {
      while (place + 1 < known.length && known[place + 1][0] < at) place++;
      if (!known.length || at < known[0][0] || at > known[known.length - 1][0]) return null;
      const [x0, y0] = known[place], [x1, y1] = known[Math.min(place + 1, known.length - 1)];
      return x1 > x0 ? y0 + ((y1 - y0) * (at - x0)) / (x1 - x0) : y0;
    });
  }

  class Curves {
    constructor(root) {
      this.root = root;
      this.data = window.ablation.data[root.dataset.source];
      this.find = (selector) => root.querySelector(selector);
      this.boxes = Array.from(root.querySelectorAll(".variants input"));
      this.slots = new Map(); // variant -> slot, which fixes colour and dash while it is shown
      this.cache = new Map();
      this.chart = null;
      this.listen();
      this.start();
    }

    listen() {
      this.find(".metric").addEventListener("change", () => this.draw());
      this.options = Array.from(this.find(".metric").options);
      this.find(".metric-search").addEventListener("input", () => this.search());
      [".smooth", ".log-steps", ".over"].forEach((name) => this.find(name).addEventListener("input", () => this.draw()));
      this.find(".save-csv").addEventListener("click", () => save(`${this.fileName()}.csv`, "text/csv", this.csv()));
      this.find(".save-svg").addEventListener("click", () => this.saveSvg());
      this.find(".each-seed").addEventListener("change", () => this.draw());
      this.find(".log-scale").addEventListener("change", () => this.draw());
      this.find(".step").addEventListener("input", () => this.read(Number(this.find(".step").value), true));
      this.find(".pair").addEventListener("change", () => {
        if (this.find(".pair").value) this.choose(this.find(".pair").value.split("\t"));
      });
      this.boxes.forEach((box) => box.addEventListener("change", () => {
        this.find(".pair").value = "";
        this.draw();
      }));
      dark.addEventListener("change", () => this.draw());
      window.addEventListener("afterprint", () => this.draw());
      let width = 0;
      new ResizeObserver(() => {
        const now = this.find(".plot").clientWidth;
        if (now === width || !this.chart) return;
        width = now;
        this.chart.setSize({ width: now, height: this.chart.height });
      }).observe(this.find(".plot"));
    }

    // Show the pair that was chosen above, else the comparison that is marked as the first, else the first two variants.
    start() {
      const wanted = this.root.dataset.pair;
      if (wanted) {
        const offered = Array.from(this.find(".pair").options).some((option) => option.value === wanted);
        this.find(".pair").value = offered ? wanted : "";
        this.choose(wanted.split("\t"));
        return;
      }
      const first = Array.from(this.find(".pair").options).find((option) => option.dataset.first !== undefined);
      if (first) {
        this.find(".pair").value = first.value;
        this.choose(first.value.split("\t"));
      } else this.choose(this.boxes.slice(0, 2).map((box) => box.value));
    }

    // Offer the metrics whose name or label contains the text, or matches it as a regular expression.
    search() {
      const text = this.find(".metric-search").value.trim();
      let fits = (name) => name.toLowerCase().includes(text.toLowerCase());
      try {
        const pattern = new RegExp(text, "i");
        fits = (name) => pattern.test(name);
      } catch { /* not a regular expression (yet): words */ }
      const select = this.find(".metric"), chosen = select.value;
      const found = this.options.filter((option) => fits(option.textContent));
      this.find(".metric-count").textContent = text ? `${found.length} of ${this.options.length}` : "";
      if (!found.length) return;
      select.replaceChildren(...found);
      select.value = found.some((option) => option.value === chosen) ? chosen : found[0].value;
      if (select.value !== chosen) this.draw();
    }

    choose(variants) {
      this.boxes.forEach((box) => { box.checked = variants.includes(box.value); });
      this.draw();
    }

    shown() {
      const chosen = this.boxes.filter((box) => box.checked).map((box) => box.value);
      Array.from(this.slots.keys()).filter((variant) => !chosen.includes(variant)).forEach((v) => this.slots.delete(v));
      chosen.forEach((variant) => {
        if (this.slots.has(variant)) return;
        const taken = new Set(this.slots.values());
        let slot = 0;
        while (taken.has(slot)) slot++;
        this.slots.set(variant, slot);
      });
      return chosen;
    }

    variant(metric, name) {
      const key = `${metric}|${name}`;
      if (!this.cache.has(key)) {
        const { steps, series } = this.data.metrics[metric];
        const index = this.data.variants.indexOf(name);
        const seeds = series.filter((s) => s[0] === index).map(([, seed, ok, bad, values]) => ({ seed, ok, bad, values: bridged(values) }));
        this.cache.set(key, { seeds, ...summary(seeds.filter((seed) => seed.ok), steps.length) });
      }
      return this.cache.get(key);
    }

    lineStyle(name, forPrint) {
      const slot = this.slots.get(name);
      const colours = dark.matches && !forPrint ? DARK : LIGHT;
      // The second round of the palette moves the dashes by one, so that no two of the first 49 variants look alike.
      return { colour: colours[slot % SLOTS], dash: DASHES[(slot + Math.floor(slot / SLOTS)) % SLOTS] };
    }

    draw(forPrint = false) {
      const index = Number(this.find(".metric").value);
      const metric = this.data.metrics[index];
      this.names = this.shown();
      this.parts = this.names.map((name) => ({ name, ...this.lineStyle(name, forPrint), ...this.variant(index, name) }));
      this.metric = metric;
      this.boxes.forEach((box) => {
        const place = box.parentElement.querySelector(".swatch");
        place.replaceChildren();
        if (box.checked) {
          const { colour, dash } = this.lineStyle(box.value, forPrint);
          place.appendChild(swatch(colour, dash));
        }
      });
      this.drawChart(forPrint);
      this.describe();
      const range = this.find(".step");
      const stay = Number(range.max) === metric.steps.length - 1 && this.touched;
      range.max = metric.steps.length - 1;
      if (!stay) range.value = range.max;
      this.read(Number(range.value), false);
    }

    // The seconds at which a variant reached the steps of the metric, averaged over seeds; null if its stage does not log the time.
    seconds(name) {
      const at = this.data.metrics.findIndex((one) => one.stage === this.metric.stage && /(^|\/)(elapsed_s|wall_s)$/.test(one.name));
      if (at < 0) return null;
      const clock = this.data.metrics[at];
      let { mean } = this.variant(at, name), sum = 0;
      if (/wall_s$/.test(clock.name)) mean = mean.map((value) => (value === null ? null : (sum += value * clock.per_bin)));
      return interpolated(clock.steps, mean, this.metric.steps);
    }

    // Set the position of each step of each part on the axis. Over time, positions differ by variant, so the axis has them all.
    layout() {
      const clocks = this.parts.map((part) => this.seconds(part.name));
      const over = this.find(".over");
      over.disabled = this.parts.length > 0 && clocks.every((clock) => clock === null);
      over.parentElement.title = over.disabled ? "this stage does not log the time" : "";
      this.timed = over.value === "time" && !over.disabled;
      this.parts.forEach((part, i) => { part.seconds = clocks[i]; part.x = this.timed ? clocks[i] || this.metric.steps.map(() => null) : this.metric.steps; });
      const places = new Map(); // x: index of the step at this position
      this.parts.forEach((part) => part.x.forEach((x, i) => { if (x !== null && !places.has(x)) places.set(x, i); }));
      if (!this.timed) this.metric.steps.forEach((x, i) => places.set(x, i));
      const axis = [...places.keys()].sort((a, b) => a - b);
      this.stepAt = axis.map((x) => places.get(x));
      return axis;
    }

    // Series after x: per variant low, high, mean, and then the lines of single seeds.
    series() {
      const each = this.find(".each-seed").checked;
      const weight = Number(this.find(".smooth").value);
      const axis = this.layout(), at = new Map(axis.map((x, i) => [x, i]));
      const data = [axis], series = [{}], bands = [];
      let current = null; // part whose series are added
      const add = (values, options) => {
        let placed = values;
        if (this.timed) {
          placed = axis.map(() => null);
          values.forEach((value, i) => { if (current.x[i] !== null) placed[at.get(current.x[i])] = value; });
        }
        data.push(placed);
        series.push({ spanGaps: this.timed, points: { show: values.filter((v) => v !== null).length === 1 }, ...options });
        return data.length - 1;
      };
      this.parts.forEach((part) => {
        current = part;
        const ok = part.seeds.filter((seed) => seed.ok);
        if (ok.length > 1) {
          const low = add(part.low, { stroke: "transparent", points: { show: false } });
          const high = add(part.high, { stroke: "transparent", points: { show: false } });
          bands.push({ series: [high, low], fill: `${part.colour}2b` });
        }
        if (weight > 0) add(part.mean, { stroke: `${part.colour}59`, width: 1.2 });
        add(weight > 0 ? smoothed(part.mean, weight) : part.mean, { stroke: part.colour, width: 2, dash: part.dash });
        part.seeds.forEach((seed) => {
          // The mean ends with the first seed that ends; other seeds continue as thin lines, and so do failed runs.
          const beyond = seed.values.map((value, i) => (part.mean[i] === null || part.mean[i + 1] === null ? value : null));
          if (each || !seed.ok) add(seed.values, { stroke: `${part.colour}${seed.ok ? "90" : "c0"}`, width: 1, dash: seed.ok ? [] : [1, 3] });
          else if (beyond.some((value, i) => value !== null && part.mean[i] === null)) add(beyond, { stroke: `${part.colour}90`, width: 1 });
        });
      });
      this.lines = { series, bands };
      return { data, series, bands };
    }

    drawChart(forPrint) {
      const plot = this.find(".plot");
      const styles = getComputedStyle(this.root);
      const ink = forPrint ? "#1d1d1b" : styles.getPropertyValue("--muted").trim();
      const rule = forPrint ? "#dddbd3" : styles.getPropertyValue("--rule").trim();
      const { data: whole, series, bands } = this.series();
      // A logarithmic axis has no step 0, so it begins with the first step above 0.
      const logSteps = this.find(".log-steps").checked && whole[0][whole[0].length - 1] > 0;
      this.offset = logSteps ? whole[0].findIndex((x) => x > 0) : 0;
      const data = whole.map((values) => values.slice(this.offset));
      const values = data.slice(1).flat().filter((value) => value !== null);
      const log = this.find(".log-scale");
      log.disabled = !values.length || values.reduce((a, b) => Math.min(a, b)) <= 0;
      log.parentElement.title = log.disabled ? "some values are not positive" : "";
      const axis = { stroke: ink, font: "12px system-ui, sans-serif", ticks: { stroke: rule, width: 1, size: 4 }, grid: { stroke: rule, width: 1 } };
      const options = {
        width: forPrint ? 640 : Math.max(plot.clientWidth, 200),
        height: 300,
        scales: { x: logSteps ? { time: false, distr: 3, range: (chart, least, most) => [least, most] } : { time: false }, y: log.checked && !log.disabled ? { distr: 3 } : {} },
        axes: [{ ...axis, grid: { show: false }, ...(this.timed ? {} : { incrs: WHOLE }), label: this.timed ? "seconds" : "step", labelSize: 18, labelFont: axis.font, size: 34 }, { ...axis, size: 58, values: (_, ticks) => ticks.map((t) => (t === null ? "" : String(+t.toPrecision(6)).replace("-", "−"))) }],
        legend: { show: false },
        cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
        series, bands,
        hooks: { setCursor: [(chart) => {
          if (chart.cursor.idx === null || chart.cursor.idx === undefined || this.moving) return;
          const index = this.stepAt[chart.cursor.idx + this.offset];
          this.find(".step").value = index;
          this.read(index, false);
        }] },
      };
      if (this.chart) this.chart.destroy();
      this.chart = new uPlot(options, data, plot);
    }

    read(index, move) {
      if (move) {
        this.touched = true;
        this.moving = true;
        const places = this.parts.map((part) => part.x[index]).filter((x) => x !== null);
        if (places.length) this.chart.setCursor({ left: this.chart.valToPos(places[0], "x"), top: 0 });
        this.moving = false;
      }
      const step = this.metric.steps[index];
      const range = this.find(".step");
      range.setAttribute("aria-valuetext", `step ${step}`);
      const table = this.find(".readout");
      table.caption.textContent = `${this.metric.label} at step ${step}${index === this.metric.steps.length - 1 ? ", the last" : ""}`;
      const ends = this.parts.map((part) => extremes(part.mean));
      const show = writer(this.parts.flatMap((part, at) => [part.mean[index], part.low[index], part.high[index], ...Object.values(ends[at] || {}).map((end) => end[0])]));
      table.tBodies[0].replaceChildren(...this.parts.map((part, nth) => {
        const row = element("tr");
        const ok = part.seeds.filter((seed) => seed.ok);
        const name = element("th", undefined);
        name.scope = "row";
        name.append(swatch(part.colour, part.dash), ` ${part.name}`);
        const bad = part.seeds.reduce((sum, seed) => sum + seed.bad, 0);
        const lost = part.seeds.length - ok.length;
        const notes = [`${ok.length}`, lost ? `${lost} did not succeed (dotted)` : "", bad ? `${bad} ${bad === 1 ? "value is" : "values are"} not finite` : ""].filter(Boolean);
        const spread = part.low[index] === null || ok.length < 2 ? "–" : `${show(part.low[index])} to ${show(part.high[index])}`;
        const at = (point) => (point ? `${show(point[0])} at ${this.metric.steps[point[1]]}` : "–");
        const along = ["min", "max", "last"].map((name) => element("td", at(ends[nth] && ends[nth][name]), "n"));
        row.append(name, element("td", show(part.mean[index]), "n"), element("td", spread, "n"), ...along, element("td", notes.join(", ")));
        return row;
      }));
    }

    describe() {
      const last = this.metric.steps.length - 1;
      const names = this.names.join(", ") || "no variant chosen";
      const ends = this.parts.map((part) => {
        const values = part.mean.filter((value) => value !== null);
        const end = values[values.length - 1];
        return `${part.name} ends at ${writer([end])(end)}`;
      });
      this.find(".plot").setAttribute("aria-label", `${this.metric.label} over steps, to step ${this.metric.steps[last]}: ${ends.join("; ") || names}`);
      this.find(".chart-title").textContent = this.metric.label;
      const bins = this.metric.per_bin > 1
        ? `Each point is the mean of ${this.metric.per_bin} neighbouring logged steps (${this.metric.logged} in total), which flattens narrower spikes; the database has every step.`
        : "Every logged step is drawn.";
      const weight = Number(this.find(".smooth").value);
      this.find(".smooth-value").textContent = weight ? weight.toFixed(2) : "none";
      const smoothing = weight ? `Thick lines are smoothed (exponential moving average, weight ${weight.toFixed(2)}); thin lines and numbers are not. ` : "";
      const timed = this.timed ? "The horizontal axis shows the run time in seconds, averaged over seeds, up to the last step that all seeds reached. " : "";
      this.find(".method").textContent = `${smoothing}${timed}Lines show means over seeds; bands reach from the lowest to the highest seed. A mean ends when its first seed ends; thin lines show single seeds. ${bins}`;
    }
  }

  Object.assign(Curves.prototype, {
    fileName() {
      return `${this.root.closest("article").id}-${this.metric.name}`.replace(/[^A-Za-z0-9.-]+/g, "-");
    },

    // A row per step and variant: mean and range over seeds, and each seed, as shown but never smoothed.
    csv() {
      const seeds = [...new Set(this.parts.flatMap((part) => part.seeds.map((seed) => seed.seed)))].sort((a, b) => a - b);
      const rows = [["metric", "variant", "step", "seconds", "mean", "lowest", "highest", ...seeds.map((seed) => `seed ${seed}`)]];
      this.parts.forEach((part) => this.metric.steps.forEach((step, i) => {
        const each = seeds.map((seed) => (part.seeds.find((one) => one.seed === seed) || { values: [] }).values[i]);
        rows.push([this.metric.name, part.name, step, part.seconds ? part.seconds[i] : null, part.mean[i], part.low[i], part.high[i], ...each]);
      }));
      return csv(rows);
    },

    // Save the bands, lines and ticks of the chart as uPlot has laid them out, in light colours.
    async saveSvg() {
      this.draw(true);
      await null; // uPlot lays out in a microtask
      const { chart } = this, [xs] = chart.data, [width, height] = [chart.over.clientWidth, chart.over.clientHeight];
      const at = (values, i) => `${chart.valToPos(xs[i], "x").toFixed(2)} ${chart.valToPos(values[i], "y").toFixed(2)}`;
      const path = (values, more) => {
        let pen = "M";
        const steps = values.map((value, i) => {
          if (value === null && !this.timed) pen = "M";
          if (value === null) return "";
          const step = pen + at(values, i);
          pen = "L";
          return step;
        });
        return drawn("path", { d: steps.join(""), fill: "none", ...more });
      };
      const ticks = (axis, draw) => axis._splits.map((value, i) => [value, axis._values[i]]).filter(([, text]) => text).flatMap(draw);
      const bands = this.lines.bands.map(({ series: [high, low], fill }) => {
        const [above, below] = [chart.data[high], chart.data[low]], known = xs.map((_, i) => i).filter((i) => below[i] !== null);
        const outline = [...known.map((i) => at(above, i)), ...known.reverse().map((i) => at(below, i))];
        return drawn("path", { d: outline.length ? `M${outline.join("L")}Z` : "", fill });
      });
      const lines = this.lines.series.map((line, i) => [line, chart.data[i]]).filter(([line]) => line.width)
        .map(([line, values]) => path(values, { stroke: line.stroke, "stroke-width": line.width, "stroke-dasharray": (line.dash || []).join(" ") }));
      const grid = [
        ...ticks(chart.axes[1], ([value, text]) => {
          const y = chart.valToPos(value, "y");
          return [drawn("path", { d: `M0 ${y}H${width}`, stroke: "#dddbd3" }), label(-8, y + 4, text, { "text-anchor": "end" })];
        }),
        ...ticks(chart.axes[0], ([value, text]) => label(chart.valToPos(value, "x"), height + 18, text, { "text-anchor": "middle" })),
        label(width / 2, height + 36, this.timed ? "seconds" : "step", { "text-anchor": "middle" }),
      ];
      const keys = this.parts.flatMap(({ name, colour, dash }, i) => {
        const [x, y] = [(i % 4) * 160, height + 60 + 18 * Math.floor(i / 4)];
        return [drawn("path", { d: `M${x} ${y - 4}h26`, stroke: colour, "stroke-width": 2, "stroke-dasharray": dash.join(" ") }), label(x + 32, y, name)];
      });
      const plot = drawn("g", { transform: "translate(64 34)" }, ...grid, ...bands, ...lines, ...keys);
      saveSvg(this.fileName(), this.metric.label, width + 84, height + 100 + 18 * Math.ceil(this.parts.length / 4), [plot]);
      this.draw();
    },
  });

  window.ablation.ready.then(() => document.querySelectorAll(".curves").forEach((root) => {
    // Draw curves when they come into sight, so that a page of many studies opens fast.
    const start = () => { if (!root.drawn) { root.drawn = true; root.curves = new Curves(root); } };
    new IntersectionObserver((entries, observer) => {
      if (entries.some((entry) => entry.isIntersecting)) { observer.disconnect(); start(); }
    }, { rootMargin: "600px" }).observe(root);
    window.addEventListener("beforeprint", () => { start(); root.curves.draw(true); });
  }));
})();
