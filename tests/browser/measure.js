// What can only be measured inside the page: pictures that arrive, and the time from a press to what it changes.
//
// Times are in milliseconds on the clock of performance.now(). An event's timeStamp is on it too, and is the moment at
// which the browser got the press, also if the page was busy then.
window.labkitMeasure = {
  // How often each image that matches `selector`, now or later, was given another picture, and how often one was
  // decoded and shown.
  async frames(selector, seconds) {
    const images = new Map(); // image -> {given, shown}, in the order of the page
    const of = image => images.get(image) ?? images.set(image, {given: 0, shown: 0}).get(image);
    const count = (image, what) => { if (image.matches?.(selector)) of(image)[what] += 1; };
    document.querySelectorAll(selector).forEach(of);
    const observer = new MutationObserver(records => records.forEach(({target}) => count(target, "given")));
    const loaded = event => count(event.target, "shown");
    observer.observe(document.body, {subtree: true, attributes: true, attributeFilter: ["src"]});
    document.addEventListener("load", loaded, true);
    const began = performance.now();
    await new Promise(resolve => setTimeout(resolve, 1000 * seconds));
    observer.disconnect();
    document.removeEventListener("load", loaded, true);
    const counts = [...images.values()];
    return {
      seconds: (performance.now() - began) / 1000,
      given: counts.map(({given}) => given),
      shown: counts.map(({shown}) => shown),
    };
  },

  // Wait for a press, then for `holds()`, which is asked after every change of the page. `answer` becomes the time
  // between them, the frame that shows it included.
  expect(holds, patience) {
    if (holds()) throw new Error("what was to become true was true before the press");
    const kinds = ["pointerdown", "keydown"];
    let pressed = null;
    this.answer = new Promise((resolve, reject) => {
      const press = event => { pressed ??= event.timeStamp; };
      const end = () => {
        observer.disconnect();
        clearTimeout(timer);
        kinds.forEach(kind => document.removeEventListener(kind, press, true));
      };
      const observer = new MutationObserver(() => {
        if (pressed === null || !holds()) return;
        end();
        requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - pressed)));
      });
      const timer = setTimeout(() => {
        end();
        reject(new Error(pressed === null ? "nothing was pressed" : `not true ${patience} ms later`));
      }, patience);
      kinds.forEach(kind => document.addEventListener(kind, press, true));
      observer.observe(document, {subtree: true, childList: true, attributes: true, characterData: true});
    });
    this.answer.catch(() => {}); // it is asked for later
  },
};
