// Series of numbers: gaps, means over seeds, smoothing, and the seconds at which steps were done.
(function () {
  "use strict";

  // Fill gaps inside a seed's own range on a straight line: another run may have logged at steps that this one did not.
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

  // Only where every seed has a value: a mean over the survivors of an early stop is not that of the variant.
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

  // Exponential moving average, freed of its start at nothing, as TensorBoard's; gaps stay gaps.
  function smoothed(values, weight) {
    let sum = 0, norm = 0;
    return values.map((value) => {
      if (value === null) return null;
      sum = weight * sum + (1 - weight) * value;
      norm = weight * norm + (1 - weight);
      return sum / norm;
    });
  }

  // Where a line is lowest and highest, and where it ends: {min, max, last}, each [value, index] or null.
  function extremes(values) {
    const known = values.map((value, i) => [value, i]).filter(([value]) => value !== null);
    if (!known.length) return null;
    const by = (better) => known.reduce((best, point) => (better(point[0], best[0]) ? point : best));
    return { min: by((a, b) => a < b), max: by((a, b) => a > b), last: known[known.length - 1] };
  }

  // Values known at some x, read off a straight line at others; null outside of them.
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

  window.ablation = Object.assign(window.ablation || {}, { bridged, summary, smoothed, extremes, interpolated });
})();
