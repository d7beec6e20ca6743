"use strict";
// Attention weights as a heat map or as lines (the paper's figures 3 to 5). Pieces are only set
// as text, never as HTML.
(() => {
  const kinds = JSON.parse(document.getElementById("attention-data").textContent);
  const root = document.getElementById("attention");
  const choose = (name) => root.querySelector(`[data-choose="${name}"]`);
  const part = (name) => root.querySelector(`[data-part="${name}"]`);
  const readout = root.querySelector(".readout");
  const SVG = "http://www.w3.org/2000/svg";
  const GAP = 8, ROW = 22, MIDDLE = 180, ALL = -1, KEYS = "attended token";

  const svg = (name, attributes, text) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const option = (value, text) => {
    const made = document.createElement("option");
    made.value = value;
    made.textContent = text;
    return made;
  };
  // A piece without the mark of a word's beginning, which the drawing would turn into a line.
  const label = (piece) => piece.replaceAll("▁", " ").trim() || "␣";
  // The width of the longest text, in pixels.
  const widest = (texts) => {
    const context = document.createElement("canvas").getContext("2d");
    context.font = "13px system-ui, sans-serif";
    return Math.ceil(Math.max(...texts.map((text) => context.measureText(text).width)));
  };
  const chosen = () => ({
    kind: kinds[Number(choose("kind").value)],
    layer: Number(choose("layer").value),
    head: Number(choose("head").value),
  });
  // A head's weights, or the mean of all heads, in thousandths.
  const weights = ({ kind, layer, head }) => {
    const heads = kind.layers[layer];
    if (head !== ALL) return heads[head];
    return heads[0].map((_, i) => heads.reduce((sum, one) => sum + one[i], 0) / heads.length);
  };
  const opacity = (weight) => (weight / 1000).toFixed(3);
  const say = (query, key, weight) => {
    readout.textContent = `${label(query)} → ${label(key)}: ${(weight / 1000).toFixed(3)}`;
  };

  const heatMap = () => {
    const { kind, layer, head } = chosen();
    const { queries, keys } = kind;
    const values = weights({ kind, layer, head });
    const axis = kind.axis.split(" "); // a word a line, in the corner
    const left = widest([...queries.map(label), ...axis]) + GAP;
    const top = Math.max(widest(keys.map(label)), axis.length * 16) + 16 + GAP;
    const cell = Math.max(20, Math.min(48, Math.floor((root.clientWidth - left - 2) / keys.length)));
    const width = left + Math.max(keys.length * cell, widest([KEYS])) + 2, height = top + queries.length * cell + 2;
    const drawing = svg("svg", { width, height, role: "img" });
    drawing.append(svg("text", { class: "axis", x: left, y: 12 }, KEYS));
    axis.forEach((word, i) => {
      const y = top - GAP / 2 - (axis.length - 1 - i) * 16;
      drawing.append(svg("text", { class: "axis", x: left - GAP, y, "text-anchor": "end" }, word));
    });
    drawing.append(svg("rect", { class: "frame", x: left, y: top, width: keys.length * cell, height: queries.length * cell }));
    keys.forEach((piece, j) => {
      const x = left + (j + 0.5) * cell + 4;
      drawing.append(svg("text", { transform: `translate(${x} ${top - GAP / 2}) rotate(-90)` }, label(piece)));
    });
    queries.forEach((piece, i) => {
      const y = top + (i + 0.5) * cell + 4;
      drawing.append(svg("text", { x: left - GAP / 2, y, "text-anchor": "end" }, label(piece)));
      keys.forEach((_, j) => {
        const weight = values[i * keys.length + j];
        const square = svg("rect", {
          class: "cell", x: left + j * cell, y: top + i * cell, width: cell - 1, height: cell - 1,
          "fill-opacity": opacity(weight), "data-query": i, "data-key": j,
        });
        drawing.append(square);
      });
    });
    const point = (event) => {
      const { query, key } = event.target.dataset || {};
      if (query === undefined) return;
      drawing.querySelector(".chosen")?.classList.remove("chosen");
      event.target.classList.add("chosen");
      say(queries[query], keys[key], values[query * keys.length + Number(key)]);
    };
    drawing.addEventListener("pointerover", point);
    drawing.addEventListener("click", point);
    return drawing;
  };

  const lines = () => {
    const { kind, layer, head } = chosen();
    const { queries, keys, axis } = kind;
    const values = weights({ kind, layer, head });
    const left = Math.max(widest(queries.map(label)), widest([axis]) - MIDDLE / 2) + GAP, right = left + MIDDLE;
    const width = right + widest([...keys.map(label), KEYS]) + GAP;
    const height = (Math.max(queries.length, keys.length) + 1) * ROW;
    const drawing = svg("svg", { width, height, role: "img" });
    const middle = (i) => (i + 1.5) * ROW;
    const strokes = svg("g", {});
    const stroke = (only) => {
      const drawn = [];
      values.forEach((weight, n) => {
        const i = Math.floor(n / keys.length);
        if (weight < 20 || (only !== null && i !== only)) return;
        drawn.push(svg("line", {
          x1: left, y1: middle(i), x2: right, y2: middle(n % keys.length), "stroke-opacity": opacity(weight),
        }));
      });
      strokes.replaceChildren(...drawn);
    };
    drawing.append(svg("text", { class: "axis", x: 0, y: 14 }, axis), svg("text", { class: "axis", x: right + GAP / 2, y: 14 }, KEYS));
    drawing.append(strokes);
    queries.forEach((piece, i) => {
      const text = svg("text", { x: left - GAP / 2, y: middle(i) + 4, "text-anchor": "end" }, label(piece));
      const point = () => {
        stroke(i);
        const own = values.slice(i * keys.length, (i + 1) * keys.length);
        const best = own.indexOf(Math.max(...own));
        say(piece, keys[best], own[best]);
      };
      text.addEventListener("pointerenter", point);
      text.addEventListener("click", point);
      drawing.append(text);
    });
    keys.forEach((piece, j) => drawing.append(svg("text", { x: right + GAP / 2, y: middle(j) + 4 }, label(piece))));
    drawing.addEventListener("pointerleave", () => stroke(null));
    stroke(null);
    return drawing;
  };

  // A thumbnail of every layer and head; a click selects one.
  const overview = () => {
    const { kind, layer, head } = chosen();
    const heads = kind.layers[0].length;
    const grid = part("overview");
    grid.style.gridTemplateColumns = `auto repeat(${heads}, auto)`;
    const text = (textContent) => Object.assign(document.createElement("span"), { textContent });
    const found = [text(""), ...Array.from({ length: heads }, (_, h) => text(`head ${h + 1}`))];
    const colour = getComputedStyle(root).getPropertyValue("--weight");
    kind.layers.forEach((ofLayer, l) => {
      found.push(text(`layer ${l + 1}`));
      ofLayer.forEach((values, h) => {
        const button = Object.assign(document.createElement("button"), { type: "button" });
        button.setAttribute("aria-label", `layer ${l + 1}, head ${h + 1}`);
        button.setAttribute("aria-pressed", String(l === layer && h === head));
        const canvas = document.createElement("canvas");
        canvas.width = kind.keys.length;
        canvas.height = kind.queries.length;
        const context = canvas.getContext("2d");
        context.fillStyle = colour;
        values.forEach((weight, i) => {
          context.globalAlpha = opacity(weight);
          context.fillRect(i % canvas.width, Math.floor(i / canvas.width), 1, 1);
        });
        button.append(canvas);
        button.addEventListener("click", () => {
          choose("layer").value = l;
          choose("head").value = h;
          draw();
        });
        found.push(button);
      });
    });
    grid.replaceChildren(...found);
  };

  const draw = () => {
    part("drawing").replaceChildren(choose("view").value === "lines" ? lines() : heatMap());
    overview();
  };
  const begin = () => {
    const { layers } = kinds[Number(choose("kind").value)];
    choose("layer").replaceChildren(...layers.map((_, l) => option(l, String(l + 1))));
    choose("layer").value = layers.length - 1;
    choose("head").replaceChildren(
      option(ALL, "all (mean)"), ...layers[0].map((_, h) => option(h, String(h + 1))),
    );
    draw();
  };

  choose("kind").append(...kinds.map(({ name }, k) => option(k, name)));
  choose("kind").addEventListener("change", begin);
  for (const name of ["layer", "head", "view"]) choose(name).addEventListener("change", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  addEventListener("resize", draw); // the squares are as large as the width allows
  root.hidden = false;
  begin();
})();
