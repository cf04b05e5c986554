// The figures of the page that HTML draws, as pictures and data to take along: effects of the changes, published numbers.
(function () {
  "use strict";

  const MUTED = "#5d5c55", RULE = "#dddbd3", BLUE = "#005f9e", RED = "#a83c00", PURPLE = "#86406a", INK = "#1d1d1b";
  const COLOURS = { better: BLUE, worse: RED, invalid: RED, confounded: PURPLE, equivalent: INK };
  const { Picture, csv, save, ticks, axisLabel } = window.ablation;

  function signed(value, decimals) {
    const text = Math.abs(value).toFixed(decimals);
    return Number(text) === 0 ? text : `${value < 0 ? "\u2212" : "+"}${text}`;
  }

  function cut(text, length) {
    return text.length > length ? `${text.slice(0, length - 1)}…` : text;
  }

  // A row per change: what against what, its effect with interval on one axis, the numbers, the word.
  function drawEffects(title, { measure, margin, confidence, limit, decimals, rows }) {
    const ROW = 20, TOP = 76, LEFT = 250, RIGHT = 470;
    const bottom = TOP + ROW * rows.length;
    const picture = new Picture(720, bottom + 44, `${title}: effect of each change`);
    const x = (value) => LEFT + ((Math.min(Math.max(value / limit, -1), 1) + 1) / 2) * (RIGHT - LEFT);
    picture.text(8, 20, picture.title, { bold: true, size: 14 });
    picture.text(8, 38, cut(measure, 118), { size: 11, fill: MUTED });
    picture.text(x(0) - 8, TOP - 10, "\u2190 worse", { anchor: "end", size: 11, fill: MUTED });
    picture.text(x(0) + 8, TOP - 10, "better \u2192", { size: 11, fill: MUTED });
    picture.text(RIGHT + 12, TOP - 10, `effect [${confidence} interval]`, { size: 11, fill: MUTED });
    if (margin) picture.area([[x(-margin), TOP], [x(margin), TOP], [x(margin), bottom], [x(-margin), bottom]], { fill: RULE, opacity: 0.55 });
    ticks(-limit, limit, false).forEach((value) => {
      picture.line([[x(value), bottom], [x(value), bottom + 4]], { stroke: MUTED });
      picture.text(x(value), bottom + 18, axisLabel(value, false), { anchor: "middle", size: 11, fill: MUTED });
    });
    picture.line([[x(0), TOP], [x(0), bottom]], { stroke: MUTED });
    picture.line([[LEFT, bottom], [RIGHT, bottom]], { stroke: MUTED });
    rows.forEach(([variant, against, , verdict, effect, low, high], i) => {
      const y = TOP + ROW * (i + 0.5), stroke = COLOURS[verdict] || MUTED;
      picture.text(8, y + 4, cut(`${variant}, from ${against}`, 40));
      picture.text(712, y + 4, verdict, { anchor: "end", bold: true, fill: stroke });
      if (effect === null) return;
      const range = low === null ? "" : ` [${signed(low, decimals)}, ${signed(high, decimals)}]`;
      picture.text(RIGHT + 12, y + 4, `${signed(effect, decimals)}${range}`, { size: 11 });
      if (low !== null) {
        picture.line([[x(low), y], [x(high), y]], { stroke, width: 1.6 });
        [low, high].forEach((end) => {
          const out = Math.abs(end) > limit, side = Math.sign(end) * -4;
          picture.line(out ? [[x(end) + side, y - 4], [x(end), y], [x(end) + side, y + 4]] : [[x(end), y - 3.5], [x(end), y + 3.5]], { stroke, width: 1.6 });
        });
      }
      picture.dot(x(effect), y, 3.6, { fill: verdict === "undecided" ? "#ffffff" : stroke, stroke });
    });
    if (margin) picture.text(8, bottom + 36, `Band: \u00b1${margin}, the margin inside which two variants are called equivalent.`, { size: 11, fill: MUTED });
    return picture;
  }

  // A panel per column, three beside each other: a circle for the published number, a square with ± sd for ours.
  function drawPublished(title, plots) {
    const ROW = 18, LEFT = 112, PLOT = 118, GAP = 10, PANEL = LEFT + PLOT + GAP, HEAD = 22, FOOT = 30;
    const tall = HEAD + FOOT + ROW * plots[0].rows.length;
    const picture = new Picture(PANEL * Math.min(3, plots.length), 30 + tall * Math.ceil(plots.length / 3) + 18, `${title}: published and measured`);
    picture.text(8, 20, picture.title, { bold: true, size: 14 });
    plots.forEach(({ label, rows }, number) => {
      const left = (number % 3) * PANEL + LEFT, top = 30 + Math.floor(number / 3) * tall + HEAD, bottom = top + ROW * rows.length;
      const values = [0, ...rows.flatMap(([, published, mean, sd]) => [published, mean, mean === null ? null : mean - (sd || 0), mean === null ? null : mean + (sd || 0)])];
      const known = values.filter((value) => value !== null), low = Math.min(...known), high = Math.max(...known, low + 1e-12);
      const x = (value) => left + (PLOT * (value - low)) / (high - low);
      picture.text(left - LEFT + 8, top - 8, label, { bold: true });
      ticks(low, high, false).filter((_, i, all) => i % Math.ceil(all.length / 4) === 0).forEach((value) => {
        picture.line([[x(value), top], [x(value), bottom]], { stroke: RULE });
        picture.text(x(value), bottom + 14, axisLabel(value, false), { anchor: "middle", size: 10, fill: MUTED });
      });
      rows.forEach(([name, published, mean, sd], i) => {
        const y = top + ROW * (i + 0.5);
        picture.text(left - 8, y + 4, cut(name, 17), { anchor: "end", size: 11 });
        if (published !== null && mean !== null) picture.line([[x(published), y], [x(mean), y]], { stroke: MUTED, width: 0.8, dash: [2, 2] });
        if (sd) picture.line([[x(mean - sd), y], [x(mean + sd), y]], { stroke: BLUE, width: 1.6 });
        if (published !== null) picture.dot(x(published), y, 3.6, { fill: "#ffffff", stroke: RED, width: 1.6 });
        if (mean !== null) picture.area([[-3, -3], [3, -3], [3, 3], [-3, 3]].map(([dx, dy]) => [x(mean) + dx, y + dy]), { fill: BLUE });
      });
    });
    const y = picture.height - 8;
    picture.dot(14, y - 4, 3.6, { fill: "#ffffff", stroke: RED, width: 1.6 });
    picture.text(24, y, "published", { size: 11 });
    picture.area([[-3, -7], [3, -7], [3, -1], [-3, -1]].map(([dx, dy]) => [100 + dx, y + dy]), { fill: BLUE });
    picture.text(110, y, "measured, \u00b1 one standard deviation over seeds", { size: 11 });
    return picture;
  }

  const FIGURES = {
    effects: { draw: drawEffects, table: ({ columns, rows }) => [columns, ...rows] },
    published: {
      draw: drawPublished,
      table: (plots) => [["column", "variant", "published", "measured", "sd"], ...plots.flatMap(({ label, rows }) => rows.map((row) => [label, ...row]))],
    },
  };

  window.ablation.ready.then(() => document.querySelectorAll(".figure-tools").forEach((tools) => {
    const { title, [tools.dataset.figure]: content } = window.ablation.data[tools.dataset.source];
    const { draw, table } = FIGURES[tools.dataset.figure];
    const name = () => `${tools.closest("article").id}-${tools.dataset.figure}`;
    window.ablation.savePicture(tools, name, () => draw(title, content));
    tools.querySelector(".save-csv").addEventListener("click", () => save(`${name()}.csv`, "text/csv", csv(table(content))));
    tools.hidden = false;
  }));
})();
