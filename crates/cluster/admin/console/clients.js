// Clients: what each asks for per second.

import { get } from "./api.js";

/** Time between two looks at the requests that ended last. */
const PERIOD_MS = 3_000;
/** Requests that are looked at: enough for shares, and few enough to be read from afar. */
const LOOKED_AT = 300;
/** Age up to which a request tells of now. */
const WINDOW_MS = 5_000;

/** Requests of the last seconds by client, looked at now and then while the page is seen. */
export class Clients {
  constructor(live) {
    this.live = live;
    this.lookedAt = 0;
    this.rates = new Map();
  }

  /** Looks if it is time to. What can't be read stays as it was. */
  async look() {
    if (Date.now() - this.lookedAt < PERIOD_MS) return;
    this.lookedAt = Date.now();
    const answer = await get(`v1/requests?limit=${LOOKED_AT}`).catch(() => null);
    if (answer) this.take(answer.requests, this.live.snapshot.stamp_ms);
  }

  /** Counts requests by client; `nowMs` is by the node's clock, as their ends are. */
  take(requests, nowMs) {
    const recent = requests.filter((it) => it.ended_ms > nowMs - WINDOW_MS);
    // Of a busy node these are less than a whole window.
    const isCut = recent.length === LOOKED_AT;
    const spanMs = isCut ? Math.max(100, Math.max(nowMs, recent[0].ended_ms) - recent[recent.length - 1].ended_ms) : WINDOW_MS;
    this.rates = new Map();
    for (const it of recent) {
      this.rates.set(nameOf(it), (this.rates.get(nameOf(it)) ?? 0) + 1_000 / spanMs);
    }
  }

  /** Requests per second of a tenant's key for a model. */
  rate(row) {
    return this.rates.get(nameOf(row)) ?? 0;
  }
}

const nameOf = ({ tenant, key, model }) => JSON.stringify([tenant ?? null, key ?? null, model ?? null]);
