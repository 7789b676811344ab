// The lists of topics, of groups and of transactional ids: a search, sorted columns, pages. What is chosen is in the address.

import { get } from "/console/api.js";
import { bytes, count, duration, h, link, pager, rate, table } from "/console/dom.js";

const ROWS = 50;

function list(kind, title, columns, parameters, open) {
  const chosen = {
    search: parameters.get("search") ?? "",
    sort: parameters.get("sort") ?? "name",
    order: parameters.get("order") ?? "asc",
    page: Number(parameters.get("page") ?? 0),
  };
  const place = (next) => link(kind, {
    search: next.search,
    sort: next.sort === "name" ? "" : next.sort,
    order: next.order === "asc" ? "" : next.order,
    page: next.page || "",
  });
  const show = (changes) => location.replace(place({ ...chosen, ...changes }));
  let typing = 0;
  const search = h("input", {
    type: "search", placeholder: `Search ${kind}   /`, value: chosen.search, "aria-label": `Search ${kind}`, autocomplete: "off", spellcheck: "false",
    oninput: () => {
      clearTimeout(typing);
      typing = setTimeout(() => {
        Object.assign(chosen, { search: search.value, page: 0 });
        // Without an event: the page stays as it is, with its field.
        history.replaceState(null, "", place(chosen));
        view.refreshNow();
      }, 120);
    },
  });
  const onSort = (sort) => {
    const isSame = chosen.sort === sort;
    const first = sort === "name" || sort === "state" ? "asc" : "desc";
    show({ sort, order: isSame ? (chosen.order === "asc" ? "desc" : "asc") : first, page: 0 });
  };
  const rows = table(columns, { key: (row) => row.name, onSort, ...chosen, open, empty: `No ${kind} match.` });
  const pages = h("div");
  const total = h("p", { class: "sub" }, "\u00a0");
  let matching = 0;
  const go = (page) => {
    if (page >= 0 && page * ROWS < matching) show({ page });
  };
  const view = {
    title,
    search,
    every: 3000,
    move: rows.move,
    openChosen: rows.openChosen,
    page: (step) => go(chosen.page + step),
    refreshNow: () => {},
    element: h("div", null, h("div", { class: "pagehead" }, h("div", null, h("h1", null, title), total), h("div", { class: "tools" }, search)), rows.element, pages),
    async refresh(signal) {
      const page = await get(kind, { ...chosen, rows: ROWS }, signal);
      matching = page.matching;
      total.textContent = page.matching === page.total ? `${count(page.total)} in all` : `${count(page.matching)} of ${count(page.total)}`;
      const size = (row) => row.lag ?? row.rate ?? row.open ?? 0;
      const top = Math.max(1, ...page.rows.map(size));
      rows.update(page.rows.map((row) => ({ ...row, share: size(row) / top })));
      pages.replaceChildren(pager(chosen.page, ROWS, matching, go));
    },
  };
  return view;
}

export function bar(text, share) {
  if (!share) return text;
  const filled = h("i");
  filled.style.width = `${Math.round(share * 100)}%`;
  return h("span", { class: "bar" }, h("span", null, text), h("em", null, filled));
}

export function topics(parameters) {
  return list("topics", "Topics", [
    { text: "Name", sort: "name", class: "name", cell: (row) => h("a", { href: link("topic", { name: row.name }) }, row.name) },
    { text: "Partitions", sort: "partitions", class: "number", cell: (row) => count(row.partitions) },
    { text: "Records", sort: "records", class: "number", cell: (row) => count(row.records) },
    { text: "Stored", sort: "bytes", class: "number", cell: (row) => bytes(row.bytes) },
    { text: "Records/s", sort: "rate", class: "number wide", cell: (row) => bar(rate(row.rate), row.share) },
  ], parameters, (row) => { location.hash = link("topic", { name: row.name }); });
}

export function groups(parameters) {
  return list("groups", "Groups", [
    { text: "Name", sort: "name", class: "name", cell: (row) => h("a", { href: link("group", { name: row.name }) }, row.name) },
    { text: "State", sort: "state", cell: (row) => h("span", { class: `state ${row.state}` }, row.state) },
    { text: "Members", sort: "members", class: "number", cell: (row) => count(row.members) },
    { text: "Topics", sort: "topics", class: "number", cell: (row) => count(row.topics) },
    { text: "Lag", sort: "lag", class: "number wide", cell: (row) => bar(count(row.lag), row.share) },
  ], parameters, (row) => { location.hash = link("group", { name: row.name }); });
}

export function transactions(parameters) {
  return list("transactions", "Transactions", [
    { text: "Transactional id", sort: "name", class: "name", cell: (row) => row.name },
    { text: "State", sort: "state", cell: (row) => h("span", { class: `state ${row.state}` }, row.state) },
    { text: "Producer id", class: "number", cell: (row) => String(row.producerId) },
    { text: "Partitions", sort: "partitions", class: "number", cell: (row) => count(row.partitions) },
    { text: "Groups", class: "number", cell: (row) => count(row.groups) },
    { text: "Open for", sort: "open", class: "number wide", cell: (row) => (row.open === null ? "" : bar(duration(row.open), row.share)) },
  ], parameters);
}
