"use strict";
// All sentences: search, sort, and one page of them at a time. Text from files is only set as
// text, never as HTML.
(() => {
  const PAGE = 50;
  const data = JSON.parse(document.getElementById("sentences-data").textContent);
  const root = document.getElementById("sentences");
  const part = (name) => root.querySelector(`[data-part="${name}"]`);
  const { source, references, systems } = data;
  const several = systems.length > 1;
  const total = systems[0].lines.length;

  const words = (text) => text.split(/\s+/).filter(Boolean).length;
  const length = (i) => words((source || references[0])[i]);
  const orders = [{ name: "line", key: (i) => i }];
  for (const { letter, chrf } of systems) {
    const suffix = several ? ` of ${letter}` : "";
    orders.push({ name: `chrF2${suffix}, lowest first`, key: (i) => chrf[i] });
    orders.push({ name: `chrF2${suffix}, highest first`, key: (i) => -chrf[i] });
  }
  for (const { letter, chrf } of systems.slice(1)) {
    const base = systems[0];
    orders.push({ name: `${letter} better than ${base.letter}`, key: (i) => base.chrf[i] - chrf[i] });
    orders.push({ name: `${letter} worse than ${base.letter}`, key: (i) => chrf[i] - base.chrf[i] });
  }
  orders.push({ name: "length, shortest first", key: length });
  orders.push({ name: "length, longest first", key: (i) => -length(i) });

  const columns = [...(source ? [source] : []), ...references, ...systems.map((s) => s.lines)];
  let folded = null; // all texts of a line in lower case, computed at the first search
  const all = Array.from({ length: total }, (_, i) => i);
  let sorted = all, shown = all, first = 0, query = "";

  const element = (name, text, style) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (style) made.className = style;
    return made;
  };

  // A cell with its text, in which the search term is marked.
  const cell = (text, style) => {
    const made = element("dd", undefined, style);
    made.dir = "auto";
    const lower = text.toLowerCase();
    // Lower-casing can change the length (İ): then positions in the two texts differ.
    if (!query || lower.length !== text.length) {
      made.textContent = text;
      return made;
    }
    let from = 0;
    for (let at = lower.indexOf(query); at >= 0; at = lower.indexOf(query, from)) {
      made.append(text.slice(from, at), element("mark", text.slice(at, at + query.length)));
      from = at + query.length;
    }
    made.append(text.slice(from));
    return made;
  };

  const row = (i) => {
    const article = element("article");
    const list = element("dl", undefined, "lines");
    list.append(element("dt", String(i + 1)), cell(source ? source[i] : "", "source"));
    for (const lines of references) list.append(element("dt", "ref"), cell(lines[i]));
    systems.forEach(({ letter, lines, chrf }, number) => {
      const term = element("dt");
      term.append(element("span", "", `swatch series-${number + 1}`));
      term.append(`${several ? letter : "out"} chrF2 `, element("small", chrf[i].toFixed(1)));
      list.append(term, cell(lines[i]));
    });
    article.append(list);
    return article;
  };

  const draw = () => {
    part("rows").replaceChildren(...shown.slice(first, first + PAGE).map(row));
    const last = Math.min(first + PAGE, shown.length);
    const range = shown.length ? `${(first + 1).toLocaleString("en")}–${last.toLocaleString("en")} of ` : "";
    part("place").textContent = `${range}${shown.length.toLocaleString("en")}`;
    part("previous").disabled = first === 0;
    part("next").disabled = last >= shown.length;
  };

  const search = () => {
    query = part("search").value.trim().toLowerCase();
    if (query && !folded) folded = all.map((i) => columns.map((c) => c[i]).join("\n").toLowerCase());
    shown = query ? sorted.filter((i) => folded[i].includes(query)) : sorted;
    first = 0;
    draw();
  };

  const sort = () => {
    const keys = all.map(orders[part("sort").selectedIndex].key);
    sorted = all.slice().sort((a, b) => keys[a] - keys[b] || a - b);
    search();
  };

  const turn = (by) => {
    first += by;
    draw();
    root.scrollIntoView();
  };

  let waiting;
  part("sort").append(...orders.map(({ name }) => element("option", name)));
  part("sort").addEventListener("change", sort);
  part("search").addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(search, 150);
  });
  part("previous").addEventListener("click", () => turn(-PAGE));
  part("next").addEventListener("click", () => turn(PAGE));
  root.hidden = false;
  draw();
})();
