// A question with a button for each answer (see guess.py). The first press is sent to the kernel as {do: "commit", answer}.

function part(tag, name, ...children) {
  const made = document.createElement(tag);
  made.className = name;
  made.append(...children);
  return made;
}

export default {
  render({ model, el }) {
    const answers = part("div", "lk-answers");
    answers.setAttribute("role", "group");
    answers.setAttribute("aria-label", "answers");
    const status = part("div", "lk-verdict", document.createElement("b"), document.createElement("span"));
    status.setAttribute("role", "status");
    const root = part("div", "labkit-guess", part("div", "lk-text", model.get("question")), answers, status);
    model.get("answers").forEach((answer, number) => {
      const button = part("button", "", answer.text);
      button.type = "button";
      button.addEventListener("click", () => {
        if (answers.dataset.open === "true") {
          button.classList.add("lk-given"); // shown at once
          model.send({ do: "commit", answer: number });
        }
      });
      answers.append(button);
    });
    const show = () => {
      model.get("answers").forEach((answer, number) => {
        answers.children[number].className = answer.state ? `lk-${answer.state}` : "";
        answers.children[number].setAttribute("aria-disabled", model.get("accepts") ? "false" : "true");
      });
      answers.dataset.open = String(model.get("accepts"));
      status.children[0].textContent = model.get("status");
      status.children[1].textContent = ` ${model.get("note")}`;
    };
    const names = ["answers", "accepts", "status", "note"];
    for (const name of names) model.on(`change:${name}`, show);
    // JupyterLab acts on keys wherever the focus is in a notebook; keys without a modifier stay here, except Shift+Enter.
    root.addEventListener("keydown", (event) => {
      const modified = event.ctrlKey || event.metaKey || event.altKey || (event.shiftKey && event.key === "Enter");
      if (!modified) event.stopPropagation();
    });
    el.append(root);
    show();
    // The static output of the cell, for readers without this script, is not needed.
    const fallback = `.labkit-static-${model.get("output")}`;
    const hidden = part("style", "", `${fallback}, .jp-OutputArea-child:has(${fallback}) { display: none !important; }`);
    document.head.append(hidden);
    return () => {
      hidden.remove();
      for (const name of names) model.off(`change:${name}`, show);
    };
  },
};
