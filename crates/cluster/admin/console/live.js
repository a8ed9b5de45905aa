// Follows /v1/live. Read by fetch, since an EventSource can send no token.

import { ApiError, send } from "./api.js";
import { readReasons } from "./words.js";

/** Waits between attempts, in seconds; the last one goes on. */
const WAITS_S = [1, 2, 4, 8, 15];
/** Silence after which a connection counts as lost: an event a second, and two for a slow look. */
const SILENCE_MS = 6_000;
/** Snapshots that are remembered for charts. */
const HISTORY_MAX = 120;

/**
 * What the page knows of the node. `listen` is called at each change.
 * `status` is `connecting`, `live`, `lost` (with `retryAt`), `leaving`, `signed-out` or `refused`.
 */
export class Live {
  constructor(listen) {
    this.listen = listen;
    this.status = "connecting";
    this.snapshot = null;
    this.caller = null;
    this.history = [];
    this.error = null;
    this.retryAt = null;
    this.tries = 0;
    this.run = 0;
    document.addEventListener("visibilitychange", () => this.onVisibility());
  }

  get role() {
    return this.caller?.role ?? "read";
  }

  get mayOperate() {
    return this.role !== "read";
  }

  get mayAdmin() {
    return this.role === "admin";
  }

  /** Begins anew, such as with another token. */
  start() {
    this.stop();
    this.tries = 0;
    this.follow(this.run);
  }

  stop() {
    // Whatever an older run still does no longer counts.
    this.run += 1;
    this.abort?.abort();
    clearTimeout(this.timer);
  }

  /** A page that nobody sees takes no place at the node. */
  onVisibility() {
    if (["signed-out", "refused"].includes(this.status)) return;
    if (document.hidden) this.stop();
    else this.start();
  }

  change(status, more = {}) {
    Object.assign(this, { status, retryAt: null, error: null }, more);
    try {
      this.listen(this);
    } catch (error) {
      // A view that fails is no lost connection.
      reportError(error);
    }
  }

  async follow(run) {
    if (!this.snapshot) this.change("connecting");
    let problem = null;
    try {
      this.abort = new AbortController();
      await readReasons(this.abort.signal);
      const response = await send("GET", "v1/live", { signal: this.abort.signal });
      await this.read(response.body.getReader(), run);
    } catch (error) {
      problem = error;
    }
    if (run !== this.run) return;
    clearTimeout(this.silence);
    this.retry(run, problem);
  }

  retry(run, problem) {
    if (problem instanceof ApiError && problem.status === 401) return this.change("signed-out", { error: problem });
    if (problem instanceof ApiError && problem.status === 403) return this.change("refused", { error: problem });
    const waitS = problem?.retryAfterS ?? WAITS_S[Math.min(this.tries, WAITS_S.length - 1)];
    this.tries += 1;
    // Not all pages at the same moment, when a node is back.
    const waitMs = waitS * 1_000 * (1 + Math.random() / 5);
    const status = this.status === "leaving" ? "leaving" : "lost";
    this.change(status, { error: problem, retryAt: Date.now() + waitMs });
    this.timer = setTimeout(() => this.follow(run), waitMs);
  }

  async read(reader, run) {
    const decoder = new TextDecoder();
    let text = "";
    for (;;) {
      clearTimeout(this.silence);
      this.silence = setTimeout(() => this.abort.abort(), SILENCE_MS);
      const { done, value } = await reader.read();
      if (done || run !== this.run) return;
      text += decoder.decode(value, { stream: true });
      const events = text.split("\n\n");
      text = events.pop();
      for (const event of events) this.take(event);
    }
  }

  take(event) {
    const field = (name) => event.split("\n").find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2);
    const data = JSON.parse(field("data"));
    if (field("event") === "begin") this.caller = data;
    if (field("event") === "end") this.change("leaving");
    if (field("event") !== "snapshot") return;
    this.tries = 0;
    this.snapshot = data;
    this.history.push({ at: data.stamp_ms, regions: new Map(data.regions.map((it) => [it.region, it])) });
    if (this.history.length > HISTORY_MAX) this.history.shift();
    this.change("live");
  }

  /** Requests that were sent to a region per second, over the last seconds; null if unknown. */
  sentPerS(region) {
    const seen = this.history.slice(-11).filter((it) => typeof it.regions.get(region)?.sent === "number");
    if (seen.length < 2) return null;
    const [first, last] = [seen[0], seen[seen.length - 1]];
    const passedS = (last.at - first.at) / 1_000;
    const sent = last.regions.get(region).sent - first.regions.get(region).sent;
    return passedS > 0 && sent >= 0 ? sent / passedS : null;
  }

  /** Requests at the replicas of a region, one number a second. */
  loads(region) {
    return this.history.map((it) => it.regions.get(region)?.in_flight ?? 0);
  }
}
