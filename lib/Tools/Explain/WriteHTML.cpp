//===- WriteHTML.cpp - An explanation to look at --------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One file that needs no other: a program of some lines zooms into matrices.
//
//===----------------------------------------------------------------------===//

#include "Report.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;
using namespace fovea;
using namespace fovea::explanation;

static constexpr StringLiteral kStyle = R"(
:root { color-scheme: light dark; --paper: #fff; --ink: #222; --soft: #f4f4f4; --line: #ccc; --wrong: #c00000; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #16181b; --ink: #e4e4e4; --soft: #24272b; --line: #484c52; --wrong: #ff7b7b; }
}
body { font: 15px/1.5 sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; color: var(--ink); background: var(--paper); }
h1, h2, p { overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: 7em 1fr; gap: 0.2em 1em; }
dt { font-weight: bold; }
dd { margin: 0; overflow-wrap: anywhere; }
p.wrong { color: var(--wrong); font-weight: bold; }
@media (max-width: 40em) { dl { grid-template-columns: 1fr; } dd { margin-bottom: 0.5em; } }
pre { background: var(--soft); padding: 0.8em; overflow: auto; font-size: 13px; }
.table { overflow-x: auto; }
table { border-collapse: collapse; margin: 0.5em 0; }
th, td { padding: 0.1em 0.8em; border-bottom: 1px solid var(--line); text-align: right; }
summary { cursor: pointer; }
figure { margin: 1em 0; }
figure > svg { max-width: 100%; height: auto; }
svg text { fill: var(--ink); }
svg rect[fill="#fff"] { fill: var(--paper); }
svg rect.ground { fill: var(--soft); }
svg.matrix { cursor: crosshair; }
button { font: inherit; padding: 0 0.7em; }
output { display: block; min-height: 3em; }
.key { display: inline-block; width: 0.8em; height: 0.8em; margin-right: 0.4em; }
)";

/// The frame of a matrix comes right before it; its own box may be larger.
static constexpr StringLiteral kScript = R"(
const facts = JSON.parse(document.getElementById("facts").textContent);
for (const figure of document.querySelectorAll("figure"))
  figure.querySelectorAll("svg.matrix").forEach((svg, sequence) => {
    const operation = facts.operations[figure.dataset.operation], keys = operation.sequences[sequence];
    const frame = svg.previousElementSibling, told = figure.querySelector("output");
    const all = svg.getAttribute("viewBox").split(" ").map(Number);
    let box = [...all];
    const zoom = (factor, at) => {
      for (const axis of [0, 1]) {
        const extent = Math.min(box[axis + 2] * factor, all[axis + 2]);
        box[axis] = Math.min(Math.max(box[axis] + at[axis] * (box[axis + 2] - extent), 0), all[axis + 2] - extent);
        box[axis + 2] = extent;
      }
      svg.setAttribute("viewBox", box.join(" "));
      // Fingers that drag a part of it do not scroll the page.
      svg.style.touchAction = box[2] < all[2] ? "none" : "auto";
    };
    const place = event => {
      const edge = frame.getBoundingClientRect();
      return [(event.clientX - edge.left) / edge.width, (event.clientY - edge.top) / edge.height];
    };
    const tell = event => {
      const [token, query] = place(event).map((part, axis) => Math.floor(box[axis] + part * box[axis + 2]));
      const find = rectangles => (rectangles ?? []).filter(([first, queries, from, tokens]) =>
        first <= query && query < first + queries && from <= token && token < from + tokens);
      const lines = [];
      let count = 0;
      for (const source of operation.sources.filter(source => source.sequence === sequence))
        for (const [, , , , share] of find(source.rectangles)) {
          const row = source.tokens_per_row ? ", key row " + Math.floor(token / source.tokens_per_row) : "";
          lines.push(source.name + ", " + source.kind + row + (share < 1 ? ", " + (100 * share).toFixed(1) + " % of its block" : ""));
          count += 1;
        }
      const faults = ["twice", "never", "ahead"].filter(fault => find(keys[fault + "_rectangles"]).length);
      const often = ["not read", "read once"][count] ?? "read " + count + " times";
      told.textContent = "query " + query + ", token " + token + ": " + often + (lines.length ? " by " + lines.join("; by ") : "")
        + faults.map(fault => fault === "never" ? "; the mask admits it" : fault === "ahead" ? "; the mask does not admit it" : "").join("");
    };
    svg.addEventListener("wheel", event => {
      event.preventDefault();
      zoom(event.deltaY < 0 ? 0.8 : 1.25, place(event));
      tell(event);
    }, { passive: false });
    svg.addEventListener("pointerdown", tell);
    svg.addEventListener("pointermove", event => {
      if (event.buttons) {
        const edge = frame.getBoundingClientRect();
        box[0] -= event.movementX / edge.width * box[2];
        box[1] -= event.movementY / edge.height * box[3];
        zoom(1, [0, 0]);
      }
      tell(event);
    });
    const buttons = figure.querySelectorAll("button");
    buttons[0].addEventListener("click", () => zoom(0.5, [0.5, 0.5]));
    buttons[1].addEventListener("click", () => zoom(2, [0.5, 0.5]));
    buttons[2].addEventListener("click", () => { box = [...all]; zoom(1, [0, 0]); });
  });
)";

static std::string escape(StringRef text) {
  std::string result;
  raw_string_ostream os(result);
  printHTMLEscaped(text, os);
  return result;
}

/// Characters of a module that are shown; some passes make many.
static constexpr size_t kMaxStage = 100000;

static void writeTiles(const OperationReport &operation, raw_ostream &os) {
  const TileList &list = *operation.tiles;
  os << formatv("<details><summary>Tiles: {0:N} tasks of {1:N} queries for "
                "every head, tiles of {2:N} rows</summary>\n",
                list.numTasks, list.queries, list.keys)
     << "<div "
        "class=\"table\"><table><tr><th>queries</th><th>source</th><th>rows</"
        "th>"
        "<th>tiles</th><th>of the entries read</th></tr>\n";
  for (const TaskTiles &task : list.tasks)
    os << formatv("<tr><td>{0} to {1}</td><td><span class=\"key\" "
                  "style=\"background:{2}\"></span>{3}</td><td>{4} to {5}</td>"
                  "<td>{6}</td><td>{7:P1}</td></tr>\n",
                  task.firstQuery, task.endQuery - 1, getColour(task.source),
                  operation.matrix->sources[task.source].name, task.rows.begin,
                  task.rows.end - 1, task.tiles, task.share);
  os << "</table></div>\n";
  if (!list.tasks.empty() &&
      list.tasks.back().endQuery < operation.matrix->numQueries)
    os << formatv("<p>Tasks from query {0} on are left out.</p>\n",
                  list.tasks.back().endQuery);
  os << "</details>\n";
}

static void writeStages(ArrayRef<PassStage> stages, raw_ostream &os) {
  os << "<h2>The module after each pass</h2>\n"
        "<p>Passes that changed nothing are left out.</p>\n";
  for (const PassStage &stage : stages) {
    os << "<details><summary>" << stage.pass << "</summary><pre>";
    printHTMLEscaped(StringRef(stage.ir).take_front(kMaxStage), os);
    if (stage.ir.size() > kMaxStage)
      os << formatv("\n... {0:N} more characters", stage.ir.size() - kMaxStage);
    os << "</pre></details>\n";
  }
}

static void writeFacts(ArrayRef<Fact> facts, raw_ostream &os) {
  os << "<dl>\n";
  for (const Fact &fact : facts)
    os << "<dt>" << fact.label << "</dt><dd>" << escape(fact.text) << "</dd>\n";
  os << "</dl>\n";
}

/// What few patterns want: a token that counts twice, or is seen too early.
static void writeFaults(const OperationReport &operation, raw_ostream &os) {
  for (auto [keys, pairs] :
       zip_equal(operation.matrix->sequences, operation.pairs)) {
    if (!pairs || (pairs->twice == 0 && pairs->ahead == 0))
      continue;
    os << "<p class=\"wrong\" role=\"alert\">" << escape(keys.name) << ": ";
    if (pairs->twice > 0)
      os << formatv("{0:F0} pairs are read twice", pairs->twice);
    if (pairs->twice > 0 && pairs->ahead > 0)
      os << ", ";
    if (pairs->ahead > 0)
      os << formatv("{0:F0} pairs are read ahead of a causal mask",
                    pairs->ahead);
    os << "</p>\n";
  }
}

static void writePicture(const OperationReport &operation, size_t number,
                         raw_ostream &os) {
  writeFaults(operation, os);
  os << formatv("<figure data-operation=\"{0}\">\n", number)
     << "<p><button>closer</button> <button>farther</button> "
        "<button>all</button></p>\n";
  writeSVG(operation, /*marksFaults=*/true, os);
  os << "<output>Point at an entry to see what reads it.</output>\n"
        "</figure>\n";
}

/// For the program of the page; nothing in it ends the element.
static void writeJSONElement(const Report &report, raw_ostream &os) {
  std::string text;
  raw_string_ostream textStream(text);
  textStream << json::Value(makeJSON(report));
  os << "<script type=\"application/json\" id=\"facts\">";
  for (char c : text)
    os << (c == '<' ? StringRef("\\u003c") : StringRef(&c, 1));
  os << "</script>\n";
}

void explanation::writeHTML(const Report &report, raw_ostream &os) {
  std::string name = "@" + escape(report.trace.name);
  os << "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n"
        "<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, "
        "initial-scale=1\">\n<title>"
     << name << "</title>\n<style>" << kStyle << "</style>\n</head>\n<body>\n"
     << "<h1>" << name << "</h1>\n<p>" << escape(describeFunction(report))
     << "</p>\n";
  writeFacts(getFacts(report), os);
  for (auto [number, operation] : enumerate(report.operations)) {
    os << "<h2>" << escape(describePlace(operation)) << "</h2>\n";
    writeFacts(getFacts(operation, report), os);
    if (operation.matrix)
      writePicture(operation, number, os);
    if (operation.tiles)
      writeTiles(operation, os);
  }
  writeStages(report.trace.stages, os);
  writeJSONElement(report, os);
  os << "<script>" << kScript << "</script>\n</body>\n</html>\n";
}
