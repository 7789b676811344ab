// The look-up in the ledger: from an offset to its run, its object, and the bytes of its batch.

import { get } from "/console/api.js";
import { bytes, count, failure, field, h, link, s, time } from "/console/dom.js";

// Fields of a batch header: first byte, one past the last, name.
const FIELDS = [
  [0, 8, "base offset"], [8, 12, "length"], [12, 16, "leader epoch"], [16, 17, "magic"], [17, 21, "CRC-32C"], [21, 23, "attributes"],
  [23, 27, "last offset delta"], [27, 35, "base timestamp"], [35, 43, "greatest timestamp"], [43, 51, "producer id"],
  [51, 53, "producer epoch"], [53, 57, "base sequence"], [57, 61, "record count"],
];

function facts(rows) {
  return h("dl", { class: "facts" }, rows.filter((row) => row[1] !== null && row[1] !== undefined).map(([name, value]) => [h("dt", null, name), h("dd", null, value)]));
}

function step(number, title, note, content) {
  return h("section", { class: "card step" }, h("header", null, h("span", { class: "badge" }, number), h("h2", null, title), h("small", null, note)), content);
}

// Where [start, start + size) is within [0, whole).
function place(whole, start, size, name) {
  const scale = 1000 / Math.max(1, whole);
  const width = Math.max(4, size * scale);
  const x = Math.min(start * scale, 1000 - width);
  return s("svg", { class: "place", viewBox: "0 0 1000 26", preserveAspectRatio: "none", role: "img", "aria-label": name },
    s("rect", { class: "all", width: 1000, height: 26, rx: 5 }), s("rect", { class: "part", x, width, height: 26, rx: 4 }));
}

function dump(batch) {
  const pairs = batch.dump.match(/../g) ?? [];
  const lines = [];
  for (let at = 0; at < pairs.length; at += 16) {
    const cells = [];
    for (let i = at; i < at + 16; i += 1) {
      const found = FIELDS.findIndex(([first, end]) => i >= first && i < end);
      cells.push(i < pairs.length ? h("span", found < 0 ? null : { class: `byte f${found % 4}`, title: FIELDS[found][2] }, pairs[i]) : "  ", i % 8 === 7 ? "  " : " ");
    }
    const chars = pairs.slice(at, at + 16).map((pair) => parseInt(pair, 16)).map((code) => (code > 31 && code < 127 ? String.fromCharCode(code) : "·"));
    lines.push(h("span", { class: "faint" }, `${(batch.start + at).toString(16).padStart(8, "0")}  `), ...cells, h("span", { class: "chars" }, chars.join("")), "\n");
  }
  return h("pre", { class: "dump" }, lines);
}

function shown(found) {
  const { run, object, batch } = found;
  const steps = [
    step(1, `Offset ${count(found.offset)}`, `${found.topic}, partition ${found.partition}`, h("div", null,
      found.reason ? h("div", { class: "notice warn" }, found.reason) : null,
      facts([["Log start", count(found.logStart)], ["High watermark", count(found.highWatermark)], ["Runs of the partition", count(found.runs)], ["Layout version", count(found.layoutVersion)]]))),
  ];
  if (run) {
    const width = run.last - run.base + 1;
    steps.push(step(2, "Run", "adjacent batches in one object", h("div", null,
      place(width, found.offset - run.base, 1, "Where the offset is in the run"),
      facts([["Offsets", `${count(run.base)} – ${count(run.last)}`], ["Bytes", `${count(run.start)} – ${count(run.start + run.size - 1)}, ${bytes(run.size)}`],
        ["Greatest timestamp", time(run.maxTimestamp)], ["Offsets are", run.isDense ? "counted from the first of the run" : "those of the batch headers"]]))));
  }
  if (object) {
    steps.push(step(3, object.kind[0].toUpperCase() + object.kind.slice(1), "bytes under one key, never rewritten", h("div", null,
      place(Math.max(object.size, run.start + run.size), run.start, run.size, "Where the run is in the object"),
      facts([["Key", h("code", { class: "key" }, object.locator)], ["Number", count(object.number)], ["Size", bytes(object.size)], ["Created", time(object.created)],
        ["Live runs", count(object.liveRuns)], ["Stored by", object.gateway === null ? null : `gateway ${object.gateway}, incarnation ${object.incarnation.slice(0, 8)}`],
        ["Place", object.isAdopted ? "adopted, elsewhere" : null]]))));
  }
  if (batch?.error) steps.push(step(4, "Batch", "", h("div", { class: "notice bad" }, batch.error)));
  else if (batch) {
    steps.push(step(4, "Batch", `bytes ${count(batch.start)} – ${count(batch.end - 1)} of the object`, h("div", null,
      place(run.size, batch.start - run.start, batch.size, "Where the batch is in the run"),
      facts([["Offsets", `${count(batch.baseOffset)} – ${count(batch.lastOffset)}`], ["Size", bytes(batch.size)], ["Records", count(batch.records)], ["Codec", batch.codec],
        ["Timestamps", batch.timestampType], ["Greatest timestamp", time(batch.maxTimestamp)],
        ["CRC-32C", h("span", { class: batch.crcMatches ? "ok" : "back" }, `${batch.crc} ${batch.crcMatches ? "matches" : "does not match"}`)],
        ["Producer", batch.producerId === null ? "not idempotent" : `id ${batch.producerId}, epoch ${batch.producerEpoch}, sequence ${batch.baseSequence}`],
        ["Stored base offset", batch.storedBaseOffset === batch.baseOffset ? null : `${count(batch.storedBaseOffset)}, as the producer sent it`]]),
      dump(batch),
      batch.dump.length <= 2 * batch.headerBytes ? h("p", { class: "sub" }, "The header. Records are shown with the setting ", h("code", null, "admin.read_records"), ".") : null)));
  }
  return h("div", { class: "steps" }, steps);
}

export function ledger(parameters) {
  const topic = h("input", { type: "text", id: "ledger-topic", size: 28, value: parameters.get("topic") ?? "", placeholder: "name", spellcheck: "false", required: true });
  const partition = h("input", { type: "number", id: "ledger-partition", min: 0, value: parameters.get("partition") ?? "0" });
  const offset = h("input", { type: "number", id: "ledger-offset", min: 0, value: parameters.get("offset") ?? "0" });
  const result = h("div", { "aria-live": "polite" });
  let isDone = false;
  const show = (event) => {
    event?.preventDefault();
    const next = link("ledger", { topic: topic.value, partition: partition.value || "0", offset: offset.value || "0" });
    if (location.hash === next) { isDone = false; view.refresh(); } else location.hash = next;
  };
  const near = (by) => { offset.value = String(Math.max(0, Number(offset.value) + by)); show(); };
  const view = {
    title: "Ledger",
    search: topic,
    every: 0,
    element: h("div", null,
      h("div", { class: "pagehead" }, h("div", null, h("h1", null, "Ledger"), h("p", { class: "sub" }, "Where an offset is stored: its run, the object that holds it, its bytes."))),
      h("form", { class: "filters", onsubmit: show }, field("Topic", topic), field("Partition", partition), field("Offset", offset),
        h("button", { class: "main", type: "submit" }, "Look up"),
        h("button", { type: "button", onclick: () => near(-1), title: "Offset before" }, "‹"), h("button", { type: "button", onclick: () => near(1), title: "Next offset" }, "›")),
      result),
    async refresh() {
      if (isDone || !topic.value) return;
      isDone = true;
      try {
        result.replaceChildren(shown(await get("position", { topic: topic.value, partition: partition.value, offset: offset.value })));
      } catch (error) {
        result.replaceChildren(failure(error));
      }
    },
  };
  return view;
}
