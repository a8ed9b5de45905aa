// Writes figures for people: with units, and with a dash for what is not known.

const NONE = "–";
const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const TENTH = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });

const isKnown = (value) => typeof value === "number" && Number.isFinite(value);

/** A number without fraction. */
export const count = (value) => (isKnown(value) ? WHOLE.format(value) : NONE);

/** A number with one digit after the point. */
export const tenth = (value) => (isKnown(value) ? TENTH.format(value) : NONE);

/** Milliseconds; above ten seconds in seconds. */
export function ms(value) {
  if (!isKnown(value)) return NONE;
  if (value >= 10_000) return `${TENTH.format(value / 1_000)} s`;
  return `${value < 10 ? TENTH.format(value) : WHOLE.format(value)} ms`;
}

/** A share of 0 to 1 in percent. */
export const percent = (share) => (isKnown(share) ? `${WHOLE.format(share * 100)} %` : NONE);

/** A duration in seconds, in its two largest units. */
export function duration(seconds) {
  if (!isKnown(seconds)) return NONE;
  const whole = Math.max(0, Math.floor(seconds));
  const units = [["d", 86_400], ["h", 3_600], ["min", 60], ["s", 1]];
  const first = units.findIndex(([, size]) => whole >= size);
  if (first < 0) return "0 s";
  let rest = whole;
  const parts = units.slice(first, first + 2).map(([name, size]) => {
    const many = Math.floor(rest / size);
    rest -= many * size;
    return many > 0 ? `${many} ${name}` : "";
  });
  return parts.filter(Boolean).join(" ");
}

/** Bytes in KiB, MiB and GiB. */
export function bytes(value) {
  if (!isKnown(value)) return NONE;
  if (value < 1_024) return `${WHOLE.format(value)} B`;
  if (value < 1_048_576) return `${TENTH.format(value / 1_024)} KiB`;
  if (value < 1_073_741_824) return `${TENTH.format(value / 1_048_576)} MiB`;
  return `${TENTH.format(value / 1_073_741_824)} GiB`;
}

/** A time of milliseconds since 1970, in the reader's time zone. */
export function time(stampMs) {
  if (!isKnown(stampMs)) return NONE;
  const date = new Date(stampMs);
  const two = (part) => String(part).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** The time of day of milliseconds since 1970. */
export function clock(stampMs) {
  return isKnown(stampMs) ? time(stampMs).slice(11) : NONE;
}

/** The reader's time zone, such as `UTC+1`. */
export function zone() {
  const minutes = -new Date().getTimezoneOffset();
  const sign = minutes < 0 ? "−" : "+";
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  return minutes === 0 ? "UTC" : `UTC${sign}${hours}${rest ? `:${String(rest).padStart(2, "0")}` : ""}`;
}

/** A day of UTC as the API writes it. */
export const day = (stampMs) => new Date(stampMs).toISOString().slice(0, 10);

/** An amount of money, to the cent or to what is there below a cent. */
export function money(text) {
  const value = Number(text);
  if (text === null || text === undefined || !Number.isFinite(value)) return NONE;
  const digits = value === 0 || value >= 1 ? 2 : value >= 0.01 ? 3 : 5;
  return value.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: digits });
}

/** Texts with commas between; a dash for none. */
export const list = (items) => (items && items.length > 0 ? items.join(", ") : NONE);
