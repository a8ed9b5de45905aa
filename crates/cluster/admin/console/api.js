// Calls the admin API of the node that served this page.

const TOKEN = "spillway-token";

/** Address of a path of the listener. Relative, so that it holds behind a proxy's prefix. */
const address = (path) => new URL(`../${path}`, document.baseURI);

/** An answer that is not a success: cause and remedy, as the API has them. */
export class ApiError extends Error {
  constructor(status, body, retryAfterS) {
    super(body.cause ?? `the node answered ${status}`);
    this.status = status;
    this.code = body.code ?? "";
    this.remedy = body.remedy ?? "";
    this.retryAfterS = retryAfterS;
  }
}

/** The token of this tab. Another tab asks for it again, and closing the tab forgets it. */
export const token = {
  get: () => sessionStorage.getItem(TOKEN),
  set: (value) => sessionStorage.setItem(TOKEN, value),
  forget: () => sessionStorage.removeItem(TOKEN),
};

function headers(more) {
  // Of all web pages, only this one can send such a header here: the node refuses others by that.
  const all = new Headers({ "x-spillway-console": "1", ...more });
  const known = token.get();
  if (known) all.set("authorization", `Bearer ${known}`);
  return all;
}

/** Sends a request, and returns the response if it is a success. */
export async function send(method, path, { body, signal, more } = {}) {
  const given = body === undefined ? more : { "content-type": "application/json", ...more };
  const response = await fetch(address(path), {
    method,
    headers: headers(given ?? {}),
    body: body === undefined ? undefined : JSON.stringify(body),
    signal,
    cache: "no-store",
    credentials: "same-origin",
    redirect: "error",
  });
  if (response.ok) return response;
  const text = await response.text();
  throw new ApiError(response.status, errorOf(text), Number(response.headers.get("retry-after")) || null);
}

function errorOf(text) {
  try {
    const { error } = JSON.parse(text);
    // Paths outside /v1/ tell a cause alone.
    return typeof error === "string" ? { cause: error } : (error ?? {});
  } catch {
    return {};
  }
}

export const get = async (path, signal) => (await send("GET", path, { signal })).json();

// Repeats of an order that was not taken, such as while a new leader is elected.
const REPEATS = 4;
const PAUSE_MAX_S = 2;

/** Version of a record that must not exist yet. */
export const NEW = "new";

/**
 * Gives an order. One that no leader took is repeated, as the node asks by `Retry-After`. With `version`
 * it is refused if somebody else has written the record since that version was read.
 */
export async function order(method, path, body, version = null) {
  // A repeat after a lost answer is the same order, not a second one.
  const more = { "idempotency-key": crypto.getRandomValues(new Uint32Array(4)).join("-") };
  if (version === NEW) more["if-none-match"] = "*";
  else if (version !== null) more["if-match"] = `"${version}"`;
  for (let left = REPEATS; ; left -= 1) {
    try {
      return await (await send(method, path, { body, more })).json();
    } catch (error) {
      if (error.status !== 503 || !error.retryAfterS || left === 0) throw error;
      await new Promise((done) => setTimeout(done, Math.min(error.retryAfterS, PAUSE_MAX_S) * 1_000));
    }
  }
}

export const post = (path, body) => order("POST", path, body);

/** Pages that a list is read to: more rows than anybody looks through. */
const PAGES_MAX = 5;
const PAGE = 200;

/** Reads a list as far as this node has it, which needs no quorum. */
export async function list(resource, signal) {
  const all = { items: [], file: [], next: null, age_ms: null };
  for (let page = 0; page < PAGES_MAX; page += 1) {
    const query = new URLSearchParams({ consistency: "stale", limit: PAGE });
    if (all.next) query.set("after", all.next);
    const answer = await get(`v1/${resource}?${query}`, signal);
    all.items.push(...answer.items);
    all.file.push(...(answer.file ?? []));
    all.age_ms = answer.age_ms;
    all.next = answer.next;
    if (!all.next) break;
  }
  return all;
}

/** A part of a path. */
export const part = encodeURIComponent;
