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
body { font: 15px/1.5 sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em; color: #222; }
pre { background: #f4f4f4; padding: 0.8em; overflow: auto; font-size: 13px; }
table { border-collapse: collapse; margin: 0.5em 0; }
th, td { padding: 0.1em 0.8em; border-bottom: 1px solid #ddd; text-align: right; }
summary { cursor: pointer; }
svg { max-width: 100%; height: auto; }
svg.matrix { cursor: zoom-in; }
.key { display: inline-block; width: 0.8em; height: 0.8em; margin-right: 0.4em; }
)";

/// The frame of a matrix comes right before it; its own box may be larger.
static constexpr StringLiteral kScript = R"(
for (const svg of document.querySelectorAll("svg.matrix")) {
  const frame = svg.previousElementSibling;
  const all = svg.getAttribute("viewBox").split(" ").map(Number);
  let box = [...all];
  const show = () => {
    for (const axis of [0, 1]) {
      box[axis + 2] = Math.min(box[axis + 2], all[axis + 2]);
      box[axis] = Math.min(Math.max(box[axis], 0), all[axis + 2] - box[axis + 2]);
    }
    svg.setAttribute("viewBox", box.join(" "));
  };
  svg.addEventListener("wheel", event => {
    event.preventDefault();
    const place = frame.getBoundingClientRect();
    const at = [(event.clientX - place.left) / place.width, (event.clientY - place.top) / place.height];
    const factor = event.deltaY < 0 ? 0.8 : 1.25;
    for (const axis of [0, 1]) {
      box[axis] += at[axis] * box[axis + 2] * (1 - factor);
      box[axis + 2] *= factor;
    }
    show();
  }, { passive: false });
  svg.addEventListener("pointermove", event => {
    if (!event.buttons) return;
    const place = frame.getBoundingClientRect();
    box[0] -= event.movementX / place.width * box[2];
    box[1] -= event.movementY / place.height * box[3];
    show();
  });
  svg.addEventListener("dblclick", () => { box = [...all]; show(); });
}
)";

/// Characters of a module that are shown; some passes make many.
static constexpr size_t kMaxStage = 100000;

static void writeTiles(const OperationReport &operation, raw_ostream &os) {
  const TileList &list = *operation.tiles;
  os << formatv("<details><summary>Tiles: {0:N} tasks of {1:N} queries for "
                "every head, tiles of {2:N} rows</summary>\n",
                list.numTasks, list.queries, list.keys)
     << "<table><tr><th>queries</th><th>source</th><th>rows</th>"
        "<th>tiles</th><th>of the entries read</th></tr>\n";
  for (const TaskTiles &task : list.tasks)
    os << formatv("<tr><td>{0} to {1}</td><td><span class=\"key\" "
                  "style=\"background:{2}\"></span>{3}</td><td>{4} to {5}</td>"
                  "<td>{6}</td><td>{7:P1}</td></tr>\n",
                  task.firstQuery, task.endQuery - 1, getColour(task.source),
                  operation.matrix->sources[task.source].name, task.rows.begin,
                  task.rows.end - 1, task.tiles, task.share);
  os << "</table>\n";
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

void explanation::writeHTML(const Report &report, raw_ostream &os) {
  os << "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n"
        "<meta charset=\"utf-8\">\n<title>@";
  printHTMLEscaped(report.trace.name, os);
  os << "</title>\n<style>" << kStyle << "</style>\n</head>\n<body>\n<h1>@";
  printHTMLEscaped(report.trace.name, os);
  os << "</h1>\n<pre>";
  std::string text;
  raw_string_ostream textStream(text);
  writeText(report, textStream);
  printHTMLEscaped(text, os);
  os << "</pre>\n";
  for (const OperationReport &operation : report.operations) {
    if (!operation.matrix)
      continue;
    os << "<h2>" << operation.name << "</h2>\n"
       << "<p>Turn the wheel to zoom, drag to move, click twice to see all."
          "</p>\n";
    writeSVG(operation, os);
    if (operation.tiles)
      writeTiles(operation, os);
  }
  writeStages(report.trace.stages, os);
  os << "<script>" << kScript << "</script>\n</body>\n</html>\n";
}
