// The status page: asks /v1/status every two seconds while it is seen, and draws the answer.
//
// Text goes into the page as text only, never as markup: names and errors come from other machines.

import { theme } from "/assets/theme.js";

const EVERY_MS = 2000;
const SLOTS = 1024;
const COLOURS = 8;
const SVG = "http://www.w3.org/2000/svg";

const byId = (id) => document.getElementById(id);
const whole = new Intl.NumberFormat("en");
const count = (value) => (value === null ? "–" : whole.format(value));

function rate(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 100000) return new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(value);
  return new Intl.NumberFormat("en", { maximumFractionDigits: value < 10 ? 1 : 0 }).format(value);
}

function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) { value /= 1000; unit += 1; }
  return `${value >= 100 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

function span(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

function make(name, attributes = {}, ...children) {
  const found = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) found.setAttribute(key, value);
  found.append(...children.filter((child) => child !== null));
  return found;
}

function draw(name, attributes, ...children) {
  const found = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) found.setAttribute(key, value);
  found.append(...children);
  return found;
}

const colour = (log) => `log-${log % COLOURS}`;

// -- charts

// The scale ends at the next of 1, 2, 5, 10 … above what is drawn, so that its label is a round number.
function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value * (1 - 1e-9));
}

// A line of each list of values, the first one filled; `least` is the shortest scale.
function chart(series, ages, label, { unit, show = rate, least = 1 }) {
  const span_s = Math.max(ages[0] ?? 0, 20);
  const known = series.flat().filter((value) => value !== null);
  const most = Math.max(...known, 0);
  const top = roundUp(Math.max(most, least));
  const x = (index) => (100 * (1 - ages[index] / span_s)).toFixed(2);
  const y = (value) => (40 - (40 * value) / top).toFixed(2);
  const drawn = draw("svg", { viewBox: "0 0 100 40", preserveAspectRatio: "none", "aria-hidden": "true" },
    draw("path", { class: "grid", d: "M0 0.01H100M0 20H100M0 39.99H100" }));
  series.forEach((values, number) => {
    let line = "";
    let area = "";
    let first = null;
    const close = (last) => { if (first !== null) area += `L${x(last)} 40L${x(first)} 40Z`; first = null; };
    values.forEach((value, index) => {
      if (value === null) { close(index - 1); return; }
      const point = `${x(index)} ${y(value)}`;
      // A value with gaps on both sides would be no line: it gets a short one.
      const alone = first === null && (values[index + 1] ?? null) === null;
      area += first === null ? `M${point}` : `L${point}`;
      line += first === null ? `M${point}${alone ? "h0.6" : ""}` : `L${point}`;
      if (first === null) first = index;
    });
    close(values.length - 1);
    if (number === 0) drawn.append(draw("path", { class: "spark-area", d: area }));
    drawn.append(draw("path", { class: number === 0 ? "spark-line" : "spark-line second", d: line }));
  });
  const said = known.length ? `${label}: most ${show(most)} ${unit} in the last ${span(span_s)}` : `${label}: not known`;
  return make("figure", { class: "chart", role: "img", "aria-label": said, title: said },
    make("div", { class: "plot" }, drawn, make("div", { class: "levels" }, make("span", {}, show(top)), make("span", {}, "0"))),
    make("figcaption", { class: "times" }, make("span", {}, `${span(span_s)} ago`), make("span", {}, "now")));
}

const last = (values) => (values.length ? values[values.length - 1] : null);

function card(title, value, unit, more, figure, warn = false) {
  return make("div", { class: warn ? "card warn" : "card" }, make("h3", {}, title),
    make("div", { class: "value" }, value, make("small", {}, unit), more ? make("small", { class: "more" }, more) : null), figure);
}

function rateCard(title, unit, values, ages, warn = false) {
  return card(title, rate(last(values)), unit, "", chart([values], ages, title, { unit }), warn);
}

function milliseconds(value) {
  if (value === null || value === undefined) return "–";
  return new Intl.NumberFormat("en", { maximumSignificantDigits: value < 100 ? 2 : 3, useGrouping: true }).format(value);
}

function latencyCard(title, found, ages) {
  const p99 = last(found.p99_ms);
  return card(title, milliseconds(last(found.p50_ms)), "ms median", p99 === null ? "" : `99 % in ${milliseconds(p99)} ms`,
    chart([found.p50_ms, found.p99_ms], ages, `${title}, median and 99 %`, { unit: "ms", show: milliseconds, least: 0.1 }));
}

function drawRates(history) {
  const ages = history.ages_s;
  const lag = history.lag_entries;
  byId("rates").replaceChildren(
    rateCard("Records ordered", "/s", history.records_per_s, ages),
    rateCard("Cuts", "/s", history.cuts_per_s, ages),
    latencyCard("Ack latency", history.acks, ages),
    rateCard("Index lag", "entries", lag, ages, (last(lag) ?? 0) > 100),
    rateCard("Requests here", "/s", history.requests_per_s, ages),
    latencyCard("Latency here", history.answers, ages),
  );
}

// -- slots

function drawSlots(slots) {
  if (!slots.length) {
    byId("slots").replaceChildren(make("p", { class: "empty" }, "Which log has which slots is not known."));
    return;
  }
  const strip = draw("svg", { viewBox: `0 0 ${SLOTS} 10`, preserveAspectRatio: "none", role: "img",
    "aria-label": slots.map((one) => `slots ${one.first} to ${one.last}: log ${one.log}`).join("; ") });
  for (const one of slots) {
    const range = one.first === one.last ? `slot ${one.first}` : `slots ${one.first}–${one.last}`;
    strip.append(draw("rect", { class: colour(one.log), x: one.first, y: 0, width: one.last - one.first + 1, height: 10,
      "data-log": one.log }, draw("title", {}, `log ${one.log}: ${range}`)));
  }
  const scale = make("div", { class: "scale" }, ...[0, 256, 512, 768, 1023].map((slot) => make("span", {}, String(slot))));
  byId("slots").replaceChildren(strip, scale);
}

// -- tables

function table(id, columns, rows, nothing) {
  if (!rows.length) {
    byId(id).replaceChildren(make("p", { class: "empty" }, nothing));
    return;
  }
  const head = make("tr", {}, ...columns.map(([title, kind]) => make("th", { class: kind }, title)));
  const body = rows.map((cells) => make("tr", {}, ...cells.map((cell, index) => {
    const [title, kind] = columns[index];
    return make("td", { class: kind, "data-label": title }, ...(cell === null ? [] : [cell]));
  })));
  byId(id).replaceChildren(make("table", { class: "parts" }, make("thead", {}, head), make("tbody", {}, ...body)));
}

function named(part, kind = "") {
  const state = part.up ? kind : "down";
  const said = part.up ? (kind === "idle" ? "stands by" : "up") : "down";
  return make("span", {}, make("span", { class: `dot ${state}`, role: "img", "aria-label": said, title: said }),
    make("code", {}, part.address || "no address"), " ", part.name ? make("span", { class: "id", title: part.name }, part.name.slice(0, 8)) : null);
}

const wrong = (part) => (part.problem ? make("span", { class: part.up ? "warned" : "wrong" }, part.problem) : null);

function note(id, parts, more = "") {
  const up = parts.filter((part) => part.up).length;
  byId(`${id}-note`).textContent = parts.length ? `${up} of ${parts.length} up${more}` : "";
}

function drawLogs(cluster) {
  const serving = new Map(cluster.sequencers.filter((one) => one.up && one.term !== null).map((one) => [`${one.log}/${one.term}`, one]));
  const rows = cluster.logs.map((log) => {
    const sequencer = serving.get(`${log.log}/${log.term}`);
    const who = log.term === null ? make("span", { class: "sub" }, "no term yet")
      : sequencer ? make("code", {}, sequencer.address)
        : make("span", { class: "wrong" }, `${log.sequencer.slice(0, 8)} does not serve it`);
    return [
      make("span", {}, make("span", { class: `chip ${log.slots ? colour(log.log) : "log-none"}` }), `Log ${log.log}`),
      count(log.slots), count(log.term), sequencer ? count(sequencer.entries) : "–",
      sequencer ? count(sequencer.end_position) : "–", count(log.metalog_ledger), who,
    ];
  });
  table("logs", [["Log", "main"], ["Slots", "number"], ["Term", "number"], ["Metalog entries", "number"],
    ["Position", "number"], ["Metalog ledger", "number"], ["Sequencer", "wide"]], rows,
  "The view is not known: no metadata store could be asked.");
  byId("slots-note").textContent = cluster.logs.length ? `${count(SLOTS)} slots on ${cluster.logs.filter((log) => log.slots).length}` : "";
}

function drawEngines(engines) {
  note("engines", engines);
  table("engines", [["Engine", "main"], ["Term and position by log", "wide"], ["Lag", "number"], ["Records", "number"], ["Books", "number"], ["Index", "number"], ["Cache", "number"], ["", "wide bare"]],
  engines.map((one) => [named(one, one.up && !one.ready ? "warn" : ""), ...(one.up ? [
    make("span", { class: "logs" }, ...one.logs.map(follows)), lag(one), count(one.records), count(one.books), bytes(one.index_bytes), bytes(one.cache_bytes),
  ] : Array(6).fill(null)), wrong(one) ?? (one.up && !one.ready ? make("span", { class: "warned" }, "catching up") : null)]),
  "No engine is known.");
}

function follows(log) {
  const lag = log.lag_entries === null ? "lag unknown" : `lag ${count(log.lag_entries)}`;
  return make("span", { class: "log", title: `log ${log.log}: term ${log.term}, position ${count(log.position)}, ${lag}` },
    make("span", { class: `chip ${colour(log.log)}` }), `${log.term} · ${count(log.position)}`);
}

function lag(engine) {
  if (engine.lag_entries === null) return make("span", { class: "sub" }, "?");
  return engine.lag_entries > 100 ? make("span", { class: "warned" }, count(engine.lag_entries)) : count(engine.lag_entries);
}

function drawSequencers(sequencers) {
  const idle = sequencers.filter((one) => one.up && one.term === null).length;
  note("sequencers", sequencers, idle ? `, ${idle} standing by` : "");
  table("sequencers", [["Sequencer", "main"], ["Serves", ""], ["Term", "number"], ["Entries", "number"], ["Shards", "number"],
    ["Engines follow", "number"], ["", "wide bare"]],
  sequencers.map((one) => one.up && one.term !== null ? [
    named(one), make("span", {}, make("span", { class: `chip ${colour(one.log)}` }), `log ${one.log}`), count(one.term),
    count(one.entries), count(one.shards), count(one.subscribers), wrong(one),
  ] : [named(one, "idle"), one.up ? make("span", { class: "sub" }, one.log === null ? "stands by" : `stands by for log ${one.log}`) : null,
    null, null, null, null, wrong(one)]),
  "No sequencer is known.");
}

function drawBookies(bookies) {
  note("bookies", bookies);
  table("bookies", [["Bookie", "main"], ["Free", "number"], ["Disk", "disk"], ["State", "wide bare"]], bookies.map((one) => [
    named(one, one.read_only ? "warn" : ""), one.free_bytes === null ? null : bytes(one.free_bytes), disk(one),
    wrong(one) ?? make("span", { class: one.read_only ? "warned" : "sub" }, one.read_only ? "read only" : "takes writes"),
  ]), "No bookie is known.");
}

// What it holds, of what it holds and what is free: others may use the same disk.
function disk(bookie) {
  if (bookie.free_bytes === null || !bookie.total_bytes) return null;
  const held = bookie.total_bytes - bookie.free_bytes;
  const part = Math.round((100 * held) / bookie.total_bytes);
  const said = `${bytes(held)} held, ${bytes(bookie.free_bytes)} free`;
  return make("span", { class: "held", title: said }, make("meter", { min: 0, max: 100, high: 90, optimum: 0, value: part, "aria-label": said }),
    make("span", { class: "sub" }, `${bytes(held)} held`));
}

function drawFaults(faults) {
  byId("faults").hidden = !faults.length;
  byId("faults").replaceChildren(...faults.map((fault) => make("li", {}, fault)));
}

function drawControllers(controllers) {
  byId("controllers-panel").hidden = !controllers.length;
  note("controllers", controllers);
  table("controllers", [["Controller", "main"], ["State", "wide bare"]], controllers.map((one) => [
    named(one, one.leader ? "" : "idle"), wrong(one) ?? make("span", { class: "sub" }, one.leader ? "leads" : "stands by"),
  ]), "");
}

// -- the whole

function drawSummary(cluster) {
  const parts = [...cluster.engines, ...cluster.sequencers, ...cluster.bookies, ...cluster.controllers];
  const down = parts.filter((part) => !part.up).length;
  const homeless = cluster.logs.filter((log) => log.slots && !cluster.sequencers.some(
    (one) => one.up && one.log === log.log && one.term === log.term && log.term !== null)).length;
  const faults = [];
  if (homeless) faults.push(`${homeless} ${homeless === 1 ? "log" : "logs"} without a sequencer`);
  if (down) faults.push(`${down} of ${parts.length} down`);
  const others = cluster.faults.length - faults.length;
  if (!faults.length && others > 0) faults.push(others === 1 ? "1 fault" : `${others} faults`);
  const pill = byId("summary");
  pill.textContent = faults.length ? faults.join(", ") : parts.length ? `all ${parts.length} up` : "nothing known";
  pill.className = `pill ${faults.length || !parts.length ? "bad" : "good"}`;
  document.title = faults.length ? `(${faults.join(", ")}) Boki` : "Boki";
}

function drawAll(status) {
  const { cluster, gateway, history } = status;
  drawSummary(cluster);
  byId("problem").hidden = !cluster.problem;
  byId("problem").textContent = cluster.problem;
  drawFaults(cluster.faults);
  drawRates(history);
  drawSlots(cluster.slots);
  drawLogs(cluster);
  drawEngines(cluster.engines);
  drawSequencers(cluster.sequencers);
  drawBookies(cluster.bookies);
  drawControllers(cluster.controllers);
  byId("foot").textContent = `Gateway ${gateway.version}, up for ${span(gateway.uptime_s)}, ${count(gateway.requests)} requests, `
    + `${count(gateway.streams)} open streams.`;
}

async function ask() {
  try {
    const answer = await fetch(`${location.origin}/v1/status`, { cache: "no-store" });
    const body = await answer.json();
    if (!answer.ok) throw new Error(body.message);
    drawAll(body);
    document.documentElement.dataset.state = "live";
  } catch (error) {
    document.documentElement.dataset.state = "stale";
    byId("problem").hidden = false;
    byId("problem").textContent = `The gateway does not answer, what you see is old: ${error.message}`;
    byId("summary").textContent = "gateway away";
    byId("summary").className = "pill bad";
  }
}

async function watch() {
  if (!document.hidden) await ask();
  setTimeout(watch, EVERY_MS);
}

theme();
document.addEventListener("visibilitychange", () => { if (!document.hidden) ask(); });
watch();
