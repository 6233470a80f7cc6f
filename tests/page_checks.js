// What tests of the report page measure in it.

function luminance(colour) {
  const parts = colour.match(/[\d.]+/g).slice(0, 3).map((part) => {
    const share = part / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
}

function contrast(one, other) {
  const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}

function below(element) {
  for (let node = element; node; node = node.parentElement) {
    const colour = getComputedStyle(node).backgroundColor;
    if (!/, 0\)$/.test(colour)) {
      return colour;
    }
  }
  return "rgb(255, 255, 255)";
}

// Every element with text of its own: its contrast with what is behind it.
function texts() {
  const page = getComputedStyle(document.body).backgroundColor;
  return [...document.body.querySelectorAll("*")]
    .filter((e) => e.tagName !== "SCRIPT" && e.checkVisibility())
    .filter((e) => [...e.childNodes].some((c) => c.nodeType === 3 && c.data.trim()))
    .map((e) => {
      const style = getComputedStyle(e);
      const colour = e instanceof SVGElement ? style.fill : style.color;
      return { page, what: e.outerHTML.slice(0, 120), contrast: contrast(colour, below(e)) };
    });
}

// Every colour of lines, on the page and on what is raised from it.
function colours() {
  const found = [];
  for (const parent of [document.body, document.querySelector(".item")]) {
    for (let number = 0; CSS.supports("color", variable(number)); number++) {
      const line = parent.appendChild(document.createElement("i"));
      line.className = `colour-${number}`;
      const colour = getComputedStyle(line).color;
      found.push({ number, contrast: contrast(colour, below(line)) });
      line.remove();
    }
  }
  return found;
}

function variable(number) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--colour-${number}`);
}

// What stands out to the right, but for what scrolls by itself.
function wider() {
  return [...document.body.querySelectorAll("*")]
    .filter((e) => !e.closest(".scroll, pre, .hidden, svg"))
    .filter((e) => e.checkVisibility() && e.getBoundingClientRect().right > innerWidth + 0.5)
    .map((e) => e.outerHTML.slice(0, 120));
}
