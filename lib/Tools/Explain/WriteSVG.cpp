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

/// Extents of a picture, in pixels.
static constexpr double kSide = 480, kLeast = 48, kMargin = 28, kLine = 18;

static std::string escape(StringRef text) {
  std::string result;
  raw_string_ostream os(result);
  printHTMLEscaped(text, os);
  return result;
}

namespace {
class Picture {
public:
  Picture(const OperationReport &operation, raw_ostream &os)
      : matrix(*operation.matrix), drawing(operation.drawing), os(os) {
    int64_t longest = matrix.numQueries;
    for (const KeySequence &keys : matrix.sequences)
      longest = std::max(longest, keys.length);
    scale = kSide / static_cast<double>(std::max<int64_t>(longest, 1));
  }

  void write(StringRef name) {
    double height = toPixels(matrix.numQueries), width = kMargin;
    for (const KeySequence &keys : matrix.sequences)
      width += toPixels(keys.length) + kMargin;
    // Sentences below the frames are wider than narrow frames.
    width = std::max(width, kSide + 2 * kMargin);
    size_t lines = matrix.sources.size() + !drawing.isExact();
    os << formatv("<svg xmlns=\"http://www.w3.org/2000/svg\" "
                  "viewBox=\"0 0 {0:F0} {1:F0}\" width=\"{0:F0}\" "
                  "font-family=\"sans-serif\" font-size=\"12\">\n",
                  width, height + 2 * kMargin + lines * kLine);
    os << "<title>" << escape(name) << "</title>\n"
       << formatv("<rect width=\"{0:F0}\" height=\"{1:F0}\" fill=\"#fff\"/>\n",
                  width, height + 2 * kMargin + lines * kLine);
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

  void writeFrame(size_t sequence, double x, double height) {
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
    os << "</svg>\n";
  }

  void writeSource(size_t number) {
    os << formatv("<g data-source=\"{0}\" fill=\"{1}\">\n", number,
                  getColour(number));
    for (const Rectangle &part : drawing.sources[number]) {
      os << formatv("<rect x=\"{0}\" y=\"{1}\" width=\"{2}\" height=\"{3}\"",
                    part.token, part.query, part.tokens, part.queries);
      if (part.share < 1)
        os << formatv(" fill-opacity=\"{0:F3}\"", 0.15 + 0.85 * part.share);
      os << formatv("><title>queries {0} to {1}, tokens {2} to {3}", part.query,
                    part.query + part.queries - 1, part.token,
                    part.token + part.tokens - 1);
      if (part.share < 1)
        os << formatv(": {0:P1} of the entries", part.share);
      os << "</title></rect>\n";
    }
    os << "</g>\n";
  }

  void writeLegend(double y) {
    for (auto [number, source] : enumerate(matrix.sources)) {
      y += kLine;
      os << formatv("<rect x=\"{0:F0}\" y=\"{1:F0}\" width=\"12\" "
                    "height=\"12\" fill=\"{2}\"/>",
                    kMargin, y - 10, getColour(number));
      std::string text = source.name + ": " + source.kind;
      if (!source.byData.empty())
        text += " (" + source.byData + ")";
      os << formatv("<text x=\"{0:F0}\" y=\"{1:F0}\">{2}</text>\n",
                    kMargin + 18, y, escape(text));
    }
    if (!drawing.isExact())
      os << formatv("<text x=\"{0:F0}\" y=\"{1:F0}\">by blocks of {2} queries "
                    "and {3} tokens; pale where fewer entries are "
                    "read</text>\n",
                    kMargin, y + kLine, drawing.cellQueries,
                    drawing.cellTokens);
  }

  const ScoreMatrix &matrix;
  const Drawing &drawing;
  raw_ostream &os;
  double scale;
};
} // namespace

void explanation::writeSVG(const OperationReport &operation, raw_ostream &os) {
  Picture(operation, os).write(operation.name);
}
