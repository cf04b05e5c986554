// A picture as a list of marks, black on white; written as SVG.
(function () {
  "use strict";

  const INK = "#1d1d1b", SIZE = 12;
  const escaped = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
  const number = (value) => String(Math.round(value * 100) / 100);

  class Picture {
    constructor(width, height, title) {
      Object.assign(this, { width, height, title, marks: [] });
    }

    // `points`: [[x, y], ...] with y downwards. A line is {stroke, width, dash, opacity}, an area {fill, opacity, stroke}.
    line(points, { stroke = INK, width = 1, dash = [], opacity = 1 } = {}) {
      this.marks.push({ points, stroke, width, dash, opacity });
    }

    area(points, { fill, opacity = 1, stroke = "", width = 1 }) {
      this.marks.push({ points, fill, opacity, stroke, width, dash: [] });
    }

    dot(x, y, radius, looks) {
      const corners = Array.from({ length: 24 }, (_, i) => (i * Math.PI) / 12);
      this.area(corners.map((angle) => [x + radius * Math.cos(angle), y + radius * Math.sin(angle)]), looks);
    }

    text(x, y, text, { anchor = "start", bold = false, size = SIZE, fill = INK } = {}) {
      this.marks.push({ x, y, text, anchor, bold, size, fill });
    }

    svg() {
      const parts = this.marks.map((mark) => {
        if (mark.text !== undefined) {
          const looks = `${mark.anchor === "start" ? "" : ` text-anchor="${mark.anchor}"`}${mark.bold ? ' font-weight="600"' : ""}`;
          return `<text x="${number(mark.x)}" y="${number(mark.y)}" font-size="${mark.size}" fill="${mark.fill}"${looks}>${escaped(mark.text)}</text>`;
        }
        const path = `M${mark.points.map(([x, y]) => `${number(x)} ${number(y)}`).join("L")}${mark.fill ? "Z" : ""}`;
        const opacity = mark.opacity < 1 ? ` ${mark.fill ? "fill" : "stroke"}-opacity="${mark.opacity}"` : "";
        const stroke = mark.stroke ? ` stroke="${mark.stroke}" stroke-width="${mark.width}"` : "";
        const dash = mark.dash.length ? ` stroke-dasharray="${mark.dash.join(" ")}"` : "";
        return `<path d="${path}" fill="${mark.fill || "none"}"${stroke}${dash}${opacity}/>`;
      });
      const size = `viewBox="0 0 ${this.width} ${this.height}" width="${this.width}" height="${this.height}"`;
      return `<svg xmlns="http://www.w3.org/2000/svg" ${size} font-family="Helvetica, Arial, sans-serif">
<title>${escaped(this.title)}</title>
<rect width="100%" height="100%" fill="#ffffff"/>
${parts.join("\n")}
</svg>
`;
    }
  }

  window.ablation = Object.assign(window.ablation || {}, { Picture });
})();
