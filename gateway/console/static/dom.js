// Elements and texts. Nothing here makes markup of a text: every name and every record is set as a text node.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value" || name === "checked" || name === "disabled") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function s(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

export const count = (value) => (value === null || value === undefined ? "–" : whole.format(value));

export const compact = (value) => (value < 100000 ? whole.format(value) : short.format(value));

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  let scaled = value;
  while (scaled >= 1024 && unit < units.length - 1) {
    scaled /= 1024;
    unit += 1;
  }
  return `${unit && scaled < 10 ? scaled.toFixed(1) : Math.round(scaled)} ${units[unit]}`;
}

export function rate(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  return value < 10 ? value.toFixed(1) : compact(Math.round(value));
}

export function time(milliseconds) {
  if (milliseconds === null || milliseconds === undefined) return h("span", { class: "faint" }, "none");
  const date = new Date(milliseconds);
  if (Number.isNaN(date.getTime())) return h("span", { class: "faint" }, String(milliseconds));
  const pad = (value, digits = 2) => String(value).padStart(digits, "0");
  const day = `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
  const clock = `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
  return h(
    "time",
    { datetime: date.toISOString(), title: `${date.toISOString()}  (${milliseconds})` },
    day,
    " ",
    clock,
    h("span", { class: "faint" }, `.${pad(date.getMilliseconds(), 3)}`),
  );
}

export function duration(milliseconds) {
  const seconds = Math.max(0, Math.round(milliseconds / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} days`;
}

export function link(route, parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters ?? {})) {
    if (value !== null && value !== undefined && value !== "") query.set(name, value);
  }
  const text = query.toString();
  return `#/${route}${text ? `?${text}` : ""}`;
}

export function field(label, control, hint) {
  return h("label", { class: "field", title: hint }, h("span", null, label), control);
}

export function select(options, chosen, attributes) {
  const made = h(
    "select",
    attributes,
    options.map(([value, text]) => h("option", { value }, text)),
  );
  made.value = chosen;
  return made;
}

export const spinner = (text) => h("p", { class: "empty" }, text ?? "Loading …");

export function failure(error) {
  return h("div", { class: "notice bad", role: "alert" }, h("strong", null, "Not shown. "), error.message);
}

// A table whose rows are chosen with the keys. `columns`: {name, text, sort, class, cell(row)}.
export function table(columns, options) {
  const heads = columns.map((column) => {
    const title = column.sort
      ? h("button", { type: "button", onclick: () => options.onSort(column.sort) }, column.text)
      : column.text;
    const isSorted = column.sort && options.sort === column.sort;
    return h(
      "th",
      { class: column.class, scope: "col", "aria-sort": isSorted ? (options.order === "desc" ? "descending" : "ascending") : null },
      title,
    );
  });
  const body = h("tbody");
  const element = h(
    "div",
    { class: "tablebox" },
    h("table", { class: options.class }, h("thead", null, h("tr", null, heads)), body),
  );
  let chosen = null;
  function mark(row) {
    for (const other of body.children) other.classList.toggle("chosen", other === row);
    chosen = row?.dataset.key ?? null;
    row?.scrollIntoView({ block: "nearest" });
  }
  function update(rows) {
    body.replaceChildren(
      ...rows.map((row) => {
        const key = options.key(row);
        const line = h(
          "tr",
          { "data-key": key, class: options.open ? "opens" : null, onclick: (event) => click(event, row) },
          columns.map((column) => h("td", { class: column.class }, column.cell(row))),
        );
        if (key === chosen) line.classList.add("chosen");
        return line;
      }),
    );
    if (!rows.length) {
      body.append(h("tr", null, h("td", { colspan: columns.length, class: "empty" }, options.empty ?? "None.")));
    }
  }
  function click(event, row) {
    if (event.target.closest("a, button, input") || window.getSelection()?.toString()) return;
    options.open?.(row);
  }
  function move(step) {
    const lines = [...body.children].filter((line) => line.dataset.key !== undefined);
    if (!lines.length) return;
    const at = lines.findIndex((line) => line.dataset.key === chosen);
    mark(lines[Math.min(Math.max(at < 0 ? (step > 0 ? 0 : lines.length - 1) : at + step, 0), lines.length - 1)]);
  }
  function openChosen() {
    const line = [...body.children].find((one) => one.dataset.key === chosen && chosen !== null);
    if (line) line.click();
    return Boolean(line);
  }
  return { element, body, update, move, openChosen };
}

export function pager(page, rows, matching, go) {
  const pages = Math.max(1, Math.ceil(matching / rows));
  const first = matching ? page * rows + 1 : 0;
  const last = Math.min(matching, (page + 1) * rows);
  return h(
    "div",
    { class: "pager" },
    h("span", null, `${count(first)} – ${count(last)} of ${count(matching)}`),
    h("button", { type: "button", disabled: page === 0, onclick: () => go(page - 1), title: "Page before ([)" }, "‹"),
    h("button", { type: "button", disabled: page >= pages - 1, onclick: () => go(page + 1), title: "Next page (])" }, "›"),
  );
}
