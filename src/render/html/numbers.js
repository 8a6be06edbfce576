/* Numbers for people, as src/render/numbers.rs writes them: three significant digits, a unit that fits, thousands apart. */

const BYTE_UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

function thousands(value) {
  return String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, ",");
}

/** Three significant digits, but never fewer than there are before the point. */
function digits(value) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size < 9.995) return value.toFixed(2);
  if (size < 99.95) return value.toFixed(1);
  return size < 999.5 ? value.toFixed(0) : thousands(value);
}

/** A number of things: `5,203`; `2.5` where it is an average. */
function count(value) {
  const rounded = Math.round(value);
  if (Math.abs(value) >= 100 || (Math.abs(value - rounded) < 0.05 && (rounded !== 0 || value === 0))) return thousands(rounded);
  return value.toFixed(Math.abs(value) < 0.1 ? 3 : 1);
}

/** Unit of a time, and what to divide by. */
function scaleNs(ns) {
  const size = Math.abs(ns);
  if (size < 999.5) return ["ns", 1];
  if (size < 999.5e3) return ["us", 1e3];
  return size < 999.5e6 ? ["ms", 1e6] : ["s", 1e9];
}

function scaleBytes(bytes) {
  let power = 0;
  while (power + 1 < BYTE_UNITS.length && Math.abs(bytes) >= 999.5 * 1024 ** power) power += 1;
  return [BYTE_UNITS[power], 1024 ** power];
}

function time(ns) {
  const [unit, divisor] = scaleNs(ns);
  return `${digits(ns / divisor)} ${unit}`;
}

function bytesText(bytes) {
  const [unit, divisor] = scaleBytes(bytes);
  return divisor === 1 ? `${count(bytes)} B` : `${digits(bytes / divisor)} ${unit}`;
}

function percent(value) {
  const size = Math.abs(value);
  if (size === 0) return "0 %";
  if (size < 0.01) return "< 0.01 %";
  if (size < 0.095) return `${value.toFixed(2)} %`;
  return size < 9.95 ? `${value.toFixed(1).replace(/\.0$/, "")} %` : `${value.toFixed(0)} %`;
}

/** A number that names something; handles are known as addresses. */
function identifier(value) {
  return Math.abs(value) < 100000 ? value.toFixed(0) : `0x${value.toString(16)}`;
}

/** A value by itself, with its unit. */
function valueText(value, unit) {
  if (value === null || value === undefined) return "not known";
  if (typeof value === "string") return value;
  switch (unit) {
    case "ns": return time(value);
    case "bytes": case "bytes_each": return bytesText(value);
    case "bytes_per_s": return `${bytesText(value)}/s`;
    case "percent": case "%": return percent(value);
    case "per_s": return `${count(value)} /s`;
    case "id": return identifier(value);
    default: return count(value);
  }
}

/** As many digits after the point as the largest of a column needs; small values keep that they are some. */
function fixed(value, most) {
  const places = most < 9.995 ? 3 : most < 99.95 ? 2 : 1;
  return value !== 0 && Math.abs(value) < 0.5 * 10 ** -places ? `<0.${"0".repeat(places - 1)}1` : value.toFixed(places);
}

/** The head of a column with the unit that fits its largest value, and what makes a cell's text. */
function columnText(title, unit, values) {
  const most = values.reduce((most, value) => (typeof value === "number" ? Math.max(most, Math.abs(value)) : most), 0);
  const [name, divisor] = unit === "ns" ? scaleNs(most) : unit === "bytes" || unit === "bytes_per_s" ? scaleBytes(most) : ["", 1];
  const heads = { ns: ` (${name})`, bytes: ` (${name})`, bytes_per_s: ` (${name}/s)`, per_s: " (/s)", percent: title.includes("%") ? "" : " %" };
  const cell = (value) => {
    if (value === null) return "-";
    if (typeof value === "string") return value;
    if (name && divisor !== 1) return fixed(value / divisor, most / divisor);
    if (unit === "bytes_each") return bytesText(value);
    if (unit === "id") return identifier(value);
    return unit === "percent" ? value.toFixed(1) : count(value);
  };
  return [title + (heads[unit] || ""), cell];
}
