// The page: its frame, its views, and the stream that feeds them.

import { ApiError, token } from "./api.js";
import { Clients } from "./clients.js";
import { h, setAttribute, setText } from "./dom.js";
import { Drawer } from "./drawer.js";
import { duration, zone } from "./format.js";
import { Live } from "./live.js";
import { alertsView } from "./views/alerts.js";
import { controlView } from "./views/control.js";
import { explainView } from "./views/explain.js";
import { limitsView } from "./views/limits.js";
import { promptsView } from "./views/prompts.js";
import { regionView } from "./views/region.js";
import { replicasView } from "./views/replicas.js";
import { requestsView } from "./views/requests.js";
import { routesView } from "./views/routes.js";
import { worldView } from "./views/world.js";

// A view is a function that takes the page and the rest of the path, and returns `title`, `element`,
// and maybe `update()`, which is called at each event, and `onQuery()`, which is called when the part
// of the address behind the question mark changes. A new view gets a line here and nothing else.
const VIEWS = [
  { path: "world", name: "World", view: worldView },
  { path: "regions", name: null, view: regionView },
  { path: "replicas", name: "Replicas", view: replicasView },
  { path: "requests", name: "Requests", view: requestsView },
  { path: "routes", name: "Routes and models", view: routesView },
  { path: "prompts", name: "Hot prompts", view: promptsView },
  { path: "control", name: "Control plane", view: controlView },
  { path: "limits", name: "Limits and keys", view: limitsView },
  { path: "alerts", name: "Alerts", view: alertsView },
  { path: "explain", name: "Explain", view: explainView },
];
const THEME = "spillway-theme";

const by = (id) => document.getElementById(id);
const main = by("main");

/** What views have of the page. */
const page = {
  live: new Live(() => update()),
  /** Calls `read` now and every `periodS` seconds as long as the view is shown and the page is seen. */
  every(periodS, read) {
    const { signal } = shown.controller;
    const problem = h("p", { class: "problem", role: "alert", hidden: true });
    let timer = null;
    let run = 0;
    const look = async () => {
      // An order makes a view look at once; the look that was due is then this one.
      clearTimeout(timer);
      run += 1;
      const mine = run;
      const error = document.hidden ? null : await read(signal).then(() => null, (error) => error);
      if (signal.aborted || mine !== run) return;
      setAttribute(main, "aria-busy", null);
      problem.hidden = !error;
      setText(problem, error ? `${error.message}${error.remedy ? `: ${error.remedy}` : ""}` : "");
      timer = setTimeout(look, periodS * 1_000);
    };
    setAttribute(main, "aria-busy", "true");
    shown.looks.push(look);
    look();
    return { problem, again: look };
  },
  /** Has the view look again, since something was changed. */
  refresh() {
    for (const look of shown.looks) look();
  },
  /** A value of the address behind the question mark; "" for none. */
  asked: (name) => route().query.get(name) ?? "",
  /** Sets values of the address, so that it leads back here. `isStep` makes it a step to come back from. */
  ask(values, isStep = false) {
    const { hash, query } = route();
    const before = query.toString();
    for (const [name, value] of Object.entries(values)) {
      if (value) query.set(name, value);
      else query.delete(name);
    }
    if (query.toString() === before) return;
    const text = query.toString();
    history[isStep ? "pushState" : "replaceState"](null, "", `#${hash}${text ? `?${text}` : ""}`);
    shown.path = location.hash;
  },
  /** Tells what was done, to everybody. */
  say(text) {
    const said = by("said");
    said.hidden = false;
    setText(said, text);
    clearTimeout(page.saying);
    page.saying = setTimeout(() => { said.hidden = true; setText(said, ""); }, 8_000);
  },
};

page.clients = new Clients(page.live);
page.drawer = new Drawer(main);

let shown = { controller: new AbortController(), looks: [], view: null, path: null, hash: null };

function route() {
  const text = location.hash.replace(/^#/, "");
  const [hash, ...asked] = text.split("?");
  const [path, ...rest] = hash.replace(/^\//, "").split("/").map(decoded);
  return { hash, entry: VIEWS.find((entry) => entry.path === path) ?? VIEWS[0], rest, query: new URLSearchParams(asked.join("?")) };
}

/** A part of an address that somebody typed may be badly encoded. */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Shows the view of the address. */
function open() {
  const { entry, rest, hash } = route();
  const isFirst = shown.path === null;
  // Only what is asked for has changed, such as by a step back.
  if (shown.view?.onQuery && shown.hash === hash && !shown.isWaiting) {
    shown.path = location.hash;
    shown.view.onQuery();
    return;
  }
  shown.controller.abort();
  page.drawer.close(true);
  shown = { controller: new AbortController(), looks: [], view: null, path: location.hash, hash };
  setAttribute(main, "aria-busy", null);
  shown.entry = entry;
  const isOut = ["signed-out", "refused"].includes(page.live.status);
  const needsData = !page.live.snapshot;
  shown.view = isOut ? signInView() : needsData ? waitingView() : entry.view(page, rest);
  main.replaceChildren(h("h1", { tabindex: "-1" }, shown.view.title), shown.view.element);
  shown.isWaiting = needsData || isOut;
  for (const link of document.querySelectorAll("#views a")) {
    setAttribute(link, "aria-current", link.getAttribute("href") === `#/${entry.path}` ? "page" : null);
  }
  toggleMenu(false);
  shown.view.update?.();
  if (!shown.isWaiting) shown.view.onQuery?.();
  titled();
  // Only after a step of the reader's: at the start the top of the page is the place to be.
  if (!isFirst && !isOut) main.focus({ preventScroll: true });
  if (!isFirst) scrollTo(0, 0);
}

function titled() {
  const node = page.live.snapshot?.node.node.name;
  document.title = [shown.view.title, node, "Spillway"].filter(Boolean).join(" – ");
}

function waitingView() {
  return { title: shown.entry.name ?? "Region", element: h("p", { class: "empty" }, "Waiting for the node.") };
}

function signInView() {
  const input = h("input", { id: "token", type: "password", autocomplete: "off", required: true, spellcheck: "false" });
  const problem = h("p", { class: "problem", role: "alert" });
  const { error, status } = page.live;
  const isTried = Boolean(token.get());
  if (status === "refused" || isTried) setText(problem, `${error.message}: ${error.remedy}`);
  const submit = (event) => {
    event.preventDefault();
    token.set(input.value.trim());
    setText(problem, "Asking the node.");
    page.live.start();
  };
  const form = h("form", { class: "sign-in", onsubmit: submit },
    h("p", {}, "This node wants a token. Its token file or ", h("code", {}, "spillway keys create --role read"), " has one. The token stays in this tab and is forgotten with it."),
    h("label", { for: "token" }, "Token"), input, h("button", { class: "main", type: "submit" }, "Sign in"), problem);
  return { title: "Sign in", element: form };
}

/** Shows what the stream has told. */
function update() {
  const { live } = page;
  const isOut = ["signed-out", "refused"].includes(live.status);
  const snapshot = live.snapshot;
  const connection = { connecting: "connecting", live: "live", lost: "connection lost", leaving: "stopping" };
  setText(by("connection"), connection[live.status] ?? "signed out");
  setAttribute(by("connection"), "data-state", live.status);
  setText(by("where"), snapshot ? `${snapshot.node.node.name} in ${snapshot.node.node.region}` : "");
  setText(by("who"), live.caller && !isOut ? `${live.caller.caller} (${live.caller.role})` : "");
  by("sign-out").hidden = !token.get() || isOut;
  document.body.classList.toggle("stale", Boolean(snapshot) && live.status !== "live");
  banner();
  count();
  if (isOut || shown.isWaiting) {
    if (isOut && shown.view?.title === "Sign in" && live.status === shown.status && live.error === shown.error) return;
    if (!isOut && !snapshot) return;
    shown.status = live.status;
    open();
    shown.status = live.status;
    shown.error = live.error;
    return;
  }
  if (live.status === "live") {
    shown.view.update?.();
    page.drawer.update();
  }
  titled();
}

/** Says when the data is old. */
function banner() {
  const { live } = page;
  const element = by("banner");
  const isLost = live.retryAt !== null;
  element.hidden = !isLost;
  clearTimeout(banner.timer);
  if (!isLost) return;
  const inS = Math.max(0, Math.ceil((live.retryAt - Date.now()) / 1_000));
  const what = live.status === "leaving" ? "The node is stopping" : "Connection lost";
  const why = live.error instanceof ApiError ? ` (${live.error.message})` : "";
  const old = live.snapshot ? ` What you see is ${duration((Date.now() - (live.seenAt ?? Date.now())) / 1_000)} old.` : "";
  // Read aloud once, not each second.
  element.setAttribute("aria-live", inS > 0 && banner.said ? "off" : "polite");
  banner.said = true;
  setText(element, `${what}${why}, trying again in ${inS} s.${old}`);
  banner.timer = setTimeout(banner, 1_000);
}

function count() {
  const { live } = page;
  if (live.status !== "live") return;
  live.seenAt = Date.now();
  banner.said = false;
  page.clients.look();
  const problems = live.snapshot.node.problems.filter((it) => it.urgency !== "info");
  const element = by("alert-count");
  element.hidden = problems.length === 0;
  setText(element, String(problems.length));
  setAttribute(element, "data-level", problems.some((it) => it.urgency === "page") ? "bad" : "warn");
}

function toggleMenu(isOpen) {
  by("menu").setAttribute("aria-expanded", String(isOpen));
  by("nav").classList.toggle("open", isOpen);
}

function frame() {
  const link = ({ path, name }) => h("a", { href: `#/${path}` }, name,
    path === "alerts" ? h("span", { id: "alert-count", class: "number-badge", hidden: true }) : null);
  by("views").append(...VIEWS.filter((it) => it.name).map((it) => h("li", {}, link(it))));
  by("menu").addEventListener("click", () => toggleMenu(by("menu").getAttribute("aria-expanded") !== "true"));
  by("sign-out").addEventListener("click", () => { token.forget(); location.reload(); });
  // The address of a view is the hash, which a link to an element would change.
  by("skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
  const theme = by("theme");
  const dress = () => setAttribute(document.documentElement, "data-theme", theme.value === "auto" ? null : theme.value);
  theme.value = localStorage.getItem(THEME) ?? "auto";
  theme.addEventListener("change", () => { localStorage.setItem(THEME, theme.value); dress(); });
  dress();
  setText(by("zone"), zone());
  by("find").addEventListener("submit", (event) => {
    event.preventDefault();
    const id = by("find-id").value.trim();
    if (id) location.hash = `#/requests/${encodeURIComponent(id)}`;
  });
  addEventListener("hashchange", open);
}

frame();
open();
page.live.start();
