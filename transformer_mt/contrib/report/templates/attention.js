"use strict";
// Attention weights as a heat map or as lines (the paper's figures 3 to 5). Pieces are only set
// as text, never as HTML.
(() => {
  const { kinds } = JSON.parse(document.getElementById("attention-data").textContent);
  const root = document.getElementById("attention");
  const choose = (name) => root.querySelector(`[data-choose="${name}"]`);
  const part = (name) => root.querySelector(`[data-part="${name}"]`);
  const readout = root.querySelector(".readout");
  const SVG = "http://www.w3.org/2000/svg";
  const CELL = 20, GAP = 8, ROW = 22, MIDDLE = 180, ALL = -1;
  const COLOURS = 5; // number of --series-N colours in page.css

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
  // The width of the longest piece, in pixels.
  const widest = (pieces) => {
    const context = document.createElement("canvas").getContext("2d");
    context.font = "13px system-ui, sans-serif";
    return Math.ceil(Math.max(...pieces.map((piece) => context.measureText(piece).width)));
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
  // Square root, so that a weight of 0.1 is still visible next to one of 1.
  const opacity = (weight) => Math.sqrt(weight / 1000).toFixed(3);
  const say = (query, key, weight) => {
    readout.textContent = `${query} → ${key}: ${(weight / 1000).toFixed(3)}`;
  };

  const heatMap = () => {
    const { kind, layer, head } = chosen();
    const { queries, keys } = kind;
    const values = weights({ kind, layer, head });
    const left = widest(queries) + GAP, top = widest(keys) + GAP;
    const width = left + keys.length * CELL + 2, height = top + queries.length * CELL + 2;
    const drawing = svg("svg", { width, height, role: "img" });
    drawing.append(svg("rect", { class: "frame", x: left, y: top, width: keys.length * CELL, height: queries.length * CELL }));
    keys.forEach((piece, j) => {
      const x = left + (j + 0.5) * CELL + 4;
      drawing.append(svg("text", { transform: `translate(${x} ${top - GAP / 2}) rotate(-90)` }, piece));
    });
    queries.forEach((piece, i) => {
      const y = top + (i + 0.5) * CELL + 4;
      drawing.append(svg("text", { x: left - GAP / 2, y, "text-anchor": "end" }, piece));
      keys.forEach((_, j) => {
        const weight = values[i * keys.length + j];
        const square = svg("rect", {
          class: "cell", x: left + j * CELL, y: top + i * CELL, width: CELL - 1, height: CELL - 1,
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
    const { queries, keys } = kind;
    const heads = head === ALL ? kind.layers[layer].map((_, h) => h) : [head];
    const left = widest(queries) + GAP, right = left + MIDDLE;
    const height = Math.max(queries.length, keys.length) * ROW;
    const drawing = svg("svg", { width: right + widest(keys) + GAP, height, role: "img" });
    const middle = (i) => (i + 0.5) * ROW;
    const strokes = svg("g", {});
    const stroke = (only) => {
      const drawn = [];
      for (const h of heads) {
        const values = kind.layers[layer][h];
        const colour = `var(--series-${head === ALL ? (h % COLOURS) + 1 : 1})`;
        queries.forEach((_, i) => {
          if (only !== null && i !== only) return;
          keys.forEach((_, j) => {
            const weight = values[i * keys.length + j] / 1000;
            if (weight < 0.02) return;
            drawn.push(svg("line", {
              x1: left, y1: middle(i), x2: right, y2: middle(j), stroke: colour, "stroke-opacity": weight.toFixed(3),
            }));
          });
        });
      }
      strokes.replaceChildren(...drawn);
    };
    drawing.append(strokes);
    queries.forEach((piece, i) => {
      const label = svg("text", { x: left - GAP / 2, y: middle(i) + 4, "text-anchor": "end" }, piece);
      const point = () => {
        stroke(i);
        const values = weights({ kind, layer, head }).slice(i * keys.length, (i + 1) * keys.length);
        const best = values.indexOf(Math.max(...values));
        say(piece, keys[best], values[best]);
      };
      label.addEventListener("pointerenter", point);
      label.addEventListener("click", point);
      drawing.append(label);
    });
    keys.forEach((piece, j) => drawing.append(svg("text", { x: right + GAP / 2, y: middle(j) + 4 }, piece)));
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
    const label = (text) => Object.assign(document.createElement("span"), { textContent: text });
    const found = [label(""), ...Array.from({ length: heads }, (_, h) => label(`head ${h + 1}`))];
    const colour = getComputedStyle(root).getPropertyValue("--accent");
    kind.layers.forEach((ofLayer, l) => {
      found.push(label(`layer ${l + 1}`));
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
  root.hidden = false;
  begin();
})();
