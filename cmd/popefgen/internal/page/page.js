// What ties the page together: tabs, links, keys, paper.
for (const view of data) viewers.set(view.id, new Viewer(view));
const visible = () => [...viewers.values()].filter((v) => !v.root.hidden);
visible().forEach((v) => v.show());
for (const tab of document.querySelectorAll("[data-view]")) {
  tab.addEventListener("click", () => {
    const viewer = viewers.get(tab.dataset.view), tabs = [...tab.parentElement.children];
    for (const t of tabs) t.setAttribute("aria-selected", t === tab);
    for (const t of tabs) document.getElementById(t.dataset.view).hidden = t.dataset.view !== tab.dataset.view;
    viewer.root.setAttribute("aria-label", tab.textContent);
    viewer.member(+tab.dataset.member);
    viewer.show();
  });
}
for (const link of document.querySelectorAll("[data-tab]")) {
  link.addEventListener("click", () => {
    document.getElementById(link.dataset.tab).click();
    document.getElementById("graph").scrollIntoView();
  });
}
// A slash begins a search wherever the page has the focus.
document.addEventListener("keydown", (e) => {
  if (e.key !== "/" || e.ctrlKey || e.metaKey || e.altKey || e.target.closest("input, textarea, select")) return;
  const all = visible(), near = (v) => Math.abs(v.root.getBoundingClientRect().top);
  const viewer = all.find((v) => v.root.contains(document.activeElement)) || all.sort((a, b) => near(a) - near(b))[0];
  if (!viewer) return;
  viewer.input.focus();
  viewer.input.select();
  e.preventDefault();
});
addEventListener("resize", () => visible().forEach((v) => v.resized()));
// Steps in tables and buffers in charts lead to their boxes in the graph.
for (const link of document.querySelectorAll("[data-go]")) {
  link.addEventListener("click", () => {
    const sides = [...document.querySelectorAll("#graph .side")];
    const mine = link.closest(".side"), all = mine ? [...mine.parentElement.children] : [];
    const side = link.closest("#memory") ? sides[all.indexOf(mine)] : sides[sides.length - 1];
    const viewer = viewers.get(side.querySelector(".viewer").id);
    const tab = side.querySelector(`[data-view="${viewer.view.id}"]`);
    if (tab && viewer.root.hidden) tab.click();
    viewer.choose(+link.dataset.go, true);
    document.getElementById("graph").scrollIntoView();
  });
}
addEventListener("beforeprint", () => visible().forEach((v) => v.print()));
addEventListener("afterprint", () => visible().forEach((v) => v.printed()));
window.popefgenViewers = viewers;
