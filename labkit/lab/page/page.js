// The page of a lab: one widget. The kernel sends the state as traits of the model, one per section of the page, and pictures as
// display lists in messages; the browser sends what the user does. Nothing here computes results: a section is shown as it comes.
//
// Traits: toolbar, player, headline, question, faults, controls, runs, numbers, log_lines, panels, experiments, ask, status (see
// content.py).
// Messages to the kernel: {do: "press" | "panels" | "layout" | "seen" | "ready" | "probe" | "step" | "save" | "copy" | "share" | "ask", ...}.

const SECTIONS = ["toolbar", "player", "headline", "question", "faults", "controls", "runs", "numbers", "log_lines", "panels",
  "experiments", "ask", "status"];
const PROBE_EVERY = 60; // ms between two questions for the value under the pointer
const OLD = 2000; // ms after which a panel shows how old its picture is
const AGE_EVERY = 500; // ms between two looks at the ages of panels
let drawers = 0; // each drawer has an id
const KEYS = [
  ["Space", "pause or resume"], ["← →", "look back, look forward"],
  ["in a panel", "← → go from value to value"],
  ["Home, End", "the beginning of the run, the present"],
  [". (period)", "the next applied update"], ["u", "undo the last fault or option"], ["f", "full screen"],
  ["?", "show or hide this list"], ["Esc", "close what is open"],
];

const ICONS = {
  run: "M4 2l10 6-10 6z", pause: "M3 2h4v12H3zM9 2h4v12H9z", stop: "M3 3h10v10H3z", step: "M3 2l7 6-7 6zM11 2h2v12h-2z",
  reset: "M8 2a6 6 0 1 1-5.6 3.8l1.9.7A4 4 0 1 0 8 4v3L3.500 3.500 8 0z", resume: "M4 2l10 6-10 6z",
  unpin: "M6 1h4l-.5 5L12 9v1H8.700V15H7.300V10H4V9l2.500-3z",
  pin: "M6 1h4l-.5 5L12 9v1H8.700V15H7.300V10H4V9l2.500-3z",
  undo: "M6 2L1.500 6 6 10V7.300h4a2.500 2.500 0 0 1 0 5H5V14h5a4.200 4.200 0 0 0 0-8.400H6z",
  what_if: "M2 7h6l4-4v2.500h2v-4h-4L11.500 3 7.200 7.200V9l4.300 4L10 14.500h4v-4h-2V13L8 9H2z",
  live: "M2 2l5 6-5 6zM7 2l5 6-5 6zM12 2h2v12h-2z",
  settings: "M2 3h5v2H2zM11 3h3v2h-3zM7 2h3v4H7zM2 11h2v2H2zM8 11h6v2H8zM4 10h3v4H4zM2 7h8v2H2zM13 7h1v2h-1zM10 6h2v4h-2z",
  calibrate: "M2 12a6 6 0 1 1 12 0h-2a4 4 0 1 0-8 0zM7 11l3.500-5 1 .7L9 12z",
  forecast: "M2 2h1.600v10.400H14V14H2zM5 9h2v2H5zM8 6.500h2v2H8zM11 4h2v2h-2z",
  ask: "M2 2h12v9H8l-3.500 3.500V11H2zM5 4.500V6h6V4.500zM5 7.300v1.500h4V7.300z",
  full: "M2 2h5v2H4v3H2zM9 2h5v5h-2V4H9zM2 9h2v3h3v2H2zM12 9h2v5H9v-2h3z",
  enlarge: "M9 2h5v5h-2V5.400L9.700 7.700 8.300 6.300 10.600 4H9zM2 9h2v1.600l2.300-2.300 1.400 1.400L5.400 12H7v2H2z",
};

function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

// elements -------------------------------------------------------------------------------------------------------------

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "class") made.className = value;
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function speedText(factor) { // of a role whose computing takes `factor` times as long
  return factor === 1 ? "as usual" : factor < 1 ? `${Number((1 / factor).toPrecision(3))}x faster` : `${factor}x slower`;
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function setAttribute(node, name, value) {
  if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, String(value));
}

function mark(node, classes) {
  for (const [name, on] of Object.entries(classes)) node.classList.toggle(name, Boolean(on));
}

// Children of `box` by key, in this order. A child that stays keeps its element, and so the focus and an open menu.
function keyed(box, items, keyOf, make, update) {
  const before = box.keyedChildren || new Map();
  const after = new Map();
  let place = box.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    const node = before.get(key) || make(item);
    after.set(key, node);
    before.delete(key);
    if (node === place) place = place.nextElementSibling;
    else box.insertBefore(node, place);
    update(node, item);
  }
  for (const node of before.values()) node.remove();
  box.keyedChildren = after;
}

// the state that all views of one model share ----------------------------------------------------------------------------

class Shared {
  constructor(model) {
    this.model = model;
    // panel -> {axes, content, size, caption, alt, failed, t: the displayed time of which it is, at: the moment that was the present}
    this.pictures = new Map();
    this.run = -1; // the number of the run of which these are pictures
    this.views = new Set();
    this.answers = new Map(); // number of a question -> what to do with its answer
    this.asked = 0;
    this.page = Math.random().toString(36).slice(2);
    this.layouts = 0;
    this.onMessage = (message, buffers) => this.receive(message, buffers);
    model.on("msg:custom", this.onMessage);
    this.onPlayer = () => this.begin((model.get("player") || {}).run);
    model.on("change:player", this.onPlayer); // before the listeners of the views
    this.onPlayer();
  }

  close() {
    this.model.off("msg:custom", this.onMessage);
    this.model.off("change:player", this.onPlayer);
    this.hidden?.remove();
  }

  // Pictures of one run do not stay beside texts and pictures of the next one. The numbers of the runs of a page ascend. The first
  // frame of a run may come before the change of the trait "player": the front end processes changes of traits asynchronously.
  begin(run) {
    if (!(run > this.run)) return;
    this.run = run;
    this.pictures.clear();
    for (const view of this.views) view.clear();
  }

  // The kernel answers: the static output of the cell, which is for readers without a kernel, is not needed.
  hideStatic() {
    if (this.hidden) return;
    const name = `.labkit-static-${this.model.get("status").output}`;
    this.hidden = element("style", {}, `${name}, .jp-OutputArea-child:has(${name}) { display: none !important; }`);
    document.head.append(this.hidden);
    for (const view of this.views) view.appear();
  }

  receive(message, buffers) {
    if (message.do === "close") {
      this.close(); // the static output is all that stays
      return;
    }
    this.hideStatic();
    if (message.do === "frame") {
      this.begin(message.run);
      for (const panel of message.panels) this.keep(panel, buffers);
      const at = performance.now() - 1000 * message.late;
      for (const name of message.current) Object.assign(this.pictures.get(name) || {}, { t: message.t, at });
      for (const view of this.views) view.draw(message.panels.map((panel) => panel.name));
      this.acknowledge(message.frame);
    } else if (message.do === "figure") {
      this.figure = { ...message, content: displayList(message.content, buffers) };
      for (const view of this.views) view.drawFigure();
    } else if (message.do === "show") {
      this.scroll = true;
      for (const view of this.views) view.scrollIntoView();
    } else if (message.do === "answer") {
      const act = this.answers.get(message.number);
      this.answers.delete(message.number);
      if (act) act(message, buffers);
    }
  }

  keep(panel, buffers) {
    const old = this.pictures.get(panel.name) || {};
    const list = (layer) => layer && displayList(layer, buffers);
    this.pictures.set(panel.name, { ...old, failed: false, ...panel, axes: list(panel.axes) || old.axes, content: list(panel.content) || old.content });
  }

  // A frame is acknowledged when the browser shows it; a hidden tab shows nothing, and acknowledges when it is shown again.
  acknowledge(frame) {
    this.newest = frame;
    if (this.waits) return;
    this.waits = true;
    requestAnimationFrame(() => {
      this.waits = false;
      this.send({ do: "seen", frame: this.newest });
    });
  }

  send(message) {
    try {
      this.model.send(message);
    } catch (error) {
      for (const view of this.views) view.disconnect();
    }
  }

  // The views of a page share their pictures, so a panel is drawn if one of them shows it. The layouts of a page are numbered:
  // JupyterLab sends the first messages through the main shell of the kernel, and later ones through a subshell, which does not wait
  // for the cell that runs.
  layout(sizes) {
    this.layouts += 1;
    const visible = new Set([...this.views].flatMap((view) => [...view.inView]));
    this.send({ do: "layout", page: this.page, order: this.layouts, sizes, visible: [...visible] });
  }

  ask(message, act) {
    this.asked += 1;
    this.answers.set(this.asked, act);
    this.send({ ...message, number: this.asked });
  }
}

function displayList(layer, buffers) {
  return {
    ops: layer.ops,
    points: new Float32Array(copied(buffers[layer.points])),
    pixels: new Uint8Array(copied(buffers[layer.pixels])),
  };
}

function copied(buffer) {
  if (buffer === undefined) return new ArrayBuffer(0);
  const view = buffer instanceof DataView ? new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength) : new Uint8Array(buffer);
  return view.slice().buffer;
}

// one view ---------------------------------------------------------------------------------------------------------------

class LabView {
  constructor(shared, el) {
    this.shared = shared;
    this.model = shared.model;
    this.canvases = new Map(); // panel -> {canvas, caption, age, box, right: the last moment at which its picture was up to date}
    this.inView = new Set(); // panels
    this.role = "";
    this.enlarged = "";
    this.root = element("div", { class: "labkit-lab", role: "region", "aria-label": "labkit lab", tabindex: "-1" });
    this.build();
    el.append(this.root);
    this.listeners = SECTIONS.map((name) => {
      const act = () => this.show(name);
      this.model.on(`change:${name}`, act);
      return [`change:${name}`, act];
    });
    SECTIONS.forEach((name) => this.show(name));
    this.observe(el);
    shared.views.add(this);
    shared.send({ do: "ready" });
    this.draw([...shared.pictures.keys()]);
    if (shared.scroll) this.scrollIntoView();
  }

  close() {
    this.shared.views.delete(this);
    for (const [event, act] of this.listeners) this.model.off(event, act);
    for (const observer of this.observers) observer.disconnect();
    this.kernel?.statusChanged?.disconnect(this.onKernel);
    this.resolution.removeEventListener("change", this.onScreen);
    document.removeEventListener("visibilitychange", this.onVisible);
    document.removeEventListener("fullscreenchange", this.onFullScreen);
    clearInterval(this.ages);
  }

  get(name) {
    return this.model.get(name);
  }

  // The kernel answers every press at once, before it takes effect; without an answer the page says what it waits for.
  press(action, ...args) {
    const waits = setTimeout(() => this.root.classList.add("lk-waits"), 1500);
    this.shared.ask({ do: "press", action, args }, () => {
      clearTimeout(waits);
      for (const view of this.shared.views) view.answered();
    });
  }

  answered() {
    this.root.classList.remove("lk-waits");
    for (const button of this.root.querySelectorAll(".lk-pressed")) button.classList.remove("lk-pressed");
    this.show("faults");
  }

  // the skeleton ---------------------------------------------------------------------------------------------------------

  build() {
    this.buildToolbar();
    this.buildPlayer();
    this.headline = element("div", { class: "lk-headline", "aria-live": "polite" }, element("b"), element("span"));
    this.question = element("div", { class: "lk-question", role: "status", hidden: true }, element("div", { class: "lk-text" }),
      element("div", { class: "lk-answers" }));
    this.faults = element("section", { class: "lk-section lk-fault-controls", "aria-label": "inject a fault" });
    this.buildFaults();
    this.settings = element("div", { class: "lk-settings" });
    this.more = element("details", { class: "lk-section" }, element("summary", {}, "more settings"), element("div"));
    this.runs = element("section", { class: "lk-section", "aria-label": "runs" }, element("h4", {}, "runs"), element("div", { class: "lk-runs" }));
    this.drawer = element("div", { class: "lk-drawer", id: `lk-drawer-${++drawers}` }, this.settings, this.more, this.runs);
    this.side = element("div", { class: "lk-side" }, this.faults, this.drawer);
    this.grid = element("div", { class: "lk-panels" });
    this.buildSheet();
    this.pane = new AskPane(this);
    this.body = element("div", { class: "lk-body" }, this.side, this.grid, this.pane.box, this.sheet);
    this.screen = element("div", { class: "lk-screen" }, this.toolbar, this.player, this.headline, this.question, this.body);
    setAttribute(this.open, "aria-controls", this.drawer.id);
    this.numbers = element("div", { class: "lk-numbers" });
    this.log = element("div", { class: "lk-log", role: "log", "aria-live": "polite", "aria-label": "log", tabindex: "0" });
    this.choice = element("div", { class: "lk-choice", role: "group", "aria-label": "panels" });
    this.share = element("div", { class: "lk-share" });
    this.foot = element("div", { class: "lk-foot" }, this.numbers, this.log,
      element("details", {}, element("summary", {}, "panels"), this.choice),
      element("details", { ontoggle: (event) => event.target.open && this.showShareText() },
        element("summary", {}, "share text"), this.share));
    this.tip = element("div", { class: "lk-tip", role: "status", hidden: true });
    this.marker = element("div", { class: "lk-marker", "aria-hidden": "true", hidden: true });
    this.help = element("div", { class: "lk-help", role: "dialog", "aria-label": "keys", tabindex: "-1", hidden: true }, element("h4", {}, "keys"),
      element("dl", {}, ...KEYS.flatMap(([key, text]) => [element("dt", {}, key), element("dd", {}, text)])));
    this.over = element("div", { class: "lk-over", role: "alert", hidden: true });
    this.root.append(this.screen, this.foot, this.marker, this.tip, this.help, this.over);
    this.root.addEventListener("keydown", (event) => this.key(event));
  }

  button(label, attributes = {}) {
    const { tip, ...others } = attributes;
    return element("button", { type: "button", title: tip || String(label), ...others }, label);
  }

  buildToolbar() {
    this.scenario = element("select", { class: "lk-scenario", "aria-label": "scenario",
      title: "prepared experiments; a choice is played at once", onchange: () => this.press("play", this.scenario.value || null) });
    this.buttons = element("div", { class: "lk-buttons" });
    const full = this.button(icon("full"), { tip: "full screen (f)", class: "lk-icon", "aria-label": "full screen", onclick: () => this.fullScreen() });
    const keys = this.button("?", { tip: "keys (?)", class: "lk-icon", "aria-label": "keys", onclick: () => this.toggleHelp() });
    this.open = this.button(icon("settings"), { tip: "show or hide the settings", class: "lk-icon lk-open-drawer",
      "aria-label": "settings", "aria-expanded": "false",
      onclick: () => this.toggleDrawer() });
    this.toolbar = element("div", { class: "lk-toolbar" }, this.scenario, this.buttons, element("span", { class: "lk-space" }),
      this.open, keys, full);
  }

  buildPlayer() {
    this.state = element("div", { class: "lk-state", role: "status" }, element("b"), element("span"), element("small"));
    this.slider = element("input", { type: "range", class: "lk-time", min: "0", max: "1000", step: "1", "aria-label": "time of the run",
      title: "look at an earlier moment of the run", oninput: () => this.seek(Number(this.slider.value)) });
    this.scale = element("span", { class: "lk-scale", title: "end of the slider; it grows with the run" });
    this.ends = element("div", { class: "lk-ends" }, element("span"), element("small"));
    this.speed = element("select", { class: "lk-speed", "aria-label": "playback speed",
      title: "playback speed, in seconds of virtual time per second", onchange: () => this.press("set", { speed: Number(this.speed.value) }) });
    this.player = element("div", { class: "lk-player" }, this.state, this.slider, this.scale, this.ends, this.speed);
  }

  buildFaults() {
    this.chips = element("div", { class: "lk-chips", role: "radiogroup", "aria-label": "role",
      onkeydown: (event) => this.chooseNext(event) });
    this.roleMenu = element("select", { "aria-label": "role", onchange: () => this.choose(this.roleMenu.value) });
    this.factor = element("select", { "aria-label": "slowdown factor", title: "the role computes so many times slower; 1x undoes it",
      onchange: () => this.press("slow", this.role, Number(this.factor.value)) });
    this.faultButtons = element("div", { class: "lk-buttons" });
    this.faults.append(element("h4", {}, "inject a fault"), this.chips, this.roleMenu,
      element("div", { class: "lk-row" }, element("label", {}, "computes ", this.factor), this.faultButtons));
  }

  // sections -------------------------------------------------------------------------------------------------------------

  show(name) {
    const value = this.get(name);
    if (!value || (!Array.isArray(value) && !Object.keys(value).length)) return; // not sent yet
    this[`show_${name}`](value);
  }

  show_toolbar(toolbar) {
    keyed(this.scenario, toolbar.scenarios, ([name]) => name, ([name, title]) => element("option", { value: name }, title), () => {});
    if (document.activeElement !== this.scenario) this.scenario.value = toolbar.scenario;
    this.showButtons(this.buttons, toolbar.buttons, (button) => this.pressToolbar(button));
    const open = this.buttons.querySelector('[data-id="calibrate"]');
    if (open) setAttribute(open, "aria-expanded", this.sheet.hidden ? "false" : "true");
    setAttribute(this.buttons.querySelector('[data-id="ask"]'), "aria-expanded", this.get("ask")?.open ? "true" : "false");
  }

  // Calibrate measures, and shows its progress; when the cluster is calibrated, the button is Forecast, which only opens the sheet.
  pressToolbar(button) {
    if (button.action === "ask") {
      this.pane.toggle();
      this.answered();
      return;
    }
    if (button.action === "forecast" || (button.action === "calibrate" && button.off && this.get("experiments").kind)) {
      this.toggleSheet();
      this.answered();
      return;
    }
    this.awaitsCalibration = button.action === "calibrate" && !button.off; // the lab may refuse it: the toolbar of this page can be out of date
    if (button.action === "run" && !button.off) this.toggleSheet(false); // the panels show the run
    this.press(button.action);
  }

  // Buttons are not disabled, because a browser moves the focus away from disabled elements.
  showButtons(box, buttons, act) {
    keyed(box, buttons, (button) => button.id, (button) => {
      const made = this.button(element("span", {}, button.label));
      made.addEventListener("click", (event) => {
        if (event.detail > 1 && !["step", "undo"].includes(made.state.id)) return; // a double click is one press
        made.classList.add("lk-pressed"); // shown at once; the answer of the kernel removes it
        act(made.state);
      });
      return made;
    }, (made, button) => {
      made.state = button;
      setText(made.lastElementChild, button.label);
      if (ICONS[button.action] && made.shown !== button.action) {
        made.shown = button.action;
        made.querySelector("svg")?.remove();
        made.prepend(icon(button.action));
      }
      setAttribute(made, "title", button.tip || button.label);
      setAttribute(made, "aria-disabled", button.off ? "true" : null);
      mark(made, { "lk-main": button.main, "lk-off": button.off, "lk-undo": button.undo, "lk-has-icon": ICONS[button.action] });
      made.dataset.id = button.id;
      made.hidden = Boolean(button.hidden);
    });
  }

  show_player(player) {
    const [lamp, at, below] = this.state.children;
    setText(lamp, player.lamp);
    setText(at, ` ${player.at}`);
    setText(below, player.below || "\u00a0");
    mark(this.state, { "lk-live": player.live && player.moves, "lk-failed": player.failed });
    if (!this.dragging) this.slider.value = String(Math.round((1000 * player.t) / player.length));
    setAttribute(this.slider, "aria-valuetext", player.at);
    setText(this.scale, player.scale || "");
    this.scale.hidden = !player.scale;
    setText(this.ends.children[0], player.ends[0] || "");
    setText(this.ends.children[1], player.ends[1] || "\u00a0");
    keyed(this.speed, player.speeds, (speed) => speed, (speed) => element("option", { value: speed }, `${speed}x`), () => {});
    if (document.activeElement !== this.speed) this.speed.value = String(player.speed);
  }

  show_headline(headline) {
    setText(this.headline.children[0], headline.first);
    setText(this.headline.children[1], headline.rest);
    mark(this.headline, { "lk-error": headline.error });
  }

  show_question(question) {
    this.question.hidden = !question.text;
    mark(this.question, { "lk-right": question.result === "right", "lk-wrong": question.result === "wrong" });
    setText(this.question.children[0], question.text || "");
    keyed(this.question.children[1], (question.answers || []).map((answer, i) => ({ ...answer, i })), (answer) => answer.i,
      (answer) => this.button(answer.text, { onclick: () => this.press("answer", answer.i) }),
      (made, answer) => {
        setText(made, answer.text);
        mark(made, { "lk-given": answer.given });
        setAttribute(made, "aria-disabled", question.open ? null : "true");
      });
  }

  show_faults(faults) {
    const few = faults.roles.length <= faults.most;
    this.chips.hidden = !few;
    this.roleMenu.hidden = few;
    if (!this.byUser || !faults.roles.some((role) => role.name === this.role)) {
      this.role = faults.first;
      this.byUser = false;
    }
    const roles = few ? faults.roles : [];
    keyed(this.chips, roles, (role) => role.name, (role) => {
      return this.button(role.text, { role: "radio", onclick: () => this.choose(role.name) });
    }, (made, role) => {
      setText(made, role.text);
      setAttribute(made, "title", role.tip);
      setAttribute(made, "aria-checked", role.name === this.role ? "true" : "false");
      made.tabIndex = role.name === this.role ? 0 : -1; // Tab goes to the chosen one, arrows to the others
      mark(made, { "lk-server": role.server, "lk-slow": role.slow !== 1, "lk-away": role.away });
    });
    if (!few) {
      keyed(this.roleMenu, faults.roles, (role) => role.name, (role) => element("option", { value: role.name }), (made, role) =>
        setText(made, role.tip));
      if (document.activeElement !== this.roleMenu) this.roleMenu.value = this.role;
    }
    const chosen = faults.roles.find((role) => role.name === this.role);
    keyed(this.factor, chosen ? chosen.factors : [1], (factor) => factor, (factor) => element("option", { value: factor }, speedText(factor)),
      () => {});
    if (document.activeElement !== this.factor) this.factor.value = String(chosen ? chosen.slow : 1);
    this.showButtons(this.faultButtons, chosen ? chosen.buttons : [], (button) => {
      this.showChange(this.role, button);
      this.press(button.action, this.role);
    });
  }

  // What a command does is shown on the chip at the press, until the kernel has answered.
  showChange(role, button) {
    const chip = this.chips.keyedChildren?.get(role);
    if (!chip || button.off) return;
    setText(chip, button.change);
    chip.classList.add("lk-away");
  }

  chooseNext(event) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    const chips = [...this.chips.children];
    const next = chips[(chips.indexOf(event.target) + step + chips.length) % chips.length];
    next.focus();
    next.click();
  }

  choose(role) {
    this.role = role;
    this.byUser = true;
    this.show("faults");
  }

  show_controls(controls) {
    const groups = new Map();
    for (const control of controls) {
      if (!groups.has(control.group)) groups.set(control.group, []);
      groups.get(control.group).push(control);
    }
    const sections = [...groups].filter(([group]) => group !== "more");
    keyed(this.settings, sections, ([group]) => group,
      ([group]) => element("section", { class: "lk-section", "aria-label": group }, element("h4", {}, group), element("div")),
      (made, [, members]) => this.showControls(made.children[1], members));
    const more = groups.get("more") || [];
    this.more.hidden = !more.length;
    this.showControls(this.more.children[1], more);
    this.side.hidden = !controls.length && !this.get("faults").roles.length;
  }

  showControls(box, controls) {
    keyed(box, controls, (control) => `${control.name} ${control.kind} ${JSON.stringify(control.choices)} ${Boolean(control.sweep)}`,
      (control) => (control.sweep ? this.makeSweepable(control) : this.makeControl(control)), (made, control) => {
        mark(made, { "lk-next": control.next });
        made.update(control);
      });
  }

  // A setting with a button that opens the sheet for a sweep of its values.
  makeSweepable(control) {
    const row = this.makeControl(control);
    const open = this.button(icon("forecast"), { class: "lk-open-sweep", "aria-label": `sweep ${control.label}`,
      tip: `sweep ${control.label}: compare runs with several values`, onclick: () => this.openSweep(control.name) });
    const box = element("div", { class: "lk-sweepable" }, row, open);
    box.update = (now) => {
      mark(row, { "lk-next": now.next });
      row.update(now);
    };
    return box;
  }

  makeControl(control) {
    const set = (value) => this.press("set", { [control.name]: value });
    const title = control.help;
    const row = element("label", { class: `lk-control lk-${control.kind}`, title }, element("span", {}, control.label));
    // A field keeps what is being typed until it was received; then it shows the setting, which a refused value has not changed.
    let received = control.received;
    const idle = (input, now) => document.activeElement !== input || !input.matches(":focus-visible, :active") || now.received !== received;
    // A menu and a box keep what was chosen until it was received: an update that is on its way may be older.
    let chosen = false;
    const choose = (value) => { chosen = true; set(value); };
    const shows = (now) => {
      const keeps = chosen && now.received === received;
      if (!keeps) chosen = false;
      received = now.received;
      return !keeps;
    };
    if (control.kind === "menu" || control.kind === "steps") {
      const input = element("select", { "aria-label": control.label, onchange: () => choose({ choice: Number(input.value) }) },
        ...control.choices.map((text, i) => element("option", { value: i }, text)));
      row.append(input);
      row.update = (now) => { if (shows(now)) input.value = String(now.index); };
    } else if (control.kind === "check") {
      const input = element("input", { type: "checkbox", "aria-label": control.label, onchange: () => choose(input.checked) });
      row.append(input);
      row.update = (now) => { if (shows(now)) input.checked = now.value; };
    } else if (control.kind === "slider") {
      const place = (value) => (control.log ? Math.log10(value / control.low) / Math.log10(control.high / control.low)
        : (value - control.low) / (control.high - control.low));
      const at = (share) => (control.log ? control.low * (control.high / control.low) ** share
        : control.low + share * (control.high - control.low));
      const field = element("input", { type: "text", inputmode: "decimal", "aria-label": `${control.label}, typed`,
        onchange: () => set(field.value) });
      const input = element("input", { type: "range", min: 0, max: 1, step: 0.01, "aria-label": control.label,
        oninput: () => { field.value = Number(at(Number(input.value)).toPrecision(3)); },
        onchange: () => set(Number(at(Number(input.value)).toPrecision(3))) });
      row.append(field, input);
      row.update = (now) => {
        if (idle(input, now)) input.value = String(place(now.value)); // the slider shows its end for a value beyond it
        if (idle(field, now) && idle(input, now)) field.value = String(now.value);
        received = now.received;
        setAttribute(input, "aria-valuetext", String(now.value));
      };
    } else {
      const input = element("input", { type: "text", "aria-label": control.label, onchange: () => set(input.value) });
      row.append(input);
      row.update = (now) => {
        if (idle(input, now)) input.value = now.value;
        received = now.received;
      };
    }
    return row;
  }

  show_runs(runs) {
    const box = this.runs.children[1];
    this.runs.hidden = !runs.rows.length;
    keyed(box, runs.rows, (run) => run.number, (run) => {
      const show = this.button("", { tip: "show this run again", onclick: () => this.press("show_run", run.number) });
      const pin = this.button(icon("pin"), { tip: "make this the reference run: other runs are drawn over it", "aria-label": `pin run ${run.number}`,
        onclick: () => this.press(pin.pinned ? "unpin" : "pin", ...(pin.pinned ? [] : [run.number])) });
      const cells = runs.columns.map(([name, help]) => element("span", { title: help }, element("b"), ` ${name}`));
      return element("div", { class: "lk-run" }, show, pin, element("div", { class: "lk-cells" }, ...cells));
    }, (made, run) => {
      const [show, pin, cells] = made.children;
      setText(show, `${run.number} ${run.name}`);
      run.cells.forEach((cell, i) => setText(cells.children[i].firstChild, cell));
      pin.pinned = run.pinned;
      mark(made, { "lk-on": run.on });
      mark(pin, { "lk-pinned": run.pinned });
      setAttribute(pin, "aria-pressed", run.pinned ? "true" : "false");
    });
  }

  show_numbers(numbers) {
    keyed(this.numbers, numbers.values, ([name]) => name, ([name, , help]) => element("span", { title: help }, `${name} `, element("b")),
      (made, [, value]) => setText(made.children[0], value));
  }

  show_log_lines(lines) {
    keyed(this.log, lines.map((line, i) => ({ line, key: lines.length - i })), (each) => `${each.key} ${each.line}`,
      (each) => element("div", {}, each.line), () => {});
  }

  showShareText() {
    this.shared.ask({ do: "share" }, ({ text, error }) => {
      if (error) this.share.replaceChildren(element("span", { class: "lk-grey" }, error));
      else {
        const copy = this.button("Copy", { tip: "copy the share text", onclick: () => navigator.clipboard.writeText(text) });
        this.share.replaceChildren(element("code", {}, text), copy);
      }
    });
  }

  show_panels(panels) {
    keyed(this.choice, panels.all, ([name]) => name, ([name, title]) => {
      const input = element("input", { type: "checkbox", onchange: () => this.shared.send({ do: "panels", name, shown: input.checked }) });
      return element("label", {}, input, title);
    }, (made, [name]) => { made.children[0].checked = panels.shown.some((panel) => panel.name === name); });
    keyed(this.grid, panels.shown, (panel) => panel.name, (panel) => this.makePanel(panel), (made, panel) => {
      mark(made, { "lk-wide": panel.wide });
    });
    this.arrange();
  }

  makePanel(panel) {
    const canvas = element("canvas", { role: "img", tabindex: "0", "aria-label": panel.title });
    const caption = element("span", { class: "lk-caption" });
    const age = element("span", { class: "lk-age", title: "the machine is busy: pictures are drawn when it has time" });
    const menu = element("span", { class: "lk-panel-menu" },
      this.button(icon("enlarge"), { tip: "enlarge", "aria-label": `enlarge ${panel.title}`, onclick: () => this.enlarge(panel.name) }),
      this.button("PNG", { tip: "save as PNG", onclick: () => this.save(panel.name, "png") }),
      this.button("SVG", { tip: "save as SVG", onclick: () => this.save(panel.name, "svg") }),
      this.button("Copy", { tip: "copy the values as a table", onclick: () => this.copy(panel.name) }));
    const box = element("figure", { class: `lk-panel lk-p-${panel.name}`, "data-panel": panel.name },
      element("figcaption", {}, element("b", { title: panel.help }, panel.title), age, caption, menu), canvas);
    canvas.addEventListener("pointermove", (event) => this.point(panel.name, canvas, event.offsetX, event.offsetY));
    canvas.addEventListener("pointerleave", () => this.hideTip());
    canvas.addEventListener("keydown", (event) => this.pointByKey(event, panel.name, canvas));
    canvas.addEventListener("blur", () => this.hideTip());
    this.canvases.set(panel.name, { canvas, caption, age, box, right: performance.now() });
    this.sizes?.observe(canvas);
    this.seen?.observe(box);
    return box;
  }

  // calibration, forecasts, sweeps --------------------------------------------------------------------------------------

  buildSheet() {
    const part = (title, ...children) => element("section", { class: "lk-part", "aria-label": title }, element("h4", {}, title), ...children);
    const row = (...children) => element("div", { class: "lk-row" }, ...children);
    const results = () => element("div", { class: "lk-results" });
    this.progress = element("progress", { "aria-label": "progress" });
    this.progressText = element("span");
    this.cancelBox = element("div", { class: "lk-buttons" });
    this.task = element("div", { class: "lk-task lk-row", role: "status", hidden: true }, this.progress, this.progressText, this.cancelBox);
    this.calibrateBox = element("div", { class: "lk-buttons" });
    this.calibrateText = element("span", { class: "lk-grey" });
    this.calibrateResults = results();
    this.costs = element("details", { open: true, hidden: true }, element("summary", {}, "costs"), this.calibrateResults);
    this.workers = element("input", { type: "text", inputmode: "numeric", class: "lk-number", "aria-label": "workers to forecast", oninput: () => { this.workers.typed = true; } });
    this.hosts = element("input", { type: "text", inputmode: "numeric", class: "lk-number", "aria-label": "hosts to forecast", title: "number of hosts; empty: as many as were measured" });
    this.forecastBox = element("div", { class: "lk-buttons" });
    this.forecastResults = results();
    this.sweepSetting = element("select", { "aria-label": "setting to sweep", onchange: () => this.showValues(true) });
    this.sweepValues = element("input", { type: "text", class: "lk-values", "aria-label": "values", title: "values of the setting, separated by commas",
      oninput: () => { this.sweepValues.typed = true; } });
    this.sweepBox = element("div", { class: "lk-buttons" });
    this.sweepText = element("span", { class: "lk-grey" });
    this.figure = element("canvas", { class: "lk-figure", role: "img", "aria-label": "figure of the sweep", hidden: true });
    this.sweepResults = results();
    const close = this.button("×", { tip: "close (Esc)", class: "lk-icon lk-close", "aria-label": "close", onclick: () => this.toggleSheet(false) });
    this.sheet = element("div", { class: "lk-sheet", role: "region", "aria-label": "calibrate and forecast", tabindex: "-1", hidden: true }, close,
      this.task,
      part("calibration", row(this.calibrateBox, this.calibrateText), this.costs),
      part("what if", row("What if there were ", this.workers, " workers on ", this.hosts, " hosts? ", this.forecastBox), this.forecastResults),
      part("sweep a setting", row(this.sweepSetting, this.sweepValues, this.sweepBox, this.sweepText), this.figure, this.sweepResults));
  }

  toggleSheet(open = this.sheet.hidden) {
    if (this.sheet.hidden !== open) return;
    if (open) {
      this.beforeSheet = document.activeElement;
      this.toggleDrawer(false);
    }
    this.sheet.hidden = !open;
    mark(this.grid, { "lk-covered": open }); // what is behind the sheet has no focus and is not read aloud
    this.show("toolbar");
    if (open) {
      this.sheet.focus();
      this.drawFigure();
    } else if (this.sheet.contains(document.activeElement) || document.activeElement === document.body) this.beforeSheet?.focus();
  }

  openSweep(name) {
    this.toggleSheet(true);
    this.sweepSetting.value = name;
    this.showValues(true);
    this.showSweep();
    this.sweepSetting.focus({ preventScroll: true });
  }

  // The figure needs the height of the sheet.
  showSweep() {
    this.costs.open = false;
    this.sheet.scrollTop += this.sweepSetting.closest("section").getBoundingClientRect().top - this.sheet.getBoundingClientRect().top - 8;
  }

  showValues(anew) {
    if (anew) this.sweepValues.typed = false;
    if (!this.sweepValues.typed) this.sweepValues.value = this.get("experiments").sweep.values[this.sweepSetting.value] || "";
  }

  show_experiments(now) {
    if (this.awaitsCalibration && (now.kind === "calibrate" || now.task.failed)) {
      this.awaitsCalibration = false;
      this.toggleSheet(true);
    }
    const focused = this.task.contains(document.activeElement);
    this.task.hidden = !now.task.text;
    if (focused && this.task.hidden) this.sheet.focus();
    if (now.task.text) {
      setText(this.progressText, now.task.text);
      mark(this.task, { "lk-error": now.task.failed });
      this.progress.hidden = now.task.failed;
      if (now.task.total) {
        this.progress.max = now.task.total;
        this.progress.value = now.task.done;
      } else this.progress.removeAttribute("value");
      this.showButtons(this.cancelBox, now.task.failed ? [] : [now.task.cancel], () => this.press("cancel"));
    }
    this.showButtons(this.calibrateBox, [now.calibrate.button], () => this.press("calibrate"));
    setText(this.calibrateText, now.calibrate.text);
    this.showResults(this.calibrateResults, now.calibrate);
    this.costs.hidden = !now.calibrate.table;
    if (!this.workers.typed) this.workers.value = String(now.forecast.workers);
    setAttribute(this.hosts, "placeholder", now.forecast.hosts);
    this.showButtons(this.forecastBox, now.forecast.buttons.map((button) => ({ ...button, id: button.action })), (button) => this.pressForecast(button));
    this.showResults(this.forecastResults, now.forecast);
    keyed(this.sweepSetting, now.sweep.settings, ([name]) => name, ([name, label]) => element("option", { value: name }, label), () => {});
    if (!this.sweepSetting.value && now.sweep.settings.length) {
      this.sweepSetting.value = (now.sweep.settings.find(([name]) => name === "workers") || now.sweep.settings[0])[0];
    }
    this.showValues(false);
    this.showButtons(this.sweepBox, [now.sweep.button], (button) => {
      const values = this.sweepValues.value.split(",").map((text) => text.trim()).filter(Boolean);
      this.awaitsSweep = !button.off;
      this.press("sweep", this.sweepSetting.value, values.length ? values : null);
    });
    setText(this.sweepText, now.sweep.text);
    this.showResults(this.sweepResults, now.sweep);
  }

  pressForecast(button) {
    const number = (input) => (/^\d+$/.test(input.value.trim()) ? Number(input.value) : input.value.trim());
    const hosts = this.hosts.value.trim() ? number(this.hosts) : null;
    if (button.action === "play_forecast" && !button.off) this.toggleSheet(false); // the panels show the run
    this.press(button.action, number(this.workers), hosts);
  }

  // A table and remarks; built again only when they change.
  showResults(box, { table, doubts }) {
    const shown = JSON.stringify([table, doubts]);
    if (box.shown === shown) return;
    box.shown = shown;
    const cell = (tag, text, i) => element(tag, { class: table.right[i] ? "lk-right-cell" : null, scope: tag === "th" ? "col" : null }, text);
    const rows = table ? table.rows.map((texts) => element("tr", {}, ...texts.map((text, i) => cell("td", text, i)))) : [];
    const head = table && element("thead", {}, element("tr", {}, ...table.columns.map((text, i) => cell("th", text, i))));
    box.replaceChildren(...(rows.length ? [element("table", { class: "lk-table" }, head, element("tbody", {}, ...rows))] : []),
      ...(doubts || []).map((doubt) => element("div", { class: "lk-doubt" }, doubt)));
  }

  drawFigure() {
    const figure = this.shared.figure;
    this.figure.hidden = !figure;
    if (!figure || this.sheet.hidden) return;
    setAttribute(this.figure, "aria-label", figure.alt);
    const wide = Math.min(this.figure.parentElement.clientWidth, figure.size[0]);
    this.figure.style.width = `${wide}px`;
    this.figure.style.height = `${Math.round((wide * figure.size[1]) / figure.size[0])}px`;
    this.paint(this.figure, figure.size, [figure.content]);
    if (this.awaitsSweep) this.showSweep();
    this.awaitsSweep = false;
  }

  show_ask(now) {
    this.pane.show(now);
  }

  show_status(status) {
    this.over.hidden = !status.closed;
    if (status.closed) setText(this.over, status.closed);
    mark(this.root, { "lk-closed": status.closed });
  }

  // pictures -------------------------------------------------------------------------------------------------------------

  draw(names) {
    for (const name of names) {
      const there = this.canvases.get(name);
      const picture = this.shared.pictures.get(name);
      if (!there || !picture) continue;
      this.showCaption(there, picture.caption);
      setAttribute(there.canvas, "aria-label", picture.alt);
      if (picture.axes) this.paint(there.canvas, picture.size, [picture.axes, picture.content]);
    }
    this.showAges();
    if (this.pointed && names.includes(this.pointed.name) && !this.probing) this.probe(); // the picture moves under the pointer
  }

  // A panel in view whose picture is not the present one says how old it is, or that it waits: for its first picture, for one of
  // another time or size. Also while the kernel is silent, as on a busy machine.
  showAges() {
    const now = performance.now();
    const player = this.get("player") || {};
    const smallest = this.get("panels").smallest || [];
    for (const [name, there] of this.canvases) {
      const picture = this.shared.pictures.get(name);
      const { clientWidth: wide, clientHeight: high } = there.canvas;
      const drawn = picture?.failed || (picture?.axes && fits(picture.size, [wide, high], smallest));
      if (!wide || !this.inView.has(name) || (drawn && !player.moves && picture.t === player.t)) there.right = now;
      else if (drawn && player.moves) there.right = Math.max(there.right, picture.at);
      const age = now - there.right;
      const text = age < OLD ? "" : drawn && player.moves ? `${Math.round(age / 1000)} s old` : "waiting";
      if (there.age.textContent === text) continue;
      setText(there.age, text);
      if (picture) this.showCaption(there, picture.caption);
    }
  }

  // Draw display lists of a picture of this size (in pixels) on a canvas, in the size in which it is shown.
  paint(canvas, size, lists) {
    const ratio = window.devicePixelRatio || 1;
    const wide = canvas.clientWidth;
    const high = canvas.clientHeight;
    if (!wide || !high) return;
    if (canvas.width !== Math.round(wide * ratio)) canvas.width = Math.round(wide * ratio);
    if (canvas.height !== Math.round(high * ratio)) canvas.height = Math.round(high * ratio);
    const context = canvas.getContext("2d");
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    const scale = Math.min(wide / size[0], high / size[1]);
    context.scale(ratio * scale, ratio * scale);
    const theme = { ratio: ratio * scale, colour: this.colour.bind(this), ink: (text) => inkColour(this.colour(text), this.dark) };
    for (const list of lists) drawList(context, list, theme);
  }

  clear() {
    for (const there of this.canvases.values()) {
      there.canvas.width = there.canvas.width; // an assignment clears it
      there.fitted = "";
      setText(there.caption, "");
      setAttribute(there.caption, "title", null);
    }
  }

  // As many parts of the caption, from its beginning, as have room beside the title; all of it as the tooltip.
  showCaption(there, text) {
    const line = there.caption.parentElement;
    const fitted = `${line.clientWidth} ${there.age.textContent} ${text}`;
    if (there.fitted === fitted) return;
    there.fitted = fitted;
    setAttribute(there.caption, "title", text);
    const parts = text.split(" · ");
    setText(there.caption, text);
    while (parts.length > 1 && line.scrollWidth > line.clientWidth) {
      parts.pop();
      setText(there.caption, parts.join(" · "));
    }
  }

  colour(text) {
    return this.dark ? darkColour(text) : text;
  }

  // the layout -----------------------------------------------------------------------------------------------------------

  // The lab fills the part of the window that shows the notebook, as far as there is room: panels share what is left.
  arrange() {
    const frame = this.root.closest(".jp-WindowedPanel-outer, .jp-NotebookPanel-notebook, .jp-Notebook") || document.documentElement;
    if (frame !== this.frame) {
      if (this.frame) this.frames?.unobserve(this.frame);
      this.frame = frame;
      this.frames?.observe(frame);
    }
    const high = document.fullscreenElement === this.root ? window.innerHeight : frame.clientHeight || window.innerHeight;
    this.root.style.setProperty("--lk-high", `${Math.max(480, high - 40)}px`);
    this.drawFigure();
    const [red, green, blue] = getComputedStyle(this.root).backgroundColor.match(/\d+/g)?.map(Number) || [255, 255, 255];
    const dark = red + green + blue < 384;
    if (dark === this.dark) return;
    this.dark = dark;
    mark(this.root, { "lk-dark": dark });
    this.pane.paintPad();
    this.draw([...this.canvases.keys()]);
    this.drawFigure();
  }

  observe(el) {
    let sent = "";
    const report = () => {
      const sizes = {};
      for (const [name, { canvas, box }] of this.canvases) {
        if (box.isConnected && canvas.clientWidth) sizes[name] = [canvas.clientWidth, canvas.clientHeight];
      }
      const layout = JSON.stringify([sizes, [...this.inView].sort()]);
      if (layout === sent) return;
      sent = layout;
      this.shared.layout(sizes);
      this.draw([...this.canvases.keys()]);
    };
    this.sizes = new ResizeObserver(() => requestAnimationFrame(report));
    this.seen = new IntersectionObserver((entries) => {
      for (const entry of entries) this.inView[entry.isIntersecting ? "add" : "delete"](entry.target.dataset.panel);
      report();
    });
    for (const { canvas, box } of this.canvases.values()) {
      this.sizes.observe(canvas);
      this.seen.observe(box);
    }
    this.ages = setInterval(() => this.showAges(), AGE_EVERY);
    const theme = new MutationObserver(() => this.arrange());
    theme.observe(document.body, { attributes: true, attributeFilter: ["data-jp-theme-light"] });
    this.frames = new ResizeObserver(() => requestAnimationFrame(() => this.arrange()));
    this.frames.observe(this.root); // has its first size when it is part of the page
    this.kernel = this.model.widget_manager?.kernel; // in JupyterLab; elsewhere an unanswered press shows that the kernel is gone
    this.onKernel = (_, status) => {
      if (["restarting", "autorestarting", "terminating", "dead"].includes(status)) this.disconnect();
    };
    this.kernel?.statusChanged?.connect(this.onKernel);
    // A web page made from a notebook has the widget's state and no kernel: its buttons would do nothing.
    if (!this.kernel && !this.shared.hidden) {
      this.root.style.visibility = "hidden";
      this.vanishes = setTimeout(() => { this.root.style.display = "none"; }, 5000);
    }
    this.observers = [this.sizes, this.seen, theme, this.frames];
    this.onScreen = () => { // another number of device pixels per CSS pixel: another screen, or another zoom
      this.resolution?.removeEventListener("change", this.onScreen);
      this.resolution = window.matchMedia(`(resolution: ${window.devicePixelRatio}dppx)`);
      this.resolution.addEventListener("change", this.onScreen);
      this.draw([...this.canvases.keys()]);
    };
    this.onScreen();
    this.onVisible = () => {
      if (document.visibilityState === "visible" && this.shared.newest) this.shared.send({ do: "seen", frame: this.shared.newest });
    };
    this.onFullScreen = () => this.arrange();
    document.addEventListener("visibilitychange", this.onVisible);
    document.addEventListener("fullscreenchange", this.onFullScreen);
    this.slider.addEventListener("pointerdown", () => { this.dragging = true; });
    this.slider.addEventListener("pointerup", () => { this.dragging = false; });
  }

  appear() {
    clearTimeout(this.vanishes);
    this.root.style.visibility = this.root.style.display = "";
  }

  disconnect() {
    this.show_status({ closed: "Kernel restarted: run the cell again" });
  }

  // JupyterLab has scrolled to the next cell; the whole lab is to be in view when it starts, unless the reader scrolls.
  scrollIntoView() {
    this.shared.scroll = false;
    let mine = true;
    const stop = () => { mine = false; };
    for (const event of ["wheel", "pointerdown", "keydown", "touchstart"]) document.addEventListener(event, stop, { once: true, capture: true });
    for (const delay of [0, 150, 400, 900]) setTimeout(() => mine && this.root.isConnected && this.root.scrollIntoView({ block: "start" }), delay);
  }

  fullScreen() {
    if (document.fullscreenElement) document.exitFullscreen();
    else this.root.requestFullscreen();
  }

  enlarge(name) {
    this.enlarged = this.enlarged === name ? "" : name;
    for (const [each, { box }] of this.canvases) mark(box, { "lk-enlarged": each === this.enlarged, "lk-behind": this.enlarged && each !== this.enlarged });
    mark(this.grid, { "lk-one": this.enlarged });
  }

  // values -----------------------------------------------------------------------------------------------------------------

  // The value at a point of a panel (in CSS pixels) is asked of the kernel, one question at a time, and the newest point at last.
  point(name, canvas, x, y) {
    this.pointed = { name, canvas, x, y };
    if (!this.probing) this.probe();
  }

  probe() {
    const { name, canvas, x, y } = this.pointed;
    const at = this.pointed;
    this.probing = true;
    this.shared.ask({ do: "probe", panel: name, x: x / canvas.clientWidth, y: y / canvas.clientHeight }, (answer) => {
      setTimeout(() => {
        this.probing = false;
        if (this.pointed && this.pointed !== at) this.probe();
      }, PROBE_EVERY);
      if (!this.pointed) return; // the pointer has left
      this.tip.hidden = !answer.text;
      this.marker.hidden = true;
      if (answer.text) this.showTip(answer.text, canvas, x, y);
    });
  }

  showTip(text, canvas, x, y) {
    const box = canvas.getBoundingClientRect();
    const home = this.root.getBoundingClientRect();
    setText(this.tip, text);
    const left = box.left - home.left + x + 12;
    const top = box.top - home.top + y + 12;
    this.tip.style.left = `${Math.max(0, Math.min(left, home.width - this.tip.offsetWidth - 4))}px`;
    this.tip.style.top = `${top + this.tip.offsetHeight > home.height ? top - this.tip.offsetHeight - 24 : top}px`;
  }

  // Arrow keys go from value to value of the panel that has the focus: left and right along a row or a curve, up and down to
  // another one. The kernel knows the values and their places; one question at a time.
  pointByKey(event, name, canvas) {
    const direction = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!direction || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    this.pointed = null;
    if (this.stepping) return;
    this.stepping = true;
    this.shared.ask({ do: "step", panel: name, at: this.cursor?.name === name ? this.cursor.at : null, direction }, (answer) => {
      this.stepping = false;
      if (!answer.text || !canvas.matches(":focus")) return;
      this.cursor = { name, at: [answer.x, answer.y] };
      const [x, y] = [answer.x * canvas.clientWidth, answer.y * canvas.clientHeight];
      this.tip.hidden = false;
      this.showTip(answer.text, canvas, x, y);
      const box = canvas.getBoundingClientRect();
      const home = this.root.getBoundingClientRect();
      this.marker.style.left = `${box.left - home.left + x}px`;
      this.marker.style.top = `${box.top - home.top + y}px`;
      this.marker.hidden = false;
    });
  }

  hideTip() {
    this.pointed = null;
    this.tip.hidden = true;
    this.marker.hidden = true;
  }

  save(name, format) {
    this.shared.ask({ do: "save", panel: name, format }, (answer, buffers) => {
      const type = format === "svg" ? "image/svg+xml" : "image/png";
      const link = element("a", { href: URL.createObjectURL(new Blob([buffers[0]], { type })), download: `${name}.${format}` });
      link.click();
      URL.revokeObjectURL(link.href);
    });
  }

  copy(name) {
    this.shared.ask({ do: "copy", panel: name }, (answer) => navigator.clipboard.writeText(answer.text));
  }

  // keys -------------------------------------------------------------------------------------------------------------------

  // JupyterLab acts on keys wherever the focus is in a notebook: `d d` would delete the cell of the lab. Keys without a modifier
  // stay here; keys with one, and Shift+Enter, are JupyterLab's.
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || (event.shiftKey && event.key === "Enter")) return;
    event.stopPropagation();
    if (event.key === " " && event.target.matches("input[type=range]")) event.preventDefault(); // it would scroll the page
    const typing = event.target.matches("input[type=text], select, input[type=range], textarea");
    const act = {
      " ": () => this.press(this.get("toolbar").buttons.find((button) => button.id === "pause").action), ArrowLeft: () => this.move(-1), ArrowRight: () => this.move(1),
      Home: () => this.press("seek", 0), End: () => this.press("live"), ".": () => this.press("step"), u: () => this.press("undo"),
      f: () => this.fullScreen(), "?": () => this.toggleHelp(), Escape: () => this.escape(),
    }[event.key];
    if (!act || (typing && event.key !== "Escape") || (event.key === " " && event.target.matches("button, summary, input"))) return;
    event.preventDefault();
    act();
  }

  move(direction) {
    const player = this.get("player");
    this.press("seek", Math.max(0, player.t + (direction * player.length) / 100));
  }

  seek(tick) {
    const player = this.get("player");
    const seconds = (tick * player.length) / 1000;
    if (seconds >= player.recorded) this.press("live");
    else this.press("seek", seconds);
  }

  toggleHelp() {
    this.help.hidden = !this.help.hidden;
    if (this.help.hidden) {
      this.beforeHelp?.focus();
    } else {
      this.beforeHelp = document.activeElement;
      this.help.focus();
    }
  }

  // On a narrow page the settings are in a drawer over the panels.
  toggleDrawer(open = !this.drawer.classList.contains("lk-open")) {
    mark(this.drawer, { "lk-open": open });
    setAttribute(this.open, "aria-expanded", open ? "true" : "false");
  }

  escape() {
    if (!this.help.hidden) this.toggleHelp();
    this.toggleDrawer(false);
    this.toggleSheet(false);
    this.pane.toggle(false);
    if (this.enlarged) this.enlarge(this.enlarged);
    this.hideTip();
  }
}

// Whether a picture was drawn for a canvas of the size `shown`. The kernel draws one below the smallest size larger, in the same shape.
function fits(size, shown, smallest) {
  const scale = Math.max(1, ...smallest.map((least, i) => least / shown[i]));
  return size.every((pixels, i) => Math.abs(pixels - scale * shown[i]) <= 1);
}

// The colour for a text: the same, or so much darker (on a dark page: lighter) that its contrast with the page is 4.5:1. A colour
// like that of the page stays: such a text is on a filled area.
const INK = new Map();
function inkColour(text, dark) {
  const key = `${text} ${dark}`;
  if (!INK.has(key)) {
    const paper = dark ? 0.0065 : 1; // luminance of #141414 and of #fff
    const parts = [1, 3, 5].map((i) => parseInt(text.slice(i, i + 2), 16));
    const contrast = (colour) => {
      const [light, deep] = [paper, luminance(colour)].sort((a, b) => b - a);
      return (light + 0.05) / (deep + 0.05);
    };
    let found = parts;
    for (let share = 0.05; contrast(parts) > 1.6 && contrast(found) < 4.6; share += 0.05) {
      found = parts.map((value) => Math.round(value + share * ((dark ? 255 : 0) - value)));
    }
    INK.set(key, `#${found.map((value) => value.toString(16).padStart(2, "0")).join("")}${text.slice(7)}`);
  }
  return INK.get(key);
}

// As in WCAG 2.
function luminance(parts) {
  const [r, g, b] = parts.map((value) => (value <= 10 ? value / 3294.6 : ((value / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

// Called once for each widget; `render` is called for each of its views, with another object as `model`.
export default () => {
  let shared;
  return {
    initialize({ model }) {
      shared = new Shared(model);
      return () => shared.close();
    },
    render({ el }) {
      const view = new LabView(shared, el);
      return () => view.close();
    },
  };
};
