// Draws every figure of the page. The charts take their text colour from the page, so they follow its colours.
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const options = {
    mode: "vega-lite",
    renderer: "svg",
    tooltip: { theme: matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light" },
    actions: { export: true, source: false, compiled: false, editor: false },
  };
  for (const [name, specification] of Object.entries(figures)) {
    vegaEmbed(`#chart-${name}`, specification, { ...options, downloadFileName: name }).catch((error) => {
      document.getElementById(`chart-${name}`).textContent = `This figure cannot be drawn here (${error}); see figures/${name}.svg.`;
    });
  }
  // Paper is narrower than most windows: figures follow.
  addEventListener("beforeprint", () => dispatchEvent(new Event("resize")));
})();
