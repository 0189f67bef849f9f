// Draws the figures of the page when they are first seen, and opens all folds for paper.
// The charts take their text colour from the page, so they follow its colours.
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const options = {
    mode: "vega-lite",
    renderer: "svg",
    tooltip: { theme: matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light" },
    actions: { export: true, source: false, compiled: false, editor: false },
  };
  const draw = (place) => {
    const name = place.id.slice("chart-".length);
    if (place.dataset.drawn || !figures[name]) return;
    place.dataset.drawn = "yes";
    vegaEmbed(place, figures[name], { ...options, downloadFileName: name }).catch((error) => {
      place.textContent = `This figure cannot be drawn here (${error}); see figures/${name}.svg.`;
    });
  };
  const folds = [...document.querySelectorAll("details")];
  // A chart in a closed fold has no width yet.
  const drawSeen = () => document.querySelectorAll(".chart").forEach((place) => {
    if (!place.closest("details:not([open])")) draw(place);
  });
  const openTarget = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let fold = target && target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    if (target) target.scrollIntoView();
  };
  folds.forEach((fold) => fold.addEventListener("toggle", drawSeen));
  addEventListener("hashchange", openTarget);
  openTarget();
  drawSeen();
  // Paper shows everything, and is narrower than most windows: figures follow.
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = folds.filter((fold) => !fold.open);
    closed.forEach((fold) => { fold.open = true; });
    drawSeen();
    dispatchEvent(new Event("resize"));
  });
  addEventListener("afterprint", () => {
    closed.forEach((fold) => { fold.open = false; });
    dispatchEvent(new Event("resize"));
  });
})();
