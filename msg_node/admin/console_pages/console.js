"use strict";
// Refreshes the live part of a page, and remembers the theme. Everything works without it.
(() => {
  const REFRESH_MS = 5000;
  const THEMES = ["auto", "light", "dark"];

  const isBusy = (live) => document.hidden || live.contains(document.activeElement) || String(getSelection()) !== "";

  async function refresh() {
    const live = document.querySelector("[data-live]");
    if (live === null || isBusy(live)) return;
    const answer = await fetch(location.href, { redirect: "manual" });
    if (answer.type === "opaqueredirect") return location.assign("/login");
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.querySelector("[data-live]");
    if (fresh === null || isBusy(live)) return;
    const open = [...live.querySelectorAll("details")].map((one) => one.open);
    live.replaceChildren(...fresh.childNodes);
    live.querySelectorAll("details").forEach((one, place) => { one.open = open[place] ?? one.open; });
  }

  function show(theme) {
    document.documentElement.dataset.theme = theme;
    const button = document.getElementById("theme");
    button.hidden = false;
    button.textContent = `Theme: ${theme}`;
  }

  let theme = localStorage.getItem("theme");
  if (!THEMES.includes(theme)) theme = "auto";
  show(theme);
  document.getElementById("theme").addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    localStorage.setItem("theme", theme);
    show(theme);
  });
  document.addEventListener("keydown", (event) => {
    const isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName ?? "");
    if (event.key !== "/" || isTyping) return;
    const filter = document.getElementById("where");
    if (filter !== null) { event.preventDefault(); filter.focus(); }
  });
  setInterval(() => refresh().catch(() => {}), REFRESH_MS);
})();
