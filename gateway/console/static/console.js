// The console: its pages by the address after '#', its keys, its refreshes.

import { get, Refused, token } from "/console/api.js";
import { failure, h, s } from "/console/dom.js";
import { group } from "/console/group.js";
import { ledger } from "/console/ledger.js";
import { groups, topics, transactions } from "/console/lists.js";
import { overview } from "/console/overview.js";
import { topic } from "/console/topic.js";

const PAGES = { overview, topics, topic, groups, group, transactions, ledger };
const SECTION = { topic: "topics", group: "groups" };
const KEYS = [
  ["g o", "Overview"], ["g t", "Topics"], ["g g", "Groups"], ["g x", "Transactions"], ["g l", "Ledger"], ["/", "Search"],
  ["j  k", "Row below, above"], ["Enter", "Open the row"], ["[  ]", "Page before, next"], ["u", "Up"], ["r", "Refresh"],
  ["d", "Light or dark"], ["?", "These keys"], ["Esc", "Close, leave a field"],
];
const GO = { o: "#/overview", t: "#/topics", g: "#/groups", x: "#/transactions", l: "#/ledger" };

const SUN = "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8M12 2v2M12 20v2M2 12h2M20 12h2M4.9 4.9l1.4 1.4M17.7 17.7l1.4 1.4M4.9 19.1l1.4-1.4M17.7 6.3l1.4-1.4";
const MOON = "M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5";

const main = document.getElementById("main");
const live = document.getElementById("live");
const dialog = document.getElementById("dialog");
let session = null;
let view = null;
let timer = 0;
let pending = null;
let began = "";

function theme(next) {
  const dark = window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const chosen = next ?? localStorage.getItem("dragoman.theme") ?? dark;
  document.documentElement.dataset.theme = chosen;
  if (next) localStorage.setItem("dragoman.theme", next);
  document.getElementById("theme").replaceChildren(s("svg", { viewBox: "0 0 24 24" }, s("path", { d: chosen === "dark" ? SUN : MOON })));
}

function status(kind, text) {
  live.className = `live ${kind}`;
  live.textContent = text;
}

async function refresh() {
  clearTimeout(timer);
  pending?.abort();
  const mine = new AbortController();
  pending = mine;
  const shown = view;
  try {
    await shown.refresh(mine.signal);
    if (shown !== view) return;
    status("good", "live");
    main.querySelector(":scope > .notice.bad")?.remove();
  } catch (error) {
    if (error.name === "AbortError" || shown !== view) return;
    if (error instanceof Refused && error.status === 401) return ask("The token is not accepted.");
    status("bad", error.reason === "unreachable" ? "no answer" : "failed");
    main.querySelector(":scope > .notice.bad")?.remove();
    main.prepend(failure(error));
  }
  if (shown === view && shown.every && !document.hidden) timer = setTimeout(refresh, shown.every);
}

function route() {
  const [path, query] = location.hash.slice(2).split("?");
  const name = Object.hasOwn(PAGES, path) ? path : "overview";
  view = PAGES[name](new URLSearchParams(query ?? ""), session);
  view.name = name;
  view.refreshNow = refresh;
  document.title = `${view.title} · Dragoman`;
  main.replaceChildren(view.element);
  for (const one of document.querySelectorAll("#nav a")) {
    if (one.getAttribute("href") === `#/${SECTION[name] ?? name}`) one.setAttribute("aria-current", "page");
    else one.removeAttribute("aria-current");
  }
  window.scrollTo(0, 0);
  refresh();
}

function ask(reason) {
  const input = h("input", { type: "password", id: "token", autocomplete: "off", required: true, "aria-label": "Token" });
  const form = h("form", { method: "dialog", onsubmit: async (event) => {
    event.preventDefault();
    token.set(input.value.trim());
    dialog.close();
    start();
  } }, h("h2", null, "Token"), h("p", { class: "sub" }, reason ?? "This console needs the token of the gateway's admin.token_file."),
  input, h("div", { class: "actions" }, h("button", { class: "main", type: "submit" }, "Open")));
  token.clear();
  dialog.replaceChildren(form);
  if (!dialog.open) dialog.showModal();
  input.focus();
}

function help() {
  dialog.replaceChildren(h("h2", null, "Keys"),
    h("dl", { class: "keys" }, KEYS.map(([keys, text]) => [h("dt", null, keys.split(/ +/).map((key) => h("kbd", null, key))), h("dd", null, text)])),
    h("form", { method: "dialog", class: "actions" }, h("button", { class: "main" }, "Close")));
  if (!dialog.open) dialog.showModal();
}

const SIMPLE = {
  "/": () => view.search?.focus(),
  "?": help,
  d: () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"),
  r: () => refresh(),
  u: () => { if (view.up) location.hash = view.up; },
  j: () => view.move?.(1),
  k: () => view.move?.(-1),
  ArrowDown: () => view.move?.(1),
  ArrowUp: () => view.move?.(-1),
  "[": () => view.page?.(-1),
  "]": () => view.page?.(1),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || dialog.open) return;
  const isField = event.target.closest?.("input, select, textarea");
  if (isField) {
    if (event.key === "Escape") {
      event.target.blur();
      event.preventDefault();
    }
    if (["ArrowDown", "Enter"].includes(event.key) && event.target.type === "search") {
      event.target.blur();
      view.move?.(1);
      event.preventDefault();
    }
    return;
  }
  if (event.key === "Enter") {
    if (!event.target.closest?.("a, button") && view.openChosen?.()) event.preventDefault();
    return;
  }
  if (began === "g" && GO[event.key]) {
    began = "";
    location.hash = GO[event.key];
    return;
  }
  began = event.key === "g" ? "g" : "";
  const action = SIMPLE[event.key];
  if (action) {
    event.preventDefault();
    action();
  }
});

document.getElementById("theme").addEventListener("click", SIMPLE.d);
document.getElementById("keys").addEventListener("click", help);
window.addEventListener("hashchange", () => session && route());
document.addEventListener("visibilitychange", () => { if (!document.hidden && view) refresh(); });

async function start() {
  try {
    session = await get("session");
  } catch (error) {
    status("bad", "no answer");
    main.replaceChildren(failure(error));
    setTimeout(start, 2000);
    return;
  }
  if (session.isClosed) {
    status("bad", "closed");
    main.replaceChildren(h("div", { class: "notice bad" }, h("strong", null, "The console is closed. "),
      "This address is reachable beyond loopback, so the console needs a token: set ", h("code", null, "admin.token_file"), "."));
    return;
  }
  if (session.needsToken && !token.get()) ask();
  else route();
}

theme();
start();
