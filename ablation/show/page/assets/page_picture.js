// A picture as a list of marks, black on white, in points; written as an SVG or as a PDF file, both as text made here.
(function () {
  "use strict";

  const INK = "#1d1d1b", SIZE = 12;
  // Widths of Helvetica, in thousandths of its size, of the characters from the space to the tilde (Adobe's metrics).
  const WIDTHS = ("278 278 355 556 556 889 667 191 333 333 389 584 278 333 278 278 556 556 556 556 556 556 556 556 556 556 278 278 584 584 584 556 " +
    "1015 667 667 722 722 667 611 778 722 278 500 667 556 833 722 778 667 778 722 667 611 722 667 944 667 667 611 278 278 278 469 556 " +
    "333 556 556 500 556 556 278 556 556 222 222 500 222 833 556 556 556 556 333 500 278 556 500 722 500 500 500 334 260 334 584").split(" ").map(Number);
  // What the standard fonts of PDF have beyond Latin-1, and what is written for characters that they lack.
  const WIN = { "\u20ac": 0x80, "\u2026": 0x85, "\u2018": 0x91, "\u2019": 0x92, "\u201c": 0x93, "\u201d": 0x94, "\u2022": 0x95, "\u2013": 0x96, "\u2014": 0x97 };
  const INSTEAD = { "\u2212": "\u2013", "\u2192": "->", "\u2190": "<-", "\u00a0": " " };

  const escaped = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
  const number = (value) => String(Math.round(value * 100) / 100);

  function bytes(text) {
    const known = Array.from(String(text)).map((c) => INSTEAD[c] ?? c).join("");
    return Array.from(known).map((c) => WIN[c] ?? (c.codePointAt(0) < 256 && c >= " " ? c.codePointAt(0) : 63));
  }

  function colour(hex) {
    return [1, 3, 5].map((at) => number(parseInt(hex.slice(at, at + 2), 16) / 255)).join(" ");
  }

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

    // One page of its size, with the standard fonts, which every reader has; characters that they lack become `?`.
    pdf() {
      const opacities = [...new Set([1, ...this.marks.map((mark) => mark.opacity ?? 1)])];
      const content = this.marks.map((mark) => (mark.text === undefined ? this.drawn(mark, opacities) : this.written(mark))).join("\n");
      const states = opacities.map((value, i) => `/G${i} << /ca ${value} /CA ${value} >>`).join(" ");
      const font = (name) => `<< /Type /Font /Subtype /Type1 /BaseFont /${name} /Encoding /WinAnsiEncoding >>`;
      const objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        `<< /Type /Page /Parent 2 0 R /MediaBox [0 0 ${number(this.width)} ${number(this.height)}] /Contents 4 0 R /Resources << /Font << /F0 5 0 R /F1 6 0 R >> /ExtGState << ${states} >> >> >>`,
        `<< /Length ${content.length} >>\nstream\n${content}\nendstream`,
        font("Helvetica"),
        font("Helvetica-Bold"),
      ];
      let text = "%PDF-1.4\n";
      const places = objects.map((object, i) => {
        const place = text.length;
        text += `${i + 1} 0 obj\n${object}\nendobj\n`;
        return place;
      });
      const table = places.map((place) => `${String(place).padStart(10, "0")} 00000 n \n`).join("");
      return `${text}xref\n0 ${objects.length + 1}\n0000000000 65535 f \n${table}trailer\n<< /Size ${objects.length + 1} /Root 1 0 R >>\nstartxref\n${text.length}\n%%EOF\n`;
    }

    drawn(mark, opacities) {
      const points = mark.points.length > 1 ? mark.points : [...mark.points, ...mark.points];
      const path = points.map(([x, y], i) => `${number(x)} ${number(this.height - y)} ${i ? "l" : "m"}`).join("\n");
      const paint = mark.fill ? (mark.stroke ? "b" : "f") : "S";
      const looks = [`/G${opacities.indexOf(mark.opacity)} gs`];
      if (mark.fill) looks.push(`${colour(mark.fill)} rg`);
      if (mark.stroke) looks.push(`${colour(mark.stroke)} RG ${number(mark.width)} w [${mark.dash.join(" ")}] 0 d 1 j`);
      return `${looks.join(" ")}\n${path}\n${paint}`;
    }

    written(mark) {
      const codes = bytes(mark.text);
      const length = (codes.reduce((sum, code) => sum + (WIDTHS[code - 32] ?? 556), 0) * mark.size * (mark.bold ? 1.06 : 1)) / 1000; // bold letters are wider, most of them so much
      const x = mark.x - { start: 0, middle: length / 2, end: length }[mark.anchor];
      const hex = codes.map((code) => code.toString(16).padStart(2, "0")).join("");
      return `/G0 gs ${colour(mark.fill)} rg BT /F${mark.bold ? 1 : 0} ${mark.size} Tf ${number(x)} ${number(this.height - mark.y)} Td <${hex}> Tj ET`;
    }
  }

  window.ablation = Object.assign(window.ablation || {}, { Picture });
})();
