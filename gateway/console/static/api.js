// Requests to the gateway. The token stays in this tab, and goes into a header: there is no cookie.

const KEY = "dragoman.token";

export class Refused extends Error {
  constructor(status, reason, detail) {
    super(detail);
    this.status = status;
    this.reason = reason;
  }
}

export const token = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => sessionStorage.setItem(KEY, value),
  clear: () => sessionStorage.removeItem(KEY),
};

async function request(path, options) {
  const headers = { ...options.headers };
  if (token.get()) headers.Authorization = `Bearer ${token.get()}`;
  let response;
  try {
    response = await fetch(`/api/${path}`, { ...options, headers, cache: "no-store", credentials: "omit" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "unreachable", "The gateway does not answer.");
  }
  const body = await response.json().catch(() => null);
  if (!response.ok || body === null) {
    const detail = body?.error?.detail ?? `The gateway answered with status ${response.status}.`;
    throw new Refused(response.status, body?.error?.reason ?? "status", detail);
  }
  return body;
}

export function get(path, parameters, signal) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters ?? {})) {
    if (value !== null && value !== undefined && value !== "") query.set(name, value);
  }
  const text = query.toString();
  return request(text ? `${path}?${text}` : path, { signal });
}

export function post(path, body) {
  return request(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
}
