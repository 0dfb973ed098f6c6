// "Ask the model": a pane beside the panels with a sample of the user, and what the model predicts for it. The kernel sends the
// section `ask` (see content.py): the sample, as the model gets it, and the answer of the newest weights. The browser sends what
// is drawn: {do: "ask", given: {strokes} | {ink} | {values} | {sample} | {open}}, one question at a time, and the newest one at last.

const NEAR = 0.008; // points of a stroke are at least so far from each other

export class AskPane {
  constructor(view) {
    this.view = view;
    this.strokes = []; // those of a drawing, as lists of x, y, x, y, ...; [] if the sample is not drawn with the pen
    this.cell = [0, 0]; // row and column of the keyboard's pixel
    this.keys = false; // whether the keyboard was used last
    this.next = null; // what is asked when the present question is answered
    this.asking = false;
    this.kind = ""; // of the sample that is shown
    const button = (label, attributes) => view.button(label, attributes);
    this.pad = element("canvas", { class: "lk-pad", tabindex: "0" });
    this.seen = element("canvas", { class: "lk-seen", role: "img", "aria-label": "the input of the model" });
    this.clear = button("Clear", { tip: "an empty picture", onclick: () => this.draw([]) });
    this.beside = element("div", { class: "lk-beside" }, element("small", {}, "input"), this.seen, this.clear);
    this.hint = element("small", { class: "lk-hint", "aria-live": "polite" });
    this.before = button("‹", { class: "lk-icon", tip: "previous held-out sample", "aria-label": "previous held-out sample", onclick: () => this.step(-1) });
    this.after = button("›", { class: "lk-icon", tip: "next held-out sample", "aria-label": "next held-out sample", onclick: () => this.step(1) });
    this.title = element("span", { class: "lk-which" }, element("span"), element("b"));
    this.values = element("div", { class: "lk-inputs" });
    this.verdict = element("div", { class: "lk-verdict", role: "status" }, element("small"), element("b"));
    this.bars = element("div", { class: "lk-bars", role: "list", "aria-label": "answer of the model" });
    this.weights = element("small", { class: "lk-grey" });
    const close = button("×", { tip: "close (Esc)", class: "lk-icon lk-close", "aria-label": "close the question to the model", onclick: () => this.toggle(false) });
    this.box = element("section", { class: "lk-ask", role: "region", "aria-label": "ask the model", hidden: true }, close,
      element("h4", {}, "ask the model"), element("div", { class: "lk-pads" }, this.pad, this.beside), this.hint,
      element("div", { class: "lk-row lk-samples" }, this.before, this.title, this.after), this.values, this.verdict, this.bars, this.weights);
    this.listen();
  }

  get now() {
    return this.view.get("ask") || {};
  }

  // A question; while one is being answered, only the newest of the following ones is kept.
  ask(given) {
    if (this.asking) {
      this.next = given;
      return;
    }
    this.asking = true;
    this.view.shared.ask({ do: "ask", given }, () => {
      this.asking = false;
      const next = this.next;
      this.next = null;
      if (next) this.ask(next);
    });
  }

  toggle(open = !this.now.open) {
    if (open === Boolean(this.now.open)) return;
    this.takesFocus = open;
    if (open) this.view.toggleSheet(false);
    else if (this.box.contains(document.activeElement)) this.view.buttons.querySelector('[data-id="ask"]')?.focus();
    this.ask({ open });
  }

  draw(strokes) {
    this.strokes = strokes;
    this.paintPad();
    this.ask({ strokes });
  }

  step(direction) {
    const { held_out: count, number } = this.now;
    if (!count) return;
    const from = number ?? (this.number ?? 0) - direction; // after a drawing: the sample before it
    this.strokes = [];
    this.ask({ sample: (from + direction + count) % count });
  }

  // pointer and keys -----------------------------------------------------------------------------------------------------

  listen() {
    const place = (event) => {
      const box = this.pad.getBoundingClientRect();
      return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
    };
    this.pad.addEventListener("pointerdown", (event) => {
      if (event.button || this.now.kind === "values") return;
      event.preventDefault();
      this.pad.focus({ focusVisible: false });
      this.keys = false;
      this.pad.setPointerCapture(event.pointerId);
      this.pen = place(event);
      if (this.now.kind === "plane") this.point(...this.pen);
      else this.draw([...(this.ownDrawing() ? this.strokes : []), [...this.pen]]);
    });
    this.pad.addEventListener("pointermove", (event) => {
      if (!this.pen) return;
      const steps = event.getCoalescedEvents?.() || [];
      for (const each of steps.length ? steps : [event]) this.move(...place(each));
    });
    for (const end of ["pointerup", "pointercancel"]) this.pad.addEventListener(end, () => { this.pen = null; });
    this.pad.addEventListener("keydown", (event) => this.key(event));
    this.pad.addEventListener("focus", () => this.paintPad());
    this.pad.addEventListener("blur", () => {
      this.keys = false;
      this.paintPad();
    });
  }

  ownDrawing() {
    return this.strokes.length > 0 && (this.asking || this.now.number === null);
  }

  move(x, y) {
    if (this.now.kind === "plane") {
      this.point(x, y);
    } else if (Math.hypot(x - this.pen[0], y - this.pen[1]) >= NEAR) {
      this.strokes.at(-1).push(x, y);
      this.pen = [x, y];
      this.draw(this.strokes);
    }
  }

  // A point of the plane, as shares of the pad.
  point(x, y) {
    const { low, high } = this.now;
    const at = [x, 1 - y].map((share, i) => low[i] + Math.min(1, Math.max(0, share)) * (high[i] - low[i]));
    this.ask({ values: at.map((value, i) => rounded(value, high[i] - low[i])) });
  }

  // Arrow keys go from pixel to pixel, and Space or Enter sets or clears one; in the plane, arrow keys move the point.
  key(event) {
    const direction = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    const sets = event.key === " " || event.key === "Enter";
    const { kind, shape, ink, values, low, high } = this.now;
    if (event.ctrlKey || event.metaKey || event.altKey || event.shiftKey || !(direction || sets)) return;
    event.preventDefault();
    event.stopPropagation();
    this.keys = true;
    if (kind === "plane" && direction) {
      const [down, across] = direction;
      this.point((values[0] - low[0]) / (high[0] - low[0]) + across / 50, 1 - (values[1] - low[1]) / (high[1] - low[1]) + down / 50);
    }
    if (kind !== "picture") return;
    if (direction) this.cell = this.cell.map((at, i) => Math.min(shape[i] - 1, Math.max(0, at + direction[i])));
    const place = this.cell[0] * shape[1] + this.cell[1];
    const mine = [...(this.typed || ink)];
    if (sets) {
      mine[place] = mine[place] > 0.5 ? 0 : 1;
      this.typed = mine; // until the kernel has answered
      this.strokes = [];
      this.ask({ ink: mine });
    }
    setText(this.hint, `row ${this.cell[0] + 1}, column ${this.cell[1] + 1}: ${Math.round(100 * mine[place])}% ink`);
    this.paintPad();
  }

  // the section ----------------------------------------------------------------------------------------------------------

  show(now) {
    const opens = now.open && this.box.hidden;
    this.box.hidden = !now.open;
    mark(this.view.body, { "lk-asks": now.open });
    this.view.show("toolbar");
    if (!now.open) return;
    if (!this.asking || !this.next) this.typed = null;
    if (now.number !== null) {
      this.number = now.number;
      if (!this.asking) this.strokes = [];
    }
    const picture = now.kind === "picture", otherKind = now.kind !== this.kind;
    this.kind = now.kind;
    this.pad.hidden = now.kind === "values";
    this.beside.hidden = !picture;
    setAttribute(this.pad, "role", picture ? "application" : "img");
    setAttribute(this.pad, "aria-label", picture
      ? "drawing: arrow keys choose a pixel, Space sets or clears it" : "plane of the two features: arrow keys move the point");
    if (opens || otherKind || !this.pad.matches(":focus")) {
      setText(this.hint, { picture: "draw with the pointer, or with arrow keys and Space", plane: "click, or use arrow keys", values: "" }[now.kind]);
    }
    setText(this.title.children[0], now.title);
    setText(this.title.children[1], now.right);
    for (const each of [this.before, this.after]) each.hidden = !now.held_out;
    this.showValues(now);
    this.showAnswer(now);
    if (opens) requestAnimationFrame(() => this.paintPad()); // when it has a size
    this.paintPad();
    if (opens && this.takesFocus) (picture || now.kind === "plane" ? this.pad : this.after).focus();
    this.takesFocus = false;
  }

  showValues(now) {
    this.values.hidden = now.kind === "picture";
    if (now.kind === "picture") return;
    const rows = now.names.map((name, i) => ({ name, i, value: now.values[i] }));
    if (now.features > rows.length) rows.push({ name: `and ${now.features - rows.length} more`, i: rows.length, value: null });
    keyed(this.values, rows, (row) => `${row.i} ${row.name} ${now.kind}`, (row) => {
      const field = element("b");
      const made = element(now.kind === "plane" ? "label" : "div", {}, element("span", { title: row.name }, row.name), field);
      if (now.kind === "plane") {
        const slider = element("input", { type: "range", min: 0, max: 1, step: 0.005, oninput: () => {
          const { values, low, high } = this.now;
          const share = Number(slider.value);
          const value = rounded(low[row.i] + share * (high[row.i] - low[row.i]), high[row.i] - low[row.i]);
          this.ask({ values: values.map((old, i) => (i === row.i ? value : old)) });
        } });
        made.append(slider);
      }
      return made;
    }, (made, row) => {
      const text = row.value === null ? "" : String(Number(row.value.toPrecision(4)));
      setText(made.children[1], text);
      const slider = made.children[2];
      if (!slider) return;
      setAttribute(slider, "aria-valuetext", text);
      if (!slider.matches(":active")) slider.value = String((row.value - now.low[row.i]) / (now.high[row.i] - now.low[row.i]));
    });
  }

  showAnswer(now) {
    const best = now.bars.find((bar) => bar.best);
    const [lead, answer] = this.verdict.children;
    setText(lead, now.problem || (best ? "the model says " : "")); // read aloud when it changes
    setText(answer, best && !now.problem ? best.name : "");
    this.verdict.hidden = !now.problem && !best;
    mark(this.verdict, { "lk-none": now.problem, "lk-miss": best && now.right && !best.right });
    keyed(this.bars, now.bars.map((bar, i) => ({ ...bar, i })), (bar) => `${bar.i} ${bar.share === undefined}`, (bar) => {
      const fill = bar.share === undefined ? null : element("span", { class: "lk-track" }, element("i"));
      return element("div", { role: "listitem" }, element("span", { class: "lk-name" }), fill, element("b"));
    }, (made, bar) => {
      setText(made.firstChild, bar.name);
      setAttribute(made.firstChild, "title", bar.right ? `${bar.name}: the class of this sample` : bar.name);
      setText(made.lastChild, bar.text);
      if (bar.share !== undefined) made.children[1].firstChild.style.width = `${100 * bar.share}%`;
      mark(made, { "lk-best": bar.best, "lk-true": bar.right });
    });
    setText(this.weights, now.weights);
  }

  // pictures -------------------------------------------------------------------------------------------------------------

  paintPad() {
    const now = this.now;
    if (!now.open || this.box.hidden || now.kind === "values") return;
    if (now.kind === "plane") {
      this.paintPlane(now);
      return;
    }
    const [rows, columns] = now.shape;
    const wide = Math.min(150, (150 * columns) / rows);
    this.pad.style.width = `${wide}px`;
    this.pad.style.height = `${(wide * rows) / columns}px`;
    const pen = this.sheet(this.pad);
    if (!pen) return;
    const [w, h] = [this.pad.clientWidth, this.pad.clientHeight];
    if (this.ownDrawing()) this.paintStrokes(pen, w, h);
    else this.paintPixels(pen, w, h, rows, columns, this.typed || now.ink);
    if (this.keys || this.pad.matches(":focus-visible")) {
      pen.strokeStyle = getComputedStyle(this.verdict.lastChild).color;
      pen.lineWidth = 2;
      pen.strokeRect((this.cell[1] * w) / columns, (this.cell[0] * h) / rows, w / columns, h / rows);
    }
    this.seen.style.width = `${(wide * 44) / 150}px`;
    this.seen.style.height = `${(wide * rows * 44) / (150 * columns)}px`;
    const small = this.sheet(this.seen);
    if (small) this.paintPixels(small, this.seen.clientWidth, this.seen.clientHeight, rows, columns, now.ink);
  }

  // The context of an empty canvas, in CSS pixels.
  sheet(canvas) {
    const ratio = window.devicePixelRatio || 1;
    const [wide, high] = [canvas.clientWidth, canvas.clientHeight];
    if (!wide || !high) return null;
    canvas.width = Math.round(wide * ratio);
    canvas.height = Math.round(high * ratio);
    const context = canvas.getContext("2d");
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.scale(ratio, ratio);
    context.fillStyle = context.strokeStyle = getComputedStyle(canvas).color;
    return context;
  }

  paintPixels(context, w, h, rows, columns, ink) {
    ink.forEach((share, i) => {
      context.globalAlpha = share;
      const [row, column] = [Math.floor(i / columns), i % columns];
      context.fillRect((column * w) / columns, (row * h) / rows, w / columns + 0.3, h / rows + 0.3);
    });
    context.globalAlpha = 1;
  }

  paintStrokes(context, w, h) {
    context.lineWidth = 2 * this.now.pen * Math.max(w, h); // pen: half the width, as a share of the area
    context.lineCap = context.lineJoin = "round";
    for (const stroke of this.strokes) {
      context.beginPath();
      context.moveTo(stroke[0] * w, stroke[1] * h);
      for (let i = 0; i < stroke.length; i += 2) context.lineTo(stroke[i] * w, stroke[i + 1] * h);
      context.stroke();
    }
  }

  paintPlane(now) {
    this.pad.style.width = "206px";
    this.pad.style.height = "150px";
    const context = this.sheet(this.pad);
    if (!context) return;
    const [w, h] = [this.pad.clientWidth, this.pad.clientHeight];
    const place = (point) => [0, 1].map((i) => (point[i] - now.low[i]) / (now.high[i] - now.low[i])).map((share, i) => (i ? (1 - share) * h : share * w));
    const ink = context.fillStyle;
    const dot = ([x, y], radius) => {
      context.beginPath();
      context.arc(x, y, radius, 0, 7);
      context.fill();
    };
    now.points.forEach((point, i) => {
      context.fillStyle = this.view.colour(CLASSES[(now.labels[i] ?? 1) % CLASSES.length]);
      dot(place(point), 2);
    });
    const [x, y] = place(now.values);
    context.strokeStyle = context.fillStyle = ink;
    context.lineWidth = 0.5;
    for (const [a, b] of [[[x, 0], [x, h]], [[0, y], [w, y]]]) {
      context.beginPath();
      context.moveTo(...a);
      context.lineTo(...b);
      context.stroke();
    }
    dot([x, y], 5);
  }
}

const CLASSES = ["#2f5fe3", "#7a8394", "#1f7a48", "#b45309"]; // colours of the samples in the plane

// A number with as many digits as a thousandth of the range needs.
function rounded(value, range) {
  return Number(value.toFixed(Math.min(12, Math.max(0, 3 - Math.floor(Math.log10(range))))));
}
