//===- WriteSVG.cpp - Pictures of score matrices --------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Queries go down and tokens to the right, in a frame for each sequence of
// keys. Inside a frame, coordinates are numbers of queries and tokens.
//
//===----------------------------------------------------------------------===//

#include "Report.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;
using namespace fovea;
using namespace fovea::explanation;

/// Colours that people with any kind of colour vision tell apart.
static constexpr StringLiteral kColours[] = {"#0072b2", "#e69f00", "#009e73",
                                             "#cc79a7", "#56b4e9", "#d55e00",
                                             "#f0e442", "#555555"};

StringRef explanation::getColour(size_t source) {
  return kColours[source % std::size(kColours)];
}

/// Of entries with which something is wrong.
static constexpr StringLiteral kTwice = "#e00000", kAhead = "#ff00ff",
                               kNever = "#ff9d9d";
static constexpr StringLiteral kReadTwice = "read twice",
                               kReadAhead = "read ahead of a causal mask",
                               kNeverRead = "admitted by the mask, never read";

/// Extents of a picture, in pixels.
static constexpr double kSide = 480, kLeast = 48, kMargin = 28, kLine = 18;

static std::string escape(StringRef text) {
  std::string result;
  raw_string_ostream os(result);
  printHTMLEscaped(text, os);
  return result;
}

namespace {
struct LegendLine {
  /// Empty for a remark.
  StringRef colour;
  std::string text;
};

class Picture {
public:
  Picture(const OperationReport &operation, bool marksFaults, raw_ostream &os)
      : matrix(*operation.matrix), drawing(operation.drawing),
        marksFaults(marksFaults), os(os) {
    int64_t longest = matrix.numQueries;
    for (const KeySequence &keys : matrix.sequences)
      longest = std::max(longest, keys.length);
    scale = kSide / static_cast<double>(std::max<int64_t>(longest, 1));
    legend = makeLegend();
  }

  double getWidth() const {
    double width = kMargin;
    for (const KeySequence &keys : matrix.sequences)
      width += toPixels(keys.length) + kMargin;
    // Sentences below the frames are wider than narrow frames.
    return std::max(width, kSide + 2 * kMargin);
  }

  double getHeight() const {
    return toPixels(matrix.numQueries) + 2 * kMargin + legend.size() * kLine;
  }

  /// `place` is where it stands in another picture.
  void write(StringRef name, StringRef place = "") const {
    double height = toPixels(matrix.numQueries);
    os << formatv("<svg xmlns=\"http://www.w3.org/2000/svg\" "
                  "viewBox=\"0 0 {0:F0} {1:F0}\" width=\"{0:F0}\"{2} "
                  "font-family=\"sans-serif\" font-size=\"12\">\n",
                  getWidth(), getHeight(), place);
    os << "<title>" << escape(name) << "</title>\n"
       << formatv("<rect width=\"{0:F0}\" height=\"{1:F0}\" fill=\"#fff\"/>\n",
                  getWidth(), getHeight());
    double x = kMargin;
    for (size_t sequence = 0; sequence < matrix.sequences.size(); ++sequence) {
      writeFrame(sequence, x, height);
      x += toPixels(matrix.sequences[sequence].length) + kMargin;
    }
    os << formatv("<text transform=\"translate(20 {0:F0}) rotate(-90)\">"
                  "queries 0 to {1}</text>\n",
                  kMargin + height, matrix.numQueries - 1);
    writeLegend(height + kMargin);
    os << "</svg>\n";
  }

private:
  double toPixels(int64_t extent) const {
    return std::max(scale * static_cast<double>(extent), kLeast);
  }

  void writeFrame(size_t sequence, double x, double height) const {
    const KeySequence &keys = matrix.sequences[sequence];
    double width = toPixels(keys.length);
    std::string place =
        formatv("x=\"{0:F0}\" y=\"{1:F0}\" width=\"{2:F2}\" height=\"{3:F2}\"",
                x, kMargin, width, height);
    os << formatv("<text x=\"{0:F0}\" y=\"20\">{1}, 0 to {2}</text>\n", x,
                  escape(keys.name), keys.length - 1)
       << "<rect " << place << " fill=\"#fff\" stroke=\"#888\"/>\n"
       << "<svg class=\"matrix\" " << place
       << formatv(" viewBox=\"0 0 {0} {1}\" preserveAspectRatio=\"none\" "
                  "shape-rendering=\"crispEdges\">\n",
                  keys.length, matrix.numQueries)
       << formatv("<rect class=\"ground\" width=\"{0}\" height=\"{1}\" "
                  "fill=\"#f4f4f4\"/>\n",
                  keys.length, matrix.numQueries);
    for (auto [number, source] : enumerate(matrix.sources))
      if (source.sequence == sequence)
        writeSource(number);
    const Drawing::Faults &faults = drawing.faults[sequence];
    if (marksFaults) {
      writeFaults(faults.twice, kReadTwice, kTwice);
      writeFaults(faults.ahead, kReadAhead, kAhead);
      writeFaults(faults.never, kNeverRead, kNever);
    }
    os << "</svg>\n";
  }

  /// Entries that stand out.
  void writeFaults(ArrayRef<Rectangle> rectangles, StringRef fault,
                   StringRef colour) const {
    if (rectangles.empty())
      return;
    os << formatv("<g data-fault=\"{0}\" fill=\"{1}\">\n", fault, colour);
    writeRectangles(rectangles, fault);
    os << "</g>\n";
  }

  void writeSource(size_t number) const {
    os << formatv("<g data-source=\"{0}\" fill=\"{1}\">\n", number,
                  getColour(number));
    writeRectangles(drawing.sources[number]);
    os << "</g>\n";
  }

  void writeRectangles(ArrayRef<Rectangle> rectangles,
                       StringRef fault = "") const {
    for (const Rectangle &part : rectangles) {
      os << formatv("<rect x=\"{0}\" y=\"{1}\" width=\"{2}\" height=\"{3}\"",
                    part.token, part.query, part.tokens, part.queries);
      if (part.share < 1)
        os << formatv(" fill-opacity=\"{0:F3}\"", 0.15 + 0.85 * part.share);
      os << formatv("><title>queries {0} to {1}, tokens {2} to {3}", part.query,
                    part.query + part.queries - 1, part.token,
                    part.token + part.tokens - 1);
      if (part.share < 1)
        os << formatv(": {0:P1} of the entries", part.share);
      if (!fault.empty())
        os << ", " << fault;
      os << "</title></rect>\n";
    }
  }

  std::vector<LegendLine> makeLegend() const {
    std::vector<LegendLine> legend;
    for (auto [number, source] : enumerate(matrix.sources)) {
      std::string text = source.name + ": " + source.kind;
      if (!source.byData.empty())
        text += " (" + source.byData + ")";
      legend.push_back({getColour(number), text});
    }
    auto addFault = [&](std::vector<Rectangle> Drawing::Faults::*fault,
                        StringRef colour, StringRef text) {
      if (marksFaults &&
          any_of(drawing.faults, [&](const Drawing::Faults &faults) {
            return !(faults.*fault).empty();
          }))
        legend.push_back({colour, text.str()});
    };
    addFault(&Drawing::Faults::twice, kTwice, kReadTwice);
    addFault(&Drawing::Faults::ahead, kAhead, kReadAhead);
    addFault(&Drawing::Faults::never, kNever, kNeverRead);
    if (!drawing.isExact())
      legend.push_back(
          {"", formatv("by blocks of {0} queries and {1} tokens; pale where "
                       "fewer entries are read",
                       drawing.cellQueries, drawing.cellTokens)});
    return legend;
  }

  void writeLegend(double y) const {
    for (const LegendLine &line : legend) {
      y += kLine;
      double x = kMargin;
      if (!line.colour.empty()) {
        os << formatv("<rect x=\"{0:F0}\" y=\"{1:F0}\" width=\"12\" "
                      "height=\"12\" fill=\"{2}\"/>",
                      x, y - 10, line.colour);
        x += 18;
      }
      os << formatv("<text x=\"{0:F0}\" y=\"{1:F0}\">{2}</text>\n", x, y,
                    escape(line.text));
    }
  }

  const ScoreMatrix &matrix;
  const Drawing &drawing;
  bool marksFaults;
  raw_ostream &os;
  double scale;
  std::vector<LegendLine> legend;
};
} // namespace

void explanation::writeSVG(const OperationReport &operation, bool marksFaults,
                           raw_ostream &os) {
  Picture(operation, marksFaults, os).write(operation.name);
}

void explanation::writeSVG(ArrayRef<const OperationReport *> operations,
                           raw_ostream &os) {
  if (operations.size() == 1)
    return writeSVG(*operations.front(), /*marksFaults=*/false, os);
  double width = 0, height = 0;
  std::vector<Picture> pictures;
  for (const OperationReport *operation : operations) {
    const Picture &picture =
        pictures.emplace_back(*operation, /*marksFaults=*/false, os);
    width = std::max(width, picture.getWidth());
    height += picture.getHeight();
  }
  os << formatv("<svg xmlns=\"http://www.w3.org/2000/svg\" "
                "viewBox=\"0 0 {0:F0} {1:F0}\" width=\"{0:F0}\">\n",
                width, height);
  height = 0;
  for (auto [operation, picture] : zip_equal(operations, pictures)) {
    picture.write(operation->name, formatv(" y=\"{0:F0}\" height=\"{1:F0}\"",
                                           height, picture.getHeight())
                                       .str());
    height += picture.getHeight();
  }
  os << "</svg>\n";
}
