// What can only be seen inside the page: panels that are drawn, messages between page and kernel, and the time from a press to
// what it changes.
//
// A drawing of a canvas begins with `clearRect`, which is observed here. Times are in milliseconds on the clock of
// performance.now(). An event's timeStamp is on it too, and is the moment at which the browser got the press, also if the
// page was busy then.
const counts = new WeakMap(); // canvas -> number of drawings so far
const watching = new Set(); // functions that are called with each canvas that is drawn
const clearRect = CanvasRenderingContext2D.prototype.clearRect;
CanvasRenderingContext2D.prototype.clearRect = function (...box) {
  clearRect.apply(this, box);
  counts.set(this.canvas, (counts.get(this.canvas) ?? 0) + 1);
  watching.forEach(act => act(this.canvas));
};

let copies = 0; // texts that have been written to the clipboard
if (window.Clipboard) { // a blank page has none
  const { writeText } = Clipboard.prototype;
  Clipboard.prototype.writeText = async function (text) {
    await writeText.call(this, text);
    copies += 1;
  };
}

// While `texts` is a list, two properties of each text of a panel are computed when it is drawn: its contrast as in WCAG 2 (its
// colour against the most frequent colour of the pixels below its middle), and how many pixels of it are beyond the canvas.
let texts = null;
const fillText = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, x, y, ...more) {
  const panel = this.canvas.closest("[data-panel]")?.dataset.panel;
  if (texts !== null && panel !== undefined && text.trim()) {
    texts.push([panel, text, contrast(this, text, x, y), beyond(this, text, x, y)]);
  }
  fillText.call(this, text, x, y, ...more);
};

function contrast(pen, text, x, y) {
  const size = parseFloat(pen.font.match(/([\d.]+)px/)[1]);
  const shift = {left: 0.5, center: 0, right: -0.5}[pen.textAlign] * pen.measureText(text).width;
  const middle = pen.getTransform().transformPoint(new DOMPoint(x + shift, y - 0.35 * size));
  const { data } = pen.getImageData(Math.round(middle.x) - 4, Math.round(middle.y) - 4, 9, 9);
  const found = new Map();
  for (let i = 0; i < data.length; i += 4) {
    const key = data.slice(i, i + 4).join();
    found.set(key, (found.get(key) ?? 0) + 1);
  }
  const [below] = [...found].sort((a, b) => b[1] - a[1])[0];
  const [r, g, b, a] = below.split(",").map(Number);
  const paper = over([r, g, b, a / 255], numbers(getComputedStyle(pen.canvas.closest(".labkit-lab")).backgroundColor));
  const one = new OffscreenCanvas(1, 1).getContext("2d"); // reads any notation of a colour
  one.fillStyle = pen.fillStyle;
  one.fillRect(0, 0, 1, 1);
  const [inkR, inkG, inkB, inkA] = one.getImageData(0, 0, 1, 1).data;
  const [light, dark] = [luminance(paper), luminance(over([inkR, inkG, inkB, inkA / 255], paper))].sort((p, q) => q - p);
  return (light + 0.05) / (dark + 0.05);
}

function beyond(pen, text, x, y) {
  const size = parseFloat(pen.font.match(/([\d.]+)px/)[1]);
  const wide = pen.measureText(text).width;
  const left = x - {left: 0, center: 0.5, right: 1}[pen.textAlign] * wide;
  const matrix = pen.getTransform();
  const corners = [[left, y], [left + wide, y], [left, y - 0.7 * size], [left + wide, y - 0.7 * size]]
    .map(([px, py]) => matrix.transformPoint(new DOMPoint(px, py)));
  return Math.max(...corners.flatMap(({x: cx, y: cy}) => [0, -cx, cx - pen.canvas.width, -cy, cy - pen.canvas.height]));
}

const numbers = colour => colour.match(/[\d.]+/g).map(Number);
const over = ([r, g, b, a], paper) => [r, g, b].map((value, i) => a * value + (1 - a) * paper[i]);
const luminance = colour => colour.map(value => value / 255)
  .map(value => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
  .reduce((sum, value, i) => sum + value * [0.2126, 0.7152, 0.0722][i], 0);

window.labkitMeasure = {
  // From now on texts are recorded; `textsRead()` ends it and returns [[panel, text, contrast, pixels beyond the canvas]].
  readTexts() { texts = []; },
  textsRead() {
    const found = texts;
    texts = null;
    return found;
  },

  // How often each canvas that matches `selector` was drawn so far, in the order of the page.
  drawn(selector) {
    return [...document.querySelectorAll(selector)].map(canvas => counts.get(canvas) ?? 0);
  },

  // The number of texts that were copied so far.
  copies() {
    return copies;
  },

  // The largest number of drawings so far of a canvas that matches `selector`.
  most(selector) {
    return Math.max(0, ...[...document.querySelectorAll(selector)].map(canvas => counts.get(canvas) ?? 0));
  },

  // Number of different colours on a canvas; 1 if it is blank.
  colours(canvas) {
    if (!canvas.width || !canvas.height) return 0;
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    return new Set(new Uint32Array(data.buffer)).size;
  },

  // Whether at least so many canvases match `selector`, and none of those that have a size is blank.
  pictured(selector, least) {
    const all = [...document.querySelectorAll(selector)].filter(canvas => canvas.clientWidth && canvas.clientHeight);
    return all.length >= least && all.every(canvas => counts.get(canvas) && this.colours(canvas) > 2);
  },

  // From now on the messages of widgets between page and kernel are observed. `heard`: the requests that the kernel has completed;
  // `asked`: the number of questions to the kernel so far, by kind; `open`: those that are not answered; `pointed`: the last
  // question for a value; `last`: the last messages, as texts.
  listen(kernel) {
    Object.assign(this, { heard: new Set(), asked: {}, open: new Set(), pointed: null, last: [], labs: new Map() });
    const note = (way, kind) => {
      this.last.push(`${way} ${kind}`);
      if (this.last.length > 15) this.last.shift();
    };
    const lab = id => {
      if (!this.labs.has(id)) this.labs.set(id, { sizes: {}, visible: [], pictures: new Map() });
      return this.labs.get(id);
    };
    kernel.anyMessage.connect((_, { msg, direction }) => {
      const content = msg.content?.data?.content;
      if (direction !== "send" || msg.header.msg_type !== "comm_msg" || !content?.do) return;
      note("to the kernel:", `${content.do} ${content.action ?? ""}`);
      if (content.do === "layout") Object.assign(lab(msg.content.comm_id), { sizes: content.sizes, visible: content.visible });
      if (content.number === undefined) return;
      this.asked[content.do] = (this.asked[content.do] ?? 0) + 1;
      this.open.add(`${msg.content.comm_id} ${content.number}`);
      if (content.do === "probe") this.pointed = content;
    });
    kernel.iopubMessage.connect((_, msg) => { // comes when the page has processed the message
      const kind = msg.header.msg_type, content = msg.content?.data?.content;
      if (kind === "status" && msg.content.execution_state === "idle") this.heard.add(msg.parent_header.msg_id);
      if (kind === "comm_close") this.labs.delete(msg.content.comm_id);
      if (kind !== "comm_msg" || !content?.do) return;
      note("from the kernel:", content.do);
      if (content.do === "answer") this.open.delete(`${msg.content.comm_id} ${content.number}`);
      if (content.do === "close") this.labs.delete(msg.content.comm_id);
      if (content.do === "frame") for (const panel of content.panels) lab(msg.content.comm_id).pictures.set(panel.name, panel.size);
    });
  },

  // Whether each panel in view has its picture in the size that the page has reported last. The kernel draws a small panel larger.
  sized() {
    return [...this.labs.values()].every(({ sizes, visible, pictures }) => visible.filter(name => sizes[name]).every(name => {
      const scale = Math.max(1, 200 / sizes[name][0], 100 / sizes[name][1]);
      return pictures.get(name)?.every((pixels, i) => Math.abs(pixels - scale * sizes[name][i]) <= 1);
    }));
  },

  // When a change of the size of the window, of the theme or of the place of the page has had its effect on the layout, and was
  // reported to the kernel: observers of sizes are called in the frame after a change, and the lab changes heights in the next one.
  async laidOut() {
    for (let i = 0; i < 6; i++) await new Promise(resolve => requestAnimationFrame(resolve));
  },

  // Record for every frame of the browser in which canvases in `selector` are drawn: the names of the panels, and the
  // value of `state()` when the frame is shown. `drawings()` ends it and returns the list.
  record(selector, state) {
    this.frameList = [];
    let now = null;
    this.recorder = canvas => {
      const panel = canvas.closest(selector)?.dataset.panel;
      if (panel === undefined) return;
      if (now === null) {
        now = { panels: [] };
        requestAnimationFrame(() => {
          this.frameList.push({ ...now, state: state() });
          now = null;
        });
      }
      now.panels.push(panel);
    };
    watching.add(this.recorder);
  },

  drawings() {
    watching.delete(this.recorder);
    return this.frameList;
  },

  // Wait for a press, then for `holds()`, which is asked after every change of the page, for `patience` milliseconds. `answer()`
  // returns the time between them, the frame that shows it included; it is called after the press.
  expect(holds, patience) {
    if (holds()) throw new Error("what was to become true was true before the press");
    const kinds = ["pointerdown", "keydown", "input", "change"]; // a menu's choice by a program has only the latter two
    let pressed = null, timer, press, observer;
    const end = () => {
      observer.disconnect();
      clearTimeout(timer);
      kinds.forEach(kind => document.removeEventListener(kind, press, true));
    };
    const seen = new Promise((resolve, reject) => {
      press = event => {
        if (pressed !== null) return;
        pressed = event.timeStamp;
        timer = setTimeout(() => {
          end();
          reject(new Error(`not true ${patience} ms later`));
        }, patience);
      };
      observer = new MutationObserver(() => {
        if (pressed === null || !holds()) return;
        end();
        requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - pressed)));
      });
    });
    kinds.forEach(kind => document.addEventListener(kind, press, true));
    observer.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
    seen.catch(() => {}); // it is asked for later
    this.answer = () => {
      if (pressed !== null) return seen;
      end();
      throw new Error("nothing was pressed");
    };
  },
};
