// The description of the API for people: draws /openapi.json. Text goes into the page as text only.

const TITLES = { records: "Books and records", operation: "Cluster and gateway" };

function make(name, attributes = {}, ...children) {
  const found = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) found.setAttribute(key, value);
  found.append(...children.filter((child) => child !== null));
  return found;
}

// Prose of the document: what stands in backticks is code.
function prose(text) {
  const found = make("span");
  (text ?? "").split("`").forEach((part, index) => found.append(index % 2 ? make("code", {}, part) : part));
  return found;
}

const nameOf = (reference) => reference.slice(reference.lastIndexOf("/") + 1);

function kind(schema) {
  if (!schema) return "";
  if (schema.$ref) return make("a", { href: `#${nameOf(schema.$ref)}` }, nameOf(schema.$ref));
  if (schema.anyOf) return joined(schema.anyOf.map(kind), " or ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" or ");
  if (schema.type === "array") return joined(["list of ", kind(schema.items)], "");
  if (schema.additionalProperties && schema.additionalProperties !== true && !schema.properties) {
    return joined(["map to ", kind(schema.additionalProperties)], "");
  }
  return Array.isArray(schema.type) ? schema.type.join(" or ") : (schema.type ?? "anything");
}

function joined(parts, between) {
  const found = make("span");
  parts.forEach((part, index) => { if (index) found.append(between); found.append(part); });
  return found;
}

function rows(titles, list) {
  return make("table", {}, make("thead", {}, make("tr", {}, ...titles.map((title) => make("th", {}, title)))),
    make("tbody", {}, ...list.map((cells) => make("tr", {}, ...cells.map((cell) => make("td", {}, cell))))));
}

function must(name, required) {
  return make("span", {}, make("code", {}, name), ...(required ? [" ", make("span", { class: "required" }, "required")] : []));
}

// A stream has no schema of its own: what it consists of has.
function events(content) {
  if (!content["x-events"]) return null;
  return joined(Object.entries(content["x-events"]).map(([name, one]) => joined([make("code", {}, name), kind(one)], ": ")), ", ");
}

function call(path, method, operation) {
  const body = make("div");
  if (operation.parameters.length) {
    body.append(make("h4", {}, "Parameters"), rows(["Name", "In", "Type", "Meaning"], operation.parameters.map((one) => [
      must(one.name, one.required), one.in, kind(one.schema), prose(one.description)])));
  }
  if (operation.requestBody) {
    body.append(make("h4", {}, "Body"), rows(["Content type", "Type", "Limit"],
      Object.entries(operation.requestBody.content).map(([type, content]) => [
        make("code", {}, type), content.schema.description ? prose(content.schema.description) : kind(content.schema), operation.requestBody.description])));
  }
  body.append(make("h4", {}, "Answers"), rows(["Status", "Content type", "Type", "Meaning"],
    Object.entries(operation.responses).flatMap(([status, response]) => Object.entries(response.content).map(([type, content]) => [
      make("code", {}, status), make("code", {}, type), events(content) ?? kind(content.schema), prose(response.description)]))));
  return make("details", { class: "call", id: operation.operationId },
    make("summary", {}, make("span", { class: `method ${method}` }, method.toUpperCase()), make("span", { class: "path" }, path),
      make("span", { class: "said" }, prose(operation.summary))), body);
}

function schema(name, described) {
  const required = described.required ?? [];
  const fields = Object.entries(described.properties ?? {}).map(([field, one]) => [
    must(field, required.includes(field)), kind(one), prose(one.description)]);
  return make("details", { class: "call", id: name },
    make("summary", {}, make("span", { class: "path" }, name), make("span", { class: "said" }, prose(described.description))),
    make("div", {}, fields.length ? rows(["Field", "Type", "Meaning"], fields) : ""));
}

function open() {
  const named = document.getElementById(location.hash.slice(1));
  if (named?.tagName === "DETAILS") { named.open = true; named.scrollIntoView({ block: "start" }); }
}

async function show() {
  const described = await (await fetch(`${location.origin}/openapi.json`)).json();
  document.getElementById("intro").append(prose(`${described.info.summary} Version ${described.info.version}. ${described.info.description}`));
  const calls = document.getElementById("calls");
  for (const [group, title] of Object.entries(TITLES)) {
    calls.append(make("h2", { class: "group" }, title));
    for (const [path, methods] of Object.entries(described.paths)) {
      for (const [method, operation] of Object.entries(methods)) {
        if (operation.tags.includes(group)) calls.append(call(path, method, operation));
      }
    }
  }
  document.getElementById("schemas").append(...Object.entries(described.components.schemas).map(([name, one]) => schema(name, one)));
  document.documentElement.dataset.state = "live";
  addEventListener("hashchange", open);
  open();
}

show();
