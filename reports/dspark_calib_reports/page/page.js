"use strict";
// Draws the figures in the page's theme and lets the copy buttons copy. No network, no storage.
(() => {
  const page = JSON.parse(document.getElementById("figures").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const config = { displayModeBar: false, responsive: true, showTips: false };
  let printing = false;

  const theme = () => (dark.matches && !printing ? "dark" : "light");
  const template = () => ({ layout: page.themes[theme()] });
  const plotOf = (figure) => document.getElementById(`plot-${figure.key}`);

  function draw(figure) {
    return Plotly.newPlot(plotOf(figure), figure.data, { ...figure.layout, template: template() }, config);
  }

  async function retheme() {
    const drawn = page.figures.map(plotOf).filter((plot) => plot.classList.contains("js-plotly-plot"));
    // on paper a figure cannot grow with its box, so it gets the box's width outright
    const size = (plot) => (printing ? { width: plot.clientWidth } : { width: null, autosize: true });
    await Promise.all(drawn.map((plot) => Plotly.relayout(plot, { template: template(), ...size(plot) })));
    document.documentElement.dataset.theme = theme();
  }

  async function drawAll() {
    for (const figure of page.figures) {
      await draw(figure);
      await new Promise((next) => setTimeout(next, 0)); // let the reader scroll between two figures
    }
    document.documentElement.dataset.theme = theme();
    document.documentElement.dataset.drawn = String(page.figures.length);
  }

  async function copy(text, source) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      const selection = window.getSelection();
      selection.selectAllChildren(source);
      return document.execCommand("copy"); // for pages opened where the clipboard interface is withheld
    }
  }

  for (const button of document.querySelectorAll("button[data-copy]")) {
    const what = button.getAttribute("aria-label").slice("Copy ".length);
    const say = (words) => { // the name that is read out holds the words that are seen
      button.textContent = words;
      button.setAttribute("aria-label", `${words} ${what}`);
    };
    button.addEventListener("click", async () => {
      const source = document.getElementById(button.dataset.copy);
      const done = await copy(source.textContent, source);
      say(done ? "Copied" : "Select and copy");
      document.getElementById("copied").textContent = done ? "Copied to the clipboard" : "Copying was refused";
      setTimeout(() => say("Copy"), 2000);
    });
  }

  dark.addEventListener("change", retheme);
  for (const [event, starts] of [["beforeprint", true], ["afterprint", false]]) {
    window.addEventListener(event, () => {
      printing = starts;
      document.documentElement.classList.toggle("printing", starts);
      retheme();
    });
  }
  drawAll();
})();
