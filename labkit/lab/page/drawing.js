// Draws display lists (see labkit/views/display_list.py) on a canvas.
//
// `drawList(context, list, theme)`: `list` = {ops, points: Float32Array, pixels: Uint8Array}, in CSS pixels; the caller scales the
// context by the pixels of the screen per CSS pixel and passes that ratio as `theme.ratio`, to which straight lines are aligned.
// `theme.colour(text)`: the colour to use for one of the list (a dark page has another paper and ink); `theme.ink(text)`: for a text.

const FAMILY = '"DejaVu Sans", Verdana, "Segoe UI", system-ui, sans-serif';

function tracePath(path, points, at, codes) {
  for (let i = 0; i < codes.length; i++) {
    const k = 2 * (at + i);
    const code = codes[i];
    if (code === 1) path.moveTo(points[k], points[k + 1]);
    else if (code === 2) path.lineTo(points[k], points[k + 1]);
    else if (code === 3) { path.quadraticCurveTo(points[k], points[k + 1], points[k + 2], points[k + 3]); i += 1; }
    else if (code === 4) {
      path.bezierCurveTo(points[k], points[k + 1], points[k + 2], points[k + 3], points[k + 4], points[k + 5]);
      i += 2;
    } else if (code === 79) path.closePath();
  }
  return path;
}

// A part with only horizontal and vertical segments is aligned to whole pixels of the screen, as matplotlib does.
function isRectilinear(points, at, n) {
  if (n > 1000) return false;
  for (let i = at + 1; i < at + n; i++) {
    const k = 2 * i;
    if (Math.abs(points[k] - points[k - 2]) > 1e-3 && Math.abs(points[k + 1] - points[k - 1]) > 1e-3) return false;
  }
  return true;
}

function tracePart(path, points, at, n, closed, ratio, width) {
  const snapped = isRectilinear(points, at, n);
  const odd = Math.round(width * ratio) % 2 === 1 ? 0.5 : 0;
  const place = snapped ? (v) => (Math.round(v * ratio - odd) + odd) / ratio : (v) => v;
  path.moveTo(place(points[2 * at]), place(points[2 * at + 1]));
  const last = closed && n > 2 ? n - 1 : n; // the last point of a closed part is its first one
  for (let i = 1; i < last; i++) path.lineTo(place(points[2 * (at + i)]), place(points[2 * (at + i) + 1]));
  if (closed) path.closePath();
}

function hatchPattern(context, colour, ratio) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = Math.round(6 * ratio);
  const pen = tile.getContext("2d");
  pen.strokeStyle = colour;
  pen.lineWidth = ratio;
  for (const shift of [-6, 0, 6]) {
    pen.moveTo((shift - 1) * ratio, 7 * ratio);
    pen.lineTo((shift + 7) * ratio, -ratio);
  }
  pen.stroke();
  const pattern = context.createPattern(tile, "repeat");
  pattern.setTransform(new DOMMatrix().scale(1 / ratio));
  return pattern;
}

function paint(context, path, fill, edge, width, op, theme) {
  if (fill) {
    context.fillStyle = theme.colour(fill);
    context.fill(path);
  }
  if (op.hatch) {
    context.fillStyle = hatchPattern(context, theme.colour(op.hatch), theme.ratio);
    context.fill(path);
  }
  if (edge && width > 0) {
    context.strokeStyle = theme.colour(edge);
    context.lineWidth = width;
    context.stroke(path);
  }
}

function drawShapes(context, op, points, theme) {
  const one = (values, i) => (values.length ? values[i % values.length] : "");
  const same = op.fill.length <= 1 && op.edge.length <= 1 && op.width.length <= 1;
  let at = op.at;
  let path = new Path2D();
  for (let i = 0; i < op.n.length; i++) {
    tracePart(path, points, at, op.n[i], op.closed, theme.ratio, one(op.edge, i) ? one(op.width, i) : 0);
    at += op.n[i];
    if (!same || i === op.n.length - 1) {
      paint(context, path, one(op.fill, i), one(op.edge, i), one(op.width, i), op, theme);
      path = new Path2D();
    }
  }
}

function drawMarkers(context, op, points, theme) {
  const shape = tracePath(new Path2D(), points, op.at, op.codes);
  const first = op.at + op.codes.length;
  for (let i = 0; i < op.count; i++) {
    context.save();
    context.translate(points[2 * (first + i)], points[2 * (first + i) + 1]);
    paint(context, shape, op.fill, op.edge, op.width, op, theme);
    context.restore();
  }
}

function drawText(context, op, theme) {
  context.save();
  context.translate(op.x, op.y);
  if (op.angle) context.rotate((-op.angle * Math.PI) / 180);
  context.font = `${op.bold ? "bold " : ""}${op.size}px ${FAMILY}`;
  context.textAlign = ["left", "center", "right"][op.align + 1];
  const lines = op.s.split("\n");
  const high = 1.2 * op.size;
  // matplotlib aligns the box of the letters; browsers have a baseline
  const rise = { "-1": 0.76 * op.size, 0: 0.36 * op.size - (high * (lines.length - 1)) / 2, 1: -high * (lines.length - 1),
    2: -0.22 * op.size - high * (lines.length - 1) }[op.base];
  lines.forEach((line, i) => {
    const y = rise + i * high;
    if (op.halo) {
      context.strokeStyle = theme.colour("#ffffffff");
      context.lineWidth = op.halo;
      context.lineJoin = "round";
      context.strokeText(line, 0, y);
    }
    context.fillStyle = theme.ink(op.colour);
    context.fillText(line, 0, y);
  });
  context.restore();
}

// The colours of pixels are those of the theme too; their opacity stays.
function themed(bytes, theme) {
  const known = new Map();
  const hex = (value) => value.toString(16).padStart(2, "0");
  for (let i = 0; i < bytes.length; i += 4) {
    const key = (bytes[i] << 16) | (bytes[i + 1] << 8) | bytes[i + 2];
    if (!known.has(key)) {
      const colour = theme.colour(`#${hex(bytes[i])}${hex(bytes[i + 1])}${hex(bytes[i + 2])}ff`);
      known.set(key, [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16)));
    }
    bytes.set(known.get(key), i);
  }
  return bytes;
}

function drawImage(context, op, pixels, theme) {
  const size = 4 * op.rows * op.columns;
  const bytes = themed(new Uint8ClampedArray(pixels.slice(op.byte, op.byte + size).buffer), theme);
  const data = new ImageData(bytes, op.columns, op.rows);
  const picture = document.createElement("canvas");
  picture.width = op.columns;
  picture.height = op.rows;
  picture.getContext("2d").putImageData(data, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(picture, op.x, op.y, op.w, op.h);
}

export function drawList(context, list, theme) {
  for (const op of list.ops) {
    context.save();
    if (op.clip) {
      context.beginPath();
      context.rect(...op.clip);
      context.clip();
    }
    context.setLineDash(op.dash ? op.dash.slice(1) : []);
    context.lineDashOffset = op.dash ? op.dash[0] : 0;
    context.lineCap = op.round ? "round" : "butt";
    context.lineJoin = "round";
    if (op.do === "shapes") drawShapes(context, op, list.points, theme);
    else if (op.do === "curve") {
      paint(context, tracePath(new Path2D(), list.points, op.at, op.codes), op.fill, op.edge, op.width, op, theme);
    } else if (op.do === "markers") drawMarkers(context, op, list.points, theme);
    else if (op.do === "text") drawText(context, op, theme);
    else if (op.do === "image") drawImage(context, op, list.pixels, theme);
    context.restore();
  }
}

// Paper and ink change places on a dark page; colours with a meaning stay.
const DARK = new Map();
export function darkColour(text) {
  if (!DARK.has(text)) {
    const [r, g, b] = [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16));
    const high = Math.max(r, g, b);
    const low = Math.min(r, g, b);
    const light = (high + low) / 510;
    let turned = text;
    if (high - low < 40 || light > 0.8) { // grey or pale: keep the hue, invert the lightness between #111 and #fff
      const to = 1 - 0.93 * light;
      const scale = (value) => Math.round(Math.min(255, Math.max(0, 255 * to + (value - (high + low) / 2) * (light > 0.8 ? 1.6 : 1))));
      turned = `#${[r, g, b].map((value) => scale(value).toString(16).padStart(2, "0")).join("")}${text.slice(7)}`;
    }
    DARK.set(text, turned);
  }
  return DARK.get(text);
}
