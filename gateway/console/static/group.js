// One group: its lag, its members, and a reset of its offsets with a preview.

import { get, post } from "/console/api.js";
import { bar } from "/console/lists.js";
import { count, failure, field, h, link, pager, select, table, time } from "/console/dom.js";

const ROWS = 50;

export function group(parameters, session) {
  const name = parameters.get("name") ?? "";
  const page = Number(parameters.get("page") ?? 0);
  const head = h("p", { class: "sub" }, "\u00a0");
  const lags = h("div");
  const members = h("div");
  const pages = h("div");
  let total = 0;
  const go = (at) => { if (at >= 0 && at * ROWS < total) location.hash = link("group", { name, page: at }); };
  const rows = table([
    { text: "Topic", class: "name", cell: (row) => (row.topic === null ? h("span", { class: "faint" }, "deleted") : h("a", { href: link("topic", { name: row.topic }) }, row.topic)) },
    { text: "Partition", class: "number", cell: (row) => row.partition },
    { text: "Committed", class: "number", cell: (row) => count(row.offset) },
    { text: "End", class: "number", cell: (row) => count(row.end) },
    { text: "Lag", class: "number wide", cell: (row) => bar(count(row.lag), row.share) },
    { text: "When", class: "stamp", cell: (row) => time(row.committed) },
  ], { key: (row) => `${row.topic}:${row.partition}`, empty: "The group has no committed offsets." });
  lags.append(rows.element, pages);
  const reset = resetForm(name, session);
  return {
    title: name,
    every: 2000,
    up: "#/groups",
    move: rows.move,
    page: (step) => go(page + step),
    element: h("div", null,
      h("div", { class: "pagehead" }, h("div", null, h("p", { class: "crumb" }, h("a", { href: "#/groups" }, "Groups")), h("h1", { class: "long" }, name), head)),
      lags, members, reset),
    async refresh(signal) {
      const found = await get("group", { name, page, rows: ROWS }, signal);
      total = found.offsetCount;
      const lag = found.offsets.reduce((sum, row) => sum + (row.lag ?? 0), 0);
      head.replaceChildren(h("span", { class: `state ${found.state}` }, found.state),
        ` ${count(found.memberCount)} members, ${count(found.offsetCount)} partitions, ${total > ROWS ? "lag of this page" : "lag"} ${count(lag)}`);
      const top = Math.max(1, ...found.offsets.map((row) => row.lag ?? 0));
      rows.update(found.offsets.map((row) => ({ ...row, share: (row.lag ?? 0) / top })));
      pages.replaceChildren(total > ROWS ? pager(page, ROWS, total, go) : "");
      members.replaceChildren(...memberTable(found));
    },
  };
}

function memberTable(found) {
  if (!found.members.length) return [];
  const rows = table([
    { text: "Member", class: "name", cell: (row) => row.memberId },
    { text: "Instance", cell: (row) => row.instanceId ?? h("span", { class: "faint" }, "dynamic") },
    { text: "Client", cell: (row) => row.clientId },
    { text: "Host", cell: (row) => row.host },
  ], { key: (row) => row.memberId });
  rows.update(found.members);
  return [h("h2", null, "Members"), rows.element];
}

function resetForm(name, session) {
  if (!session.mayWrite) {
    return h("p", { class: "sub" }, "Offsets can be reset here with the setting ", h("code", null, "admin.write"), ", and always with ",
      h("code", null, "dragoman groups reset-offsets"), ".");
  }
  const to = select([["earliest", "Oldest record"], ["latest", "End"], ["time", "Time"], ["offset", "Offset"], ["shift", "Shift by"]], "earliest", { id: "reset-to" });
  const value = h("input", { type: "text", id: "reset-value", size: 18, disabled: true, spellcheck: "false" });
  const topics = h("input", { type: "text", size: 24, placeholder: "all that it has read", spellcheck: "false" });
  const result = h("div", { "aria-live": "polite" });
  to.addEventListener("change", () => {
    value.disabled = to.value === "earliest" || to.value === "latest";
    value.placeholder = { time: "2026-01-31 12:00", offset: "0", shift: "-100" }[to.value] ?? "";
  });
  function target() {
    if (value.disabled) return 0;
    const text = value.value.trim();
    const parsed = /^-?\d+$/.test(text) ? Number(text) : to.value === "time" ? Date.parse(text) : NaN;
    if (Number.isNaN(parsed)) throw new Error("The value is not understood.");
    return parsed;
  }
  function planned(page) {
    const rows = table([
      { text: "Topic", class: "name", cell: (row) => row.topic },
      { text: "Partition", class: "number", cell: (row) => row.partition },
      { text: "Now", class: "number", cell: (row) => count(row.before) },
      { text: "Then", class: "number", cell: (row) => h("strong", null, count(row.after)) },
      { text: "Change", class: "number", cell: (row) => change(row) },
      { text: "Lag then", class: "number", cell: (row) => count(Math.max(0, row.end - row.after)) },
      { text: "", cell: (row) => row.error ?? "" },
    ], { key: (row) => `${row.topic}:${row.partition}` });
    rows.update(page.rows);
    return rows.element;
  }
  async function preview(event) {
    event.preventDefault();
    try {
      const wanted = topics.value.split(",").map((one) => one.trim()).filter(Boolean);
      const page = await post("group/reset/preview", { group: name, topics: wanted, to: to.value, value: target() });
      result.replaceChildren(planned(page), h("div", { class: "actions" },
        h("button", { class: "main danger", id: "reset-apply", type: "button", onclick: () => apply(page) }, `Reset ${count(page.rows.length)} partitions`),
        h("button", { type: "button", onclick: () => result.replaceChildren() }, "Leave them")));
    } catch (error) {
      result.replaceChildren(failure(error));
    }
  }
  async function apply(page) {
    try {
      const done = await post("group/reset", { preview: page.preview });
      const failed = done.rows.filter((row) => row.error).length;
      result.replaceChildren(h("div", { class: `notice ${failed ? "bad" : "good"}`, id: "reset-done" },
        failed ? `${failed} of ${done.rows.length} partitions were refused.` : `The offsets of ${count(done.rows.length)} partitions are reset.`), planned(done));
    } catch (error) {
      result.replaceChildren(failure(error));
    }
  }
  return h("section", { class: "card reset" }, h("h2", null, "Reset offsets"),
    h("p", { class: "sub" }, "The group must have no members. Nothing changes before you have seen what would."),
    h("form", { class: "filters", onsubmit: preview }, field("To", to), field("Value", value), field("Topics", topics, "Names, separated by commas"),
      h("button", { class: "main", type: "submit", id: "reset-preview" }, "Preview")), result);
}

function change(row) {
  if (row.before === null) return "new";
  const by = row.after - row.before;
  return h("span", { class: by < 0 ? "back" : by > 0 ? "ahead" : "faint" }, by > 0 ? `+${count(by)}` : count(by));
}
