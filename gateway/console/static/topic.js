// One topic: its records, its partitions, its configs.

import { get } from "/console/api.js";
import { bytes, count, failure, field, h, link, pager, select, spinner, table, time } from "/console/dom.js";

const ROWS = 50;
const MAX_SELECT = 200;

function textOf(part) {
  if (part === null) return h("span", { class: "null" }, "null");
  if (part.size === 0) return h("span", { class: "faint" }, "empty");
  if (part.text !== undefined) return h("span", { class: "text" }, part.text.slice(0, 300), part.isCut || part.text.length > 300 ? "…" : "");
  return h("span", { class: "hex" }, `0x${part.hex.slice(0, 120)}`, part.isCut || part.hex.length > 120 ? "…" : "");
}

function pretty(part) {
  if (part === null) return "null";
  if (part.text === undefined) return dump(part.hex);
  if (/^\s*[[{]/.test(part.text) && !part.isCut) {
    try {
      return JSON.stringify(JSON.parse(part.text), null, 2);
    } catch { /* It only looks like JSON. */ }
  }
  return part.text;
}

export function dump(hex) {
  const lines = [];
  for (let at = 0; at < hex.length; at += 32) {
    const pairs = hex.slice(at, at + 32).match(/../g) ?? [];
    const chars = pairs.map((pair) => parseInt(pair, 16)).map((code) => (code > 31 && code < 127 ? String.fromCharCode(code) : "·"));
    lines.push(`${(at / 2).toString(16).padStart(6, "0")}  ${pairs.join(" ").padEnd(47)}  ${chars.join("")}`);
  }
  return lines.join("\n");
}

// `more` fetches the same part with more of its bytes.
function part(title, given, more) {
  const size = given === null ? "" : bytes(given.size);
  const show = async () => box.replaceWith(part(title, await more(), null));
  const box = h("div", { class: "part" },
    h("h3", null, title, " ", h("small", null, size, given?.isCut ? ", the beginning is shown " : ""),
      given?.isCut && more ? h("button", { type: "button", class: "small", onclick: show }, "More of it") : null),
    h("pre", null, pretty(given)));
  return box;
}

function detail(topic, row) {
  const batch = row.batch;
  const at = `${row.partition}:${row.offset}`;
  const more = (name) => async () => (await get("messages", { topic, at, limit: 1, bytes: 262144 })).records[0][name];
  const facts = [
    ["Batch", `offset ${count(batch.base)}, ${count(batch.records)} records, ${bytes(batch.size)}`],
    ["Codec", batch.codec],
    ["Timestamp", batch.timestampType],
    ["Producer", batch.producerId === null ? "not idempotent" : `id ${batch.producerId}, epoch ${batch.producerEpoch}, sequence ${batch.baseSequence}`],
  ];
  return h("div", { class: "detail" },
    h("dl", { class: "facts" }, facts.map(([name, value]) => [h("dt", null, name), h("dd", null, value)]),
      h("dt", null, "Stored"), h("dd", null, h("a", { href: link("ledger", { topic, partition: row.partition, offset: row.offset }) }, "where its bytes are"))),
    part("Key", row.key, more("key")), part("Value", row.value, more("value")),
    row.headers.length ? h("div", { class: "part" }, h("h3", null, "Headers"),
      h("dl", { class: "facts" }, row.headers.map((one) => [h("dt", null, one.name), h("dd", null, textOf(one.value))]))) : null);
}

function messages(topic, partitions, session) {
  if (!session.mayReadRecords) {
    return { element: h("div", { class: "notice" }, h("strong", null, "Records are not shown. "),
      "The setting ", h("code", null, "admin.read_records"), " lets the console show what is in them."), refresh: null };
  }
  const many = partitions > MAX_SELECT;
  const choices = Array.from({ length: Math.min(partitions, MAX_SELECT) }, (_, index) => [String(index), `Partition ${index}`]);
  const which = many
    ? h("input", { type: "number", min: 0, max: partitions - 1, value: "0", "aria-label": "Partition" })
    : select([...(partitions <= 64 ? [["-1", "All partitions"]] : []), ...choices], partitions <= 64 ? "-1" : "0");
  const from = select([["latest", "Newest"], ["earliest", "Oldest"], ["offset", "Offset"], ["time", "Time"]], "latest");
  const at = h("input", { type: "text", size: 17, disabled: true, placeholder: "–", spellcheck: "false" });
  const key = h("input", { type: "text", size: 12, placeholder: "part of it, or 0x…", spellcheck: "false" });
  const value = h("input", { type: "text", size: 12, placeholder: "part of it, or 0x…", spellcheck: "false" });
  const header = h("input", { type: "text", size: 12, placeholder: "name or name=part", spellcheck: "false" });
  const follow = h("input", { type: "checkbox", id: "follow" });
  const status = h("p", { class: "sub", role: "status" });
  const results = h("div");
  let rows = [];
  let open = new Set();
  let next = null;
  let isWaiting = false;
  from.addEventListener("change", () => {
    at.disabled = from.value !== "offset" && from.value !== "time";
    at.placeholder = from.value === "time" ? "2026-01-31 12:00" : from.value === "offset" ? "0" : "–";
    if (!at.disabled) at.focus();
  });

  const keyOf = (row) => `${row.partition}:${row.offset}`;
  const list = table(
    [
      { text: "Partition", class: "number", cell: (row) => row.partition },
      { text: "Offset", class: "number", cell: (row) => count(row.offset) },
      { text: "Time", class: "stamp", cell: (row) => time(row.timestamp) },
      { text: "Key", class: "clip", cell: (row) => textOf(row.key) },
      { text: "Value", class: "clip most", cell: (row) => textOf(row.value) },
      { text: "Codec", class: "codec", cell: (row) => h("span", { class: `codec-${row.batch.codec}` }, row.batch.codec) },
    ],
    { key: keyOf, open: toggle, class: "records", empty: "No record matches." },
  );
  results.append(list.element);

  function toggle(row) {
    const name = keyOf(row);
    if (open.has(name)) open.delete(name);
    else open.add(name);
    draw();
  }

  function draw() {
    list.update(rows);
    for (const row of rows) {
      if (!open.has(keyOf(row))) continue;
      const line = [...list.body.children].find((one) => one.dataset.key === keyOf(row));
      line.classList.add("isopen");
      line.after(h("tr", { class: "opened" }, h("td", { colspan: 6 }, detail(topic, row))));
    }
  }

  function parameters() {
    const wanted = { topic, partition: which.value, from: from.value, key: key.value, header: header.value, limit: 50 };
    wanted.value = value.value;
    if (from.value === "offset") wanted.start = at.value.trim() || "0";
    if (from.value === "time") {
      const stamp = /^\d+$/.test(at.value.trim()) ? Number(at.value) : Date.parse(at.value.trim());
      if (Number.isNaN(stamp)) throw new Error("The time is not understood: write 2026-01-31 12:00, or milliseconds.");
      wanted.start = stamp;
    }
    return wanted;
  }

  async function search(extra) {
    if (isWaiting) return;
    isWaiting = true;
    try {
      const page = await get("messages", { ...parameters(), ...extra });
      const isMore = Boolean(extra?.at);
      rows = isMore ? [...rows, ...page.records].slice(-500) : page.records;
      if (!isMore) open = new Set();
      next = page.next;
      // The newest first, but where a search goes forward from some place.
      if (from.value === "latest") rows.sort((one, other) => (other.timestamp ?? 0) - (one.timestamp ?? 0) || other.offset - one.offset);
      draw();
      const bad = page.unreadable.map((one) => h("div", { class: "notice warn" }, `Partition ${one.partition}, the batch at offset ${one.offset}: ${one.reason}`));
      status.replaceChildren(`${count(rows.length)} shown, ${count(page.scanned)} looked at. `,
        page.isComplete ? "That is the end." : h("button", { type: "button", onclick: more }, "Look further"), ...bad);
    } catch (error) {
      status.replaceChildren(failure(error));
    } finally {
      isWaiting = false;
    }
  }

  function more() {
    return search({ at: Object.entries(next).map(([index, offset]) => `${index}:${offset}`).join(",") });
  }

  const form = h("form", { class: "filters", onsubmit: (event) => { event.preventDefault(); search(); } },
    field("Partition", which), field("From", from), field("At", at), field("Key", key), field("Value", value), field("Header", header),
    h("button", { class: "main", type: "submit" }, "Search"),
    h("label", { class: "check", for: "follow" }, follow, "Follow"));
  search();
  return {
    element: h("div", null, form, status, results),
    move: list.move,
    openChosen: list.openChosen,
    search: key,
    refresh: () => (follow.checked && next ? more() : undefined),
  };
}

export function topic(parameters, session) {
  const name = parameters.get("name") ?? "";
  const tab = parameters.get("tab") ?? "messages";
  const page = Number(parameters.get("page") ?? 0);
  const head = h("p", { class: "sub" }, "\u00a0");
  const body = h("div", null, spinner());
  const tabs = [["messages", "Records"], ["partitions", "Partitions"], ["configs", "Configs"]];
  let records = null;
  const view = {
    title: name,
    every: 2000,
    up: "#/topics",
    element: h("div", null,
      h("div", { class: "pagehead" }, h("div", null, h("p", { class: "crumb" }, h("a", { href: "#/topics" }, "Topics")), h("h1", { class: "long" }, name), head)),
      h("nav", { class: "tabs", "aria-label": "Parts of the topic" },
        tabs.map(([id, text]) => h("a", { href: link("topic", { name, tab: id }), "aria-current": id === tab ? "page" : null }, text))),
      body),
    async refresh(signal) {
      const found = await get("topic", { name, page: tab === "partitions" ? page : 0, rows: ROWS }, signal);
      head.replaceChildren(`${count(found.count)} partitions, created `, time(found.created), ", id ", h("code", null, found.id));
      if (tab === "messages") {
        if (records === null) {
          records = messages(name, found.count, session);
          body.replaceChildren(records.element);
          Object.assign(view, { move: records.move, openChosen: records.openChosen, search: records.search });
        }
        await records.refresh?.();
      } else if (tab === "partitions") {
        partitions(found);
      } else {
        configs(found);
      }
    },
  };
  function partitions(found) {
    const rows = table([
      { text: "Partition", class: "number", cell: (row) => row.partition },
      { text: "Log start", class: "number", cell: (row) => count(row.start) },
      { text: "High watermark", class: "number", cell: (row) => count(row.end) },
      { text: "Records", class: "number", cell: (row) => count(row.end - row.start) },
      { text: "Stored", class: "number", cell: (row) => bytes(row.bytes) },
      { text: "Runs", class: "number", cell: (row) => count(row.runs) },
      { text: "Newest", cell: (row) => (row.end > row.start ? h("a", { href: link("ledger", { topic: name, partition: row.partition, offset: row.end - 1 }) }, "where it is") : "") },
    ], { key: (row) => String(row.partition) });
    rows.update(found.partitions);
    const go = (at) => { location.hash = link("topic", { name, tab, page: at }); };
    body.replaceChildren(rows.element, pager(page, ROWS, found.count, go));
    view.page = (step) => { if (page + step >= 0 && (page + step) * ROWS < found.count) go(page + step); };
    view.move = rows.move;
  }
  function configs(found) {
    const set = Object.entries(found.configs);
    body.replaceChildren(set.length
      ? h("dl", { class: "facts card" }, set.map(([config, value]) => [h("dt", null, config), h("dd", null, value)]))
      : h("p", { class: "empty" }, "Nothing is set on the topic: all configs have their defaults."));
  }
  return view;
}
