// Keeps a page of a library up to date: it follows the stream that the page names, and once something happens there it asks for the
// page again and puts the new regions in the place of the old ones.
//
// The stream begins behind the position that the page was made at, so nothing that comes between is missed. It is closed while the
// page is asked for and while nobody looks. What comes from the server is parsed as a document and moved, never written as markup.

import { theme } from "/assets/theme.js";

const REST_MS = 1000; // between two askings, however much happens
const AGAIN_MS = 5000; // after a refusal

const main = document.querySelector("main");
const pill = document.getElementById("live");
const root = document.documentElement;
let source = null;
let waiting = null;
let asked = 0;

function say(text, state) {
  pill.hidden = false;
  pill.textContent = text;
  pill.className = `pill ${state}`;
}

function later(what, milliseconds) {
  clearTimeout(waiting);
  waiting = setTimeout(what, milliseconds);
}

function close() {
  clearTimeout(waiting);
  if (source) source.close();
  source = null;
}

function follow() {
  close();
  source = new EventSource(main.dataset.events);
  source.addEventListener("position", () => { say("live", "good"); root.dataset.state = "live"; });
  for (const kind of ["record", "gap"]) source.addEventListener(kind, changed);
  source.onerror = () => {
    say("not live", "bad");
    if (!source || source.readyState === EventSource.CLOSED) later(refresh, AGAIN_MS);
  };
}

function changed() {
  close();
  later(refresh, Math.max(0, asked + REST_MS - Date.now()));
}

async function refresh() {
  close();
  asked = Date.now();
  const problem = document.getElementById("problem");
  try {
    const answer = await fetch(location.href, { cache: "no-store", headers: { Accept: "text/html" } });
    const next = new DOMParser().parseFromString(await answer.text(), "text/html");
    const said = next.querySelector("main");
    if (!answer.ok || !said) throw new Error(said?.querySelector(".problem:not([hidden])")?.textContent || `status ${answer.status}`);
    replace(next);
    problem.hidden = true;
    if (said.dataset.events) main.dataset.events = said.dataset.events;
    if (!document.hidden) follow();
  } catch (error) {
    say("not live", "bad");
    problem.hidden = false;
    problem.textContent = `What you see is old: ${error.message}`;
    later(refresh, AGAIN_MS);
  }
}

// What somebody chose, opened or has the focus on stays so, by the ids of the elements.
function replace(next) {
  for (const region of document.querySelectorAll("[data-region]")) {
    const made = next.getElementById(region.id);
    if (!made || made.isEqualNode(region)) continue;
    const focus = region.contains(document.activeElement) ? document.activeElement.id : "";
    for (const old of region.querySelectorAll("input[id], details[id]")) {
      const same = made.querySelector(`#${CSS.escape(old.id)}`);
      if (same && old.localName === "details") same.open = old.open;
      else if (same) { same.checked = old.checked; same.value = old.value; }
    }
    const known = new Set([...region.querySelectorAll("[data-key]")].map((one) => one.dataset.key));
    for (const one of made.querySelectorAll("[data-key]")) one.classList.toggle("new", !known.has(one.dataset.key));
    region.replaceChildren(...made.childNodes);
    if (focus) document.getElementById(focus)?.focus({ preventScroll: true });
  }
}

theme();
if (main.dataset.events) {
  say("asking …", "");
  document.addEventListener("visibilitychange", () => { if (document.hidden) { close(); say("paused", ""); } else refresh(); });
  addEventListener("pagehide", close);
  follow();
} else {
  root.dataset.state = "live";
}
