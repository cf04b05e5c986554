// What a reader takes along: a file of a figure's data (CSV) or of its picture (SVG), made here and sent nowhere.
(function () {
  "use strict";

  const WIDTH = 720, HEIGHT = 400, LEFT = 70, RIGHT = 16, TOP = 30, BOTTOM = 46;

  function save(name, type, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  }

  // Numbers as they are; a text that a spreadsheet would run as a formula gets a leading apostrophe.
  function csv(rows) {
    const cell = (value) => {
      if (value === null || value === undefined) return "";
      if (typeof value === "number") return String(value);
      const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
      return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    return rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";
  }

  function ticks(low, high, log) {
    if (log) {
      const found = [];
      for (let power = Math.ceil(low - 1e-9); power <= high + 1e-9; power++) found.push(power);
      return found.length > 1 ? found : [low, high];
    }
    const rough = (high - low) / 8 || 1, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough);
    const found = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) found.push(k * step);
    return found;
  }

  function label(value, log) {
    const number = log ? 10 ** value : value;
    return String(+number.toPrecision(4)).replace("-", "\u2212");
  }

  // Lines with bands on two axes: {title, xLabel, logX, logY, lines}, a line with its own x.
  function drawCurves({ title, xLabel, logX, logY, lines }) {
    const ofX = (value) => (logX ? Math.log10(value) : value);
    const ofY = (value) => (logY ? Math.log10(value) : value);
    const there = (line, i, value) => line.x[i] !== null && (!logX || line.x[i] > 0) && value !== null && (!logY || value > 0);
    const range = (values, empty) => {
      const [least, most] = [values.reduce((a, b) => Math.min(a, b), Infinity), values.reduce((a, b) => Math.max(a, b), -Infinity)];
      return values.length ? [least, most > least ? most : least + 1] : empty;
    };
    const shown = (line) => [line.mean, line.raw, ...(line.band ? [line.low, line.high] : [])].filter(Boolean);
    const allX = lines.flatMap((line) => line.x.filter((_, i) => shown(line).some((values) => there(line, i, values[i]))).map(ofX));
    const allY = lines.flatMap((line) => shown(line).flatMap((values) => values.filter((value, i) => there(line, i, value)))).map(ofY);
    const [x0, x1] = range(allX, [0, 1]), [y0, y1] = range(allY, [0, 1]);
    const picture = new window.ablation.Picture(WIDTH, HEIGHT + 18 * Math.ceil(lines.length / 4), title);
    const bottom = HEIGHT - BOTTOM - 18, right = WIDTH - RIGHT;
    const px = (value) => LEFT + ((ofX(value) - x0) / (x1 - x0)) * (right - LEFT);
    const py = (value) => bottom - ((ofY(value) - y0) / (y1 - y0)) * (bottom - TOP);
    const paths = (line, values) => {
      const found = [[]];
      values.forEach((value, i) => {
        if (there(line, i, value)) found[found.length - 1].push([px(line.x[i]), py(value)]);
        else if (found[found.length - 1].length) found.push([]);
      });
      return found.filter((points) => points.length);
    };
    picture.text(LEFT, 18, title, { bold: true });
    ticks(y0, y1, logY).forEach((tick) => {
      const y = bottom - ((tick - y0) / (y1 - y0)) * (bottom - TOP);
      picture.line([[LEFT, y], [right, y]], { stroke: "#dddddd" });
      picture.text(LEFT - 8, y + 4, label(tick, logY), { anchor: "end" });
    });
    ticks(x0, x1, logX).forEach((tick) => {
      const x = LEFT + ((tick - x0) / (x1 - x0)) * (right - LEFT);
      picture.line([[x, bottom], [x, bottom + 4]], { stroke: "#666666" });
      picture.text(x, bottom + 18, label(tick, logX), { anchor: "middle" });
    });
    picture.text((LEFT + right) / 2, bottom + 36, xLabel, { anchor: "middle" });
    lines.forEach((line, i) => {
      if (line.band) {
        const known = line.x.map((_, at) => at).filter((at) => there(line, at, line.low[at]));
        const edge = (values, order) => order.map((at) => [px(line.x[at]), py(values[at])]);
        if (known.length) picture.area([...edge(line.high, known), ...edge(line.low, known.slice().reverse())], { fill: line.colour, opacity: 0.17 });
      }
      if (line.raw) paths(line, line.raw).forEach((points) => picture.line(points, { stroke: line.colour, opacity: 0.35 }));
      paths(line, line.mean).forEach((points) => picture.line(points, { stroke: line.colour, width: 2, dash: line.dash }));
      const [lx, ly] = [LEFT + (i % 4) * 160, bottom + 60 + 18 * Math.floor(i / 4)];
      picture.line([[lx, ly - 4], [lx + 26, ly - 4]], { stroke: line.colour, width: 2, dash: line.dash });
      picture.text(lx + 32, ly, line.name);
    });
    return picture;
  }

  // The button of a figure: its picture as SVG. `name` and `draw` are asked when it is pressed.
  function savePicture(root, name, draw) {
    root.querySelector(".save-svg").addEventListener("click", () => save(`${name()}.svg`, "image/svg+xml", draw().svg()));
  }

  window.ablation = Object.assign(window.ablation || {}, { save, csv, ticks, axisLabel: label, drawCurves, savePicture });
})();
