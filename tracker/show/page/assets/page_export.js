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

  function escaped(text) {
    return String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
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

  // Lines with bands on two axes, black on white, as text of an SVG file; {title, x, from, logX, logY, lines}.
  function drawSvg({ title, x, from, logX, logY, lines }) {
    const ofX = (value) => (logX ? Math.log10(value) : value);
    const ofY = (value) => (logY ? Math.log10(value) : value);
    const all = lines.flatMap((line) => [line.mean, line.raw, ...(line.band ? [line.low, line.high] : [])].filter(Boolean))
      .flatMap((values) => values.slice(from)).filter((value) => value !== null && (!logY || value > 0)).map(ofY);
    const [x0, x1] = [ofX(x[from]), ofX(x[x.length - 1])];
    const least = all.reduce((a, b) => Math.min(a, b), Infinity), most = all.reduce((a, b) => Math.max(a, b), -Infinity);
    const [y0, y1] = all.length ? [least, most > least ? most : least + 1] : [0, 1];
    const bottom = HEIGHT - BOTTOM - 18 * Math.ceil(lines.length / 4);
    const px = (value) => LEFT + ((ofX(value) - x0) / (x1 - x0 || 1)) * (WIDTH - LEFT - RIGHT);
    const py = (value) => bottom - ((ofY(value) - y0) / (y1 - y0)) * (bottom - TOP);
    const path = (values) => {
      let pen = "M", text = "";
      values.forEach((value, i) => {
        if (i < from || value === null || (logY && value <= 0)) { pen = "M"; return; }
        text += `${pen}${px(x[i]).toFixed(1)} ${py(value).toFixed(1)}`;
        pen = "L";
      });
      return text;
    };
    const band = (line) => {
      const known = x.map((_, i) => i).filter((i) => i >= from && line.low[i] !== null && (!logY || line.low[i] > 0));
      const there = known.map((i) => `${px(x[i]).toFixed(1)} ${py(line.high[i]).toFixed(1)}`);
      const back = known.reverse().map((i) => `${px(x[i]).toFixed(1)} ${py(line.low[i]).toFixed(1)}`);
      return known.length ? `<path d="M${[...there, ...back].join("L")}Z" fill="${line.colour}" fill-opacity="0.17"/>` : "";
    };
    const parts = [`<text x="${LEFT}" y="18" font-weight="600">${escaped(title)}</text>`];
    ticks(y0, y1, logY).forEach((tick) => {
      const y = bottom - ((tick - y0) / (y1 - y0)) * (bottom - TOP);
      parts.push(`<path d="M${LEFT} ${y.toFixed(1)}H${WIDTH - RIGHT}" stroke="#dddddd"/><text x="${LEFT - 8}" y="${(y + 4).toFixed(1)}" text-anchor="end">${label(tick, logY)}</text>`);
    });
    ticks(x0, x1, logX).forEach((tick) => {
      const at = LEFT + ((tick - x0) / (x1 - x0 || 1)) * (WIDTH - LEFT - RIGHT);
      parts.push(`<path d="M${at.toFixed(1)} ${bottom}v4" stroke="#666666"/><text x="${at.toFixed(1)}" y="${bottom + 18}" text-anchor="middle">${label(tick, logX)}</text>`);
    });
    parts.push(`<text x="${(LEFT + WIDTH - RIGHT) / 2}" y="${bottom + 36}" text-anchor="middle">step</text>`);
    lines.forEach((line, i) => {
      const dash = line.dash.length ? ` stroke-dasharray="${line.dash.join(" ")}"` : "";
      if (line.band) parts.push(band(line));
      if (line.raw) parts.push(`<path d="${path(line.raw)}" fill="none" stroke="${line.colour}" stroke-opacity="0.35"/>`);
      parts.push(`<path d="${path(line.mean)}" fill="none" stroke="${line.colour}" stroke-width="2"${dash}/>`);
      const [lx, ly] = [LEFT + (i % 4) * 160, bottom + 56 + 18 * Math.floor(i / 4)];
      parts.push(`<path d="M${lx} ${ly - 4}h26" stroke="${line.colour}" stroke-width="2"${dash}/><text x="${lx + 32}" y="${ly}">${escaped(line.name)}</text>`);
    });
    return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT + 18}" width="${WIDTH}" height="${HEIGHT + 18}" font-family="sans-serif" font-size="12" fill="#1d1d1b">
<rect width="100%" height="100%" fill="#ffffff"/>
${parts.join("\n")}
</svg>
`;
  }

  window.ablation = { save, csv, drawSvg };
})();
