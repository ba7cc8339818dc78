"use strict";
// Refreshes the live part of a page, sorts tables, and remembers the theme. Everything works without it.
(() => {
  const REFRESH_MS = 5000;
  const THEMES = ["auto", "light", "dark"];

  const SIGNS = { ascending: 1, descending: -1 };
  const TEXTS = new Intl.Collator("en", { numeric: true });

  // A sort button that was clicked has the focus as well, but only who works with the keyboard would miss it.
  function isInUse(element) {
    return !element.matches(".sort") || element.matches(":focus-visible");
  }

  function isBusy(live) {
    const active = document.activeElement;
    return document.hidden || (live.contains(active) && isInUse(active)) || String(getSelection()) !== "";
  }

  function cellAt(row, column) {
    let end = 0;
    return [...row.cells].find((cell) => (end += cell.colSpan) > column);
  }

  function valueAt(row, column, isNumber) {
    const cell = cellAt(row, column);
    const text = cell?.dataset.sort ?? cell?.textContent.trim() ?? "";
    return isNumber ? parseFloat(text) : text;
  }

  function compared(one, other, isNumber, sign) {
    if (!isNumber) return sign * TEXTS.compare(one, other);
    if (Number.isNaN(one) || Number.isNaN(other)) return Number.isNaN(one) - Number.isNaN(other); // without a value: last
    return sign * (one - other);
  }

  const chosen = new Map(); // by table: the column, and how it is sorted
  const served = new WeakMap(); // by body: its rows as the node has ordered them

  const nameOf = (table) => table.closest("[aria-label]")?.getAttribute("aria-label") ?? "";

  function sort(table) {
    const { column, order } = chosen.get(nameOf(table)) ?? { column: -1, order: "" };
    const body = table.tBodies[0];
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, place) => {
      if (place === column && order !== "") head.setAttribute("aria-sort", order);
      else head.removeAttribute("aria-sort");
    });
    const rows = [...served.get(body)];
    if (order !== "") {
      const isNumber = heads[column].matches(".number");
      const valued = rows.map((row) => [valueAt(row, column, isNumber), row]);
      valued.sort(([one], [other]) => compared(one, other, isNumber, SIGNS[order]));
      body.append(...valued.map(([, row]) => row));
    } else body.append(...rows);
  }

  // The first press on figures shows the largest first; the third press of any column, the order of the node.
  function turn(table, column) {
    const before = chosen.get(nameOf(table));
    const isNumber = table.tHead.rows[0].cells[column].matches(".number");
    const turns = isNumber ? ["", "descending", "ascending"] : ["", "ascending", "descending"];
    const now = before?.column === column ? before.order : "";
    chosen.set(nameOf(table), { column, order: turns[(turns.indexOf(now) + 1) % turns.length] });
    sort(table);
  }

  function makeSortable(table) {
    const body = table.tBodies[0];
    if (table.tHead === null || body.rows.length < 2) return;
    served.set(body, [...body.rows]);
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      if (head.textContent.trim() === "") return;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.append(...head.childNodes);
      button.addEventListener("click", () => turn(table, column));
      head.append(button);
    });
    sort(table);
  }

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
    live.querySelectorAll("table").forEach(makeSortable);
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
  document.querySelectorAll("table").forEach(makeSortable);
  setInterval(() => refresh().catch(() => {}), REFRESH_MS);
})();
