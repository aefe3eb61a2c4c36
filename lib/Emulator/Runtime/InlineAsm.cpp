//===- InlineAsm.cpp - PTX in inline assembly -----------------------------===//
//
// Part of the Fovea Project, under the Apache License v2.0 with LLVM
// Exceptions. See the LICENSE file for license information.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A parser and an interpreter for what kernels put into inline assembly: a few
// instructions, with registers and labels of their own.
//
//===----------------------------------------------------------------------===//

#include "Handlers.h"

#include <cctype>
#include <cstdlib>
#include <map>

using namespace fovea::simt;

namespace {

struct Operand {
  enum Kind { Register, Immediate, Special, Sink } kind = Sink;
  /// Register or number of the special register.
  unsigned number = 0;
  /// The immediate, or what is added to the register.
  Slot value = 0;
};

struct Instruction {
  const Op *op = nullptr;
  /// Without an operation: the instruction that a branch goes to.
  unsigned target = 0;
  int guard = -1;
  bool guardNegated = false;
  std::vector<Operand> outs, ins;
};

} // namespace

struct fovea::simt::AsmProgram {
  std::vector<Instruction> instructions;
  unsigned numRegisters = 0;
  std::vector<int> tied;
};

namespace {

/// Parses one piece of inline assembly.
class Parser {
public:
  Parser(OpTable &table, Op &op, const std::string &text)
      : table(table), op(op), text(text) {}

  std::string parse(AsmProgram &program);

private:
  void parseStatement(std::string statement);
  void parseRegisters(const std::string &declaration);
  Operand parseOperand(const std::string &word);
  unsigned findRegister(const std::string &name);
  std::vector<Operand> parseOperands(const std::string &list);
  void setError(const std::string &what) {
    if (error.empty())
      error = what;
  }

  OpTable &table;
  Op &op;
  const std::string &text;
  AsmProgram *program = nullptr;
  std::map<std::string, unsigned> registers, labels;
  /// Branches whose label may come later.
  std::vector<std::pair<unsigned, std::string>> branches;
  std::string error;
};

} // namespace

static std::string trim(const std::string &text, const char *what = " \t\n\r") {
  size_t first = text.find_first_not_of(what);
  if (first == std::string::npos)
    return "";
  return text.substr(first, text.find_last_not_of(what) - first + 1);
}

static bool isNameCharacter(char c) {
  return isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' ||
         c == '%';
}

std::string Parser::parse(AsmProgram &result) {
  program = &result;
  program->numRegisters = op.numOut + op.numIn;
  size_t begin = 0;
  while (begin < text.size() && error.empty()) {
    size_t end = text.find(';', begin);
    if (end == std::string::npos)
      end = text.size();
    parseStatement(text.substr(begin, end - begin));
    begin = end + 1;
  }
  for (auto &[index, label] : branches) {
    auto it = labels.find(label);
    if (it == labels.end())
      setError("unknown label '" + label + "'");
    else
      program->instructions[index].target = it->second;
  }
  if (program->numRegisters > 2 * kMaxSlots)
    setError("too many registers");
  return error;
}

void Parser::parseStatement(std::string statement) {
  // Braces open and close a scope here; those of vectors come later.
  for (;;) {
    statement = trim(statement);
    while (!statement.empty() && (statement[0] == '{' || statement[0] == '}'))
      statement = trim(statement.substr(1));
    size_t name = 0;
    while (name < statement.size() && isNameCharacter(statement[name]))
      ++name;
    size_t colon = statement.find_first_not_of(" \t\n\r", name);
    if (name == 0 || colon == std::string::npos || statement[colon] != ':' ||
        statement.compare(colon, 2, "::") == 0)
      break;
    labels[statement.substr(0, name)] = program->instructions.size();
    statement = statement.substr(colon + 1);
  }
  if (statement.empty() || statement[0] == '/')
    return;
  if (statement.compare(0, 4, ".reg") == 0)
    return parseRegisters(statement.substr(4));

  Instruction instruction;
  if (statement[0] == '@') {
    size_t at = 1;
    instruction.guardNegated = statement[at] == '!';
    at += instruction.guardNegated;
    size_t end = at;
    while (end < statement.size() &&
           (isNameCharacter(statement[end]) || statement[end] == '{' ||
            statement[end] == '}'))
      ++end;
    Operand guard = parseOperand(statement.substr(at, end - at));
    if (guard.kind != Operand::Register)
      return setError("a guard must be a register");
    instruction.guard = guard.number;
    statement = trim(statement.substr(end));
  }
  size_t space = statement.find_first_of(" \t\n\r");
  std::string opcode = statement.substr(0, space);
  std::string rest =
      space == std::string::npos ? "" : trim(statement.substr(space));
  if (opcode == "bra" || opcode == "bra.uni") {
    branches.emplace_back(program->instructions.size(), rest);
    program->instructions.push_back(std::move(instruction));
    return;
  }
  std::vector<Operand> operands = parseOperands(rest);
  if (!error.empty())
    return;
  Op &inner = table.add(opcode, op.where);
  if (!bindInstruction(inner, operands.size()))
    return setError("instruction '" + opcode + "' is not emulated");
  instruction.op = &inner;
  instruction.outs.assign(operands.begin(), operands.begin() + inner.numOut);
  instruction.ins.assign(operands.begin() + inner.numOut, operands.end());
  if (inner.kind == OpKind::Warpgroup) {
    // Accumulators are read, too. Only the left factor can be a vector.
    inner.param[4] = instruction.ins.size() >= 8;
    instruction.ins.insert(instruction.ins.begin(), instruction.outs.begin(),
                           instruction.outs.end());
    inner.numIn = instruction.ins.size();
  }
  if (inner.numIn > kMaxSlots || inner.numOut > kMaxSlots)
    return setError("too many operands");
  program->instructions.push_back(std::move(instruction));
}

void Parser::parseRegisters(const std::string &declaration) {
  // .pred p, q or .b32 r<4>
  std::string names = trim(declaration);
  size_t space = names.find_first_of(" \t\n\r");
  if (space == std::string::npos)
    return setError("cannot read '.reg" + declaration + "'");
  names = names.substr(space);
  size_t begin = 0;
  while (begin <= names.size()) {
    size_t end = std::min(names.find(',', begin), names.size());
    std::string name = trim(names.substr(begin, end - begin));
    begin = end + 1;
    size_t bracket = name.find('<');
    if (bracket == std::string::npos) {
      registers[name] = program->numRegisters++;
      continue;
    }
    int count = atoi(name.c_str() + bracket + 1);
    for (int i = 0; i < count; ++i)
      registers[name.substr(0, bracket) + std::to_string(i)] =
          program->numRegisters++;
  }
}

unsigned Parser::findRegister(const std::string &name) {
  // $0 or ${0}, perhaps ${0:c}.
  if (name[0] == '$') {
    unsigned number = atoi(name.c_str() + (name[1] == '{' ? 2 : 1));
    if (number >= op.numOut + op.numIn)
      setError("there is no operand " + name);
    return number;
  }
  auto it = registers.find(name);
  if (it != registers.end())
    return it->second;
  setError("unknown register '" + name + "'");
  return 0;
}

Operand Parser::parseOperand(const std::string &word) {
  Operand operand;
  std::string name = trim(word);
  if (name.empty() || name == "_")
    return operand;
  if (name[0] == '%' && name.size() > 1) {
    int special = findSpecialRegister(name.substr(1));
    if (special >= 0 && !registers.count(name)) {
      operand.kind = Operand::Special;
      operand.number = special;
      return operand;
    }
  }
  bool negative = name[0] == '-';
  if (isdigit(static_cast<unsigned char>(name[negative]))) {
    operand.kind = Operand::Immediate;
    // 0f3F800000 is a float.
    if (name.compare(0, 2, "0f") == 0 || name.compare(0, 2, "0F") == 0)
      operand.value = strtoul(name.c_str() + 2, nullptr, 16);
    else
      operand.value = strtoll(name.c_str(), nullptr, 0);
    return operand;
  }
  operand.kind = Operand::Register;
  size_t plus = name.find('+');
  if (plus != std::string::npos)
    operand.value = strtoll(name.c_str() + plus + 1, nullptr, 0);
  operand.number = findRegister(trim(name.substr(0, plus)));
  return operand;
}

std::vector<Operand> Parser::parseOperands(const std::string &list) {
  std::vector<Operand> operands;
  std::string word;
  auto finish = [&] {
    if (!trim(word).empty())
      operands.push_back(parseOperand(word));
    word.clear();
  };
  for (size_t i = 0; i < list.size(); ++i) {
    char c = list[i];
    if (c == '$' && i + 1 < list.size() && list[i + 1] == '{') {
      size_t end = list.find('}', i);
      word += list.substr(i, end - i + 1);
      i = end == std::string::npos ? list.size() : end;
    } else if (c == ',' || c == '|' || c == '[' || c == ']' || c == '{' ||
               c == '}') {
      finish();
    } else {
      word += c;
    }
  }
  finish();
  return operands;
}

std::string fovea::simt::bindAsm(OpTable &table, Op &op,
                                 const std::string &text,
                                 const std::vector<int> &tied) {
  op.kind = OpKind::Program;
  op.program = std::make_shared<AsmProgram>();
  op.program->tied = tied;
  return Parser(table, op, text).parse(*op.program);
}

//===----------------------------------------------------------------------===//
// Execution
//===----------------------------------------------------------------------===//

static Slot read(const Operand &operand, const Slot *registers) {
  switch (operand.kind) {
  case Operand::Register:
    return registers[operand.number] + operand.value;
  case Operand::Immediate:
    return operand.value;
  case Operand::Special:
    return fovea_simt_register(operand.number);
  default:
    return 0;
  }
}

void fovea::simt::runProgram(Thread &thread, const Op &op, const Slot *in,
                             Slot *out) {
  const AsmProgram &program = *op.program;
  Slot registers[2 * kMaxSlots], ins[kMaxSlots], outs[kMaxSlots];
  for (unsigned i = 0; i < op.numOut; ++i)
    registers[i] = ~Slot(0);
  for (unsigned i = 0; i < op.numIn; ++i) {
    registers[op.numOut + i] = in[i];
    if (program.tied[i] >= 0)
      registers[program.tied[i]] = in[i];
  }
  for (unsigned at = 0; at < program.instructions.size();) {
    const Instruction &instruction = program.instructions[at++];
    if (instruction.guard >= 0 &&
        bool(registers[instruction.guard] & 1) == instruction.guardNegated)
      continue;
    if (!instruction.op) {
      at = instruction.target;
      continue;
    }
    for (unsigned i = 0; i < instruction.ins.size(); ++i)
      ins[i] = read(instruction.ins[i], registers);
    execute(*instruction.op, ins, outs);
    for (unsigned i = 0; i < instruction.outs.size(); ++i)
      if (instruction.outs[i].kind == Operand::Register)
        registers[instruction.outs[i].number] = outs[i];
  }
  for (unsigned i = 0; i < op.numOut; ++i)
    out[i] = registers[i];
}
