// The first page: whether all is well, what flows, and who waits.

import { get } from "/console/api.js";
import { bytes, compact, count, duration, h, link, rate, table } from "/console/dom.js";
import { plot } from "/console/plots.js";

const TOP = 6;

function tile(name, value, note) {
  return h("div", { class: "tile" }, h("span", null, name), h("b", null, value), h("small", null, note ?? "\u00a0"));
}

function health(page) {
  const notes = [...page.notReady.map((one) => ["bad", one]), ...page.warnings.map((one) => ["warn", one])];
  return notes.map(([kind, one]) => h("div", { class: `notice ${kind}` }, h("strong", null, one.reason), " ", one.detail));
}

export function overview() {
  const notices = h("div");
  const tiles = h("div", { class: "tiles" });
  const head = h("div", { class: "pagehead" });
  const flow = plot("Bytes", [
    { name: "in", class: "first", of: (point) => point.bytes_in },
    { name: "out", class: "second", of: (point) => point.bytes_out },
  ], (value) => `${bytes(value)}/s`, true);
  const records = plot("Records/s", [
    { name: "in", class: "first", of: (point) => point.records_in },
    { name: "out", class: "second", of: (point) => point.records_out },
  ], rate);
  const loop = plot("Event loop", [{ name: "late", class: "third", of: (point) => point.late_ms }],
    (value) => `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`);
  const busiest = table(
    [
      { text: "Busiest topics", class: "name", cell: (row) => h("a", { href: link("topic", { name: row.name }) }, row.name) },
      { text: "Records/s", class: "number", cell: (row) => rate(row.rate) },
      { text: "Stored", class: "number", cell: (row) => bytes(row.bytes) },
    ],
    { key: (row) => row.name, empty: "There are no topics yet.", open: (row) => { location.hash = link("topic", { name: row.name }); } },
  );
  const laggards = table(
    [
      { text: "Groups with the most lag", class: "name", cell: (row) => h("a", { href: link("group", { name: row.name }) }, row.name) },
      { text: "State", cell: (row) => h("span", { class: `state ${row.state}` }, row.state) },
      { text: "Lag", class: "number", cell: (row) => count(row.lag) },
    ],
    { key: (row) => row.name, empty: "There are no groups yet.", open: (row) => { location.hash = link("group", { name: row.name }); } },
  );
  const element = h("div", null, head, notices, tiles,
    h("div", { class: "plots" }, flow.element, records.element, loop.element),
    h("div", { class: "pair" }, busiest.element, laggards.element));

  async function refresh(signal) {
    const [page, topics, groups] = await Promise.all([
      get("overview", {}, signal),
      get("topics", { sort: "rate", order: "desc", rows: TOP }, signal),
      get("groups", { sort: "lag", order: "desc", rows: TOP }, signal),
    ]);
    head.replaceChildren(
      h("div", null, h("h1", null, page.notReady.length ? "Not ready" : "All is well"),
        h("p", { class: "sub" }, `Version ${page.version}, gateway ${page.nodeId} of cluster `, h("code", null, page.clusterId),
          `, up for ${duration(page.now - page.started)}`)),
      h("span", { class: `beacon ${page.notReady.length ? "bad" : page.warnings.length ? "warn" : "good"}` }),
    );
    notices.replaceChildren(...health(page));
    tiles.replaceChildren(
      tile("Topics", compact(page.topics), `${compact(page.partitions)} partitions`),
      tile("Groups", compact(page.groups), `${compact(page.members)} members`),
      tile("Objects", compact(page.objects), `${compact(page.garbageObjects)} to be deleted`),
      tile("Journal", compact(page.entries), `entries, epoch ${page.epoch}`),
    );
    for (const one of [flow, records, loop]) one.update(page.points, page.now);
    busiest.update(topics.rows);
    laggards.update(groups.rows);
  }
  return { element, title: "Overview", refresh, every: 2000, move: busiest.move, openChosen: busiest.openChosen };
}
