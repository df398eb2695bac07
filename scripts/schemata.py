# SPDX-License-Identifier: Apache-2.0
"""Mutant schemata: a source with all its mutants in it, each behind a switch.

One build then holds every mutant, and the environment variable QUALM_MUTANT chooses one
(Untch, Offutt, Harrold: Mutation analysis using mutant schemata, ISSTA 1993). Edits only insert
text or replace an operator, so that mutants of nested expressions need no copies of them.
"""
import re
from bisect import bisect_right
from typing import NamedTuple

# libclang with its Python module: Debian's python3-clang-19.
from clang import cindex
from clang.cindex import BinaryOperator, CursorKind, TypeKind

cindex.Config.set_library_file("libclang-19.so.1")

# The header that instrumented sources include. A process that names a trace file marks in it which
# mutants it reaches; children inherit both variables. MAIN changes the two in each process that it forks.
SWITCH = r"""// Which mutant is on, and which are reached.
#pragma once
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cstdlib>
#include <string>
#include <type_traits>
namespace qualm_mutants {
inline int Chosen() {
  const char* text = std::getenv("QUALM_MUTANT");
  return text ? std::atoi(text) : 0;
}
inline volatile char* Trace() {
  const char* path = std::getenv("QUALM_MUTANT_TRACE");
  const int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
  if (file < 0) return nullptr;
  void* page = mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return page == MAP_FAILED ? nullptr : static_cast<volatile char*>(page);
}
inline int chosen = Chosen();
inline volatile char* trace = Trace();
constexpr bool On(int id) {
  if (std::is_constant_evaluated()) return false;
  if (trace) trace[id] = 1;
  return chosen == id;
}
template <class T> constexpr bool Flip(int id, const T& value) { return On(id) != bool(value); }
template <int id, class A, class B> constexpr auto Less(A a, B b) { return On(id) ? a <= b : a < b; }
template <int id, class A, class B> constexpr auto LessEqual(A a, B b) { return On(id) ? a < b : a <= b; }
template <int id, class A, class B> constexpr auto Greater(A a, B b) { return On(id) ? a >= b : a > b; }
template <int id, class A, class B> constexpr auto GreaterEqual(A a, B b) { return On(id) ? a > b : a >= b; }
template <int id, class A, class B> constexpr auto Equal(A a, B b) { return On(id) ? a != b : a == b; }
template <int id, class A, class B> constexpr auto NotEqual(A a, B b) { return On(id) ? a == b : a != b; }
template <int id, class A, class B> constexpr auto Plus(A a, B b) { return On(id) ? a - b : a + b; }
template <int id, class A, class B> constexpr auto Minus(A a, B b) { return On(id) ? a + b : a - b; }
}  // namespace qualm_mutants
"""

# The main function of each test program. Loading a program and making its tests costs more than most
# tests: it is done once, and each request runs its tests in a fork, which no other request has
# touched. Without QUALM_MUTANT_SERVER it is the main function of GoogleTest.
# Request: mutant, seconds, trace file or -, folder, filter, with tabs between and a newline behind.
# Answer: "passed", "failed" or "hung", seconds, and the test that was begun last.
MAIN = r"""#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <chrono>
#include <iostream>
#include <sstream>
#include <vector>
#include "mutant_switch.h"
namespace {
class Tells : public testing::EmptyTestEventListener {
 public:
  explicit Tells(int pipe) : pipe_(pipe) {}
  void OnTestStart(const testing::TestInfo& test) override {
    const std::string name = std::string(test.test_suite_name()) + "." + test.name() + "\n";
    if (write(pipe_, name.data(), name.size()) < 0) _exit(9);
  }
 private:
  int pipe_;
};
[[noreturn]] void RunTests(const std::vector<std::string>& request, int pipe) {
  setsid();
  const int none = open("/dev/null", O_RDWR);
  for (int i = 0; i < 3; ++i) dup2(none, i);
  setenv("QUALM_MUTANT", request[0].c_str(), 1);
  setenv("TMPDIR", request[3].c_str(), 1);
  if (request[2] != "-") setenv("QUALM_MUTANT_TRACE", request[2].c_str(), 1);
  if (chdir(request[3].c_str()) != 0) _exit(9);
  qualm_mutants::trace = qualm_mutants::Trace();
  qualm_mutants::chosen = qualm_mutants::Chosen();
  testing::GTEST_FLAG(filter) = request[4];
  testing::GTEST_FLAG(fail_fast) = true;
  testing::UnitTest::GetInstance()->listeners().Append(new Tells(pipe));
  std::exit(RUN_ALL_TESTS());
}
std::string Serve(const std::vector<std::string>& request) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) std::exit(9);
  const auto start = std::chrono::steady_clock::now();
  const pid_t child = fork();
  if (child == 0) RunTests(request, ends[1]);
  close(ends[1]);
  std::string begun;
  pollfd waits[2] = {{int(syscall(SYS_pidfd_open, child, 0)), POLLIN, 0}, {ends[0], POLLIN, 0}};
  const auto passed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const double seconds = std::atof(request[1].c_str());
  bool hung = false;
  while (!hung && !(waits[0].revents & POLLIN)) {
    const double left = seconds - passed();
    hung = left <= 0 || poll(waits, 2, int(left * 1000) + 1) == 0;
    char text[4096];
    if (waits[1].revents & POLLIN) begun.append(text, size_t(read(ends[0], text, sizeof text)));
    if (waits[1].revents & POLLHUP) waits[1].fd = -1;
  }
  const double took = passed();
  kill(-child, SIGKILL);
  if (hung) kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  close(waits[0].fd);
  // What was written just before the end.
  pollfd rest{ends[0], POLLIN, 0};
  char text[4096];
  while (poll(&rest, 1, 0) > 0 && (rest.revents & POLLIN)) {
    const ssize_t got = read(ends[0], text, sizeof text);
    if (got <= 0) break;
    begun.append(text, size_t(got));
  }
  close(ends[0]);
  while (!begun.empty() && begun.back() == '\n') begun.pop_back();
  std::ostringstream answer;
  answer << (hung ? "hung" : status == 0 ? "passed" : "failed") << "\t" << took << "\t"
         << begun.substr(begun.rfind('\n') + 1);
  return answer.str();
}
}  // namespace
int main(int count, char** words) {
  testing::InitGoogleTest(&count, words);
  if (!std::getenv("QUALM_MUTANT_SERVER")) return RUN_ALL_TESTS();
  unsetenv("QUALM_MUTANT_SERVER");
  unsetenv("QUALM_MUTANT_TRACE");
  std::cout << "ready" << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::vector<std::string> request;
    std::istringstream fields(line);
    for (std::string field; std::getline(fields, field, '\t');) request.push_back(field);
    std::cout << Serve(request) << std::endl;
  }
  return 0;
}
"""

# Operator: (the function above, what the mutant does). Operands of arithmetic types only.
OPERATORS = {
    BinaryOperator.LT: ("Less", "< becomes <="),
    BinaryOperator.LE: ("LessEqual", "<= becomes <"),
    BinaryOperator.GT: ("Greater", "> becomes >="),
    BinaryOperator.GE: ("GreaterEqual", ">= becomes >"),
    BinaryOperator.EQ: ("Equal", "== becomes !="),
    BinaryOperator.NE: ("NotEqual", "!= becomes =="),
    BinaryOperator.Add: ("Plus", "+ becomes -"),
    BinaryOperator.Sub: ("Minus", "- becomes +"),
}
EQUALITY = (BinaryOperator.EQ, BinaryOperator.NE)
ASSIGNMENTS = {op for op in BinaryOperator if op.name.endswith("Assign")}
ARITHMETIC = range(TypeKind.BOOL.value, TypeKind.LONGDOUBLE.value + 1)


FUNCTIONS = (CursorKind.FUNCTION_DECL, CursorKind.CXX_METHOD, CursorKind.CONSTRUCTOR,
             CursorKind.DESTRUCTOR, CursorKind.FUNCTION_TEMPLATE)


class Mutant(NamedTuple):
    id: int
    file: str
    line: int
    text: str  # of the line, without indentation
    what: str
    function: str  # a lambda is part of the function around it; "" outside of all


class Edit(NamedTuple):
    at: int  # offset in bytes
    order: int  # of edits at one place: closing ones first
    skip: int  # bytes replaced
    text: str
    mutant: int  # 0: belongs to several


class Source:
    """The mutants of one file with this content. `first` is the number of its first."""

    def __init__(self, root, name, content, arguments, first):
        self.name, self.next, self.mutants, self.edits = name, first, [], []
        self.last_condition, self.function = None, ""
        self.path = str(root / name)
        self.bytes = content
        self.starts = [0] + [i + 1 for i, byte in enumerate(self.bytes) if byte == 10]
        # With the places of macros: what a macro computes inside is not written in this file.
        unit = cindex.Index.create().parse(
            self.path, args=arguments, unsaved_files=[(self.path, content.decode())],
            options=cindex.TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD)
        errors = [d for d in unit.diagnostics if d.severity >= cindex.Diagnostic.Error]
        if errors:
            raise ValueError(f"{name}: {errors[0].spelling}")
        here = [c for c in unit.cursor.get_children()
                if c.location.file and c.location.file.name == self.path]
        self.macros = sorted((c.extent.start.offset, c.extent.end.offset) for c in here
                             if c.kind == CursorKind.MACRO_INSTANTIATION)
        for cursor in here:
            if not cursor.kind.is_preprocessing():
                self.visit(cursor, None)

    def mutant(self, cursor, what):
        line = bisect_right(self.starts, cursor.extent.start.offset)
        text = self.bytes[self.starts[line - 1]:].split(b"\n", 1)[0].decode().strip()
        made = Mutant(self.next, self.name, line, text, what, self.function)
        self.mutants.append(made)
        self.next += 1
        return made.id

    def around(self, cursor, before, after, mutant):
        start, end = cursor.extent.start.offset, cursor.extent.end.offset
        # Inner expressions open later and close earlier.
        self.edits.append(Edit(start, 1_000_000 - (end - start), 0, before, mutant))
        self.edits.append(Edit(end, -1_000_000 + (end - start), 0, after, mutant))

    def source(self, cursor):
        return self.bytes[cursor.extent.start.offset:cursor.extent.end.offset]

    def written_here(self, cursor):
        """Not out of a macro, whose text is elsewhere."""
        start, end = cursor.extent.start, cursor.extent.end
        if not start.file or start.file.name != self.path or start.offset >= end.offset:
            return False
        before = bisect_right(self.macros, (start.offset, len(self.bytes))) - 1
        if before >= 0 and end.offset <= self.macros[before][1]:
            return False
        return re.search(rb"\b(QUALM|EXPECT|ASSERT)_|\n#", self.source(cursor)) is None

    def visit(self, cursor, parent):
        if cursor.kind == CursorKind.STATIC_ASSERT or self.constant(cursor):
            return  # what the compiler computes is the same for every mutant
        before = self.function
        if cursor.kind in FUNCTIONS:
            self.function = cursor.spelling
        self.mutate(cursor, parent)
        for child in cursor.get_children():
            self.visit(child, cursor)
        self.function = before

    def constant(self, cursor):
        head = self.source(cursor)[:60].split(b"{")[0].split(b"=")[0]
        return cursor.kind in (CursorKind.VAR_DECL, CursorKind.FIELD_DECL) and b"constexpr" in head

    def mutate(self, cursor, parent):
        children = list(cursor.get_children())
        kind = cursor.kind
        if kind == CursorKind.BINARY_OPERATOR and len(children) == 2:
            self.mutate_operator(cursor, *children)
        elif kind == CursorKind.IF_STMT and not self.source(cursor).startswith(b"if constexpr"):
            if children[0].kind.is_expression():
                self.replace_condition(children[0])
        elif kind == CursorKind.CONDITIONAL_OPERATOR and len(children) == 3:
            self.replace_condition(children[0])
        elif kind == CursorKind.FOR_STMT:
            self.skip_first(children)
        elif kind == CursorKind.RETURN_STMT and children:
            self.mutate_return(children[0])
        if parent is not None and parent.kind == CursorKind.COMPOUND_STMT:
            self.drop_statement(cursor)

    def mutate_operator(self, cursor, left, right):
        operator = cursor.binary_operator
        if not (self.written_here(cursor)):
            return
        if operator in (BinaryOperator.LAnd, BinaryOperator.LOr):
            for operand in (left, right):
                if operator == BinaryOperator.LAnd:
                    number = self.mutant(operand, f"{self.brief(operand)} is taken for true")
                    self.around(operand, f"(qualm_mutants::On({number}) || bool(", "))", number)
                else:
                    number = self.mutant(operand, f"{self.brief(operand)} is taken for false")
                    self.around(operand, f"(!qualm_mutants::On({number}) && bool(", "))", number)
            return
        if operator not in OPERATORS:
            return
        for operand in (left, right):
            if operand.type.get_canonical().kind.value not in ARITHMETIC:
                return
        gap = self.bytes[left.extent.end.offset:right.extent.start.offset]
        symbol = OPERATORS[operator][1].split()[0].encode()
        at = gap.find(symbol)
        if at < 0 or gap.count(symbol) != 1 or gap.replace(symbol, b"").strip():
            return  # a parenthesis or a comment between them
        if operator in EQUALITY and self.last_condition == cursor.extent.start.offset:
            return  # taken for true and for false already
        function, what = OPERATORS[operator]
        number = self.mutant(cursor, f"{self.brief(cursor)}: {what}")
        self.around(cursor, f"qualm_mutants::{function}<{number}>(", ")", number)
        self.edits.append(Edit(left.extent.end.offset + at, 0, len(symbol), ",", number))

    def brief(self, cursor):
        text = " ".join(self.source(cursor).decode().split())
        return text if len(text) <= 60 else text[:57] + "..."

    def replace_condition(self, condition):
        if not self.written_here(condition):
            return
        self.last_condition = condition.extent.start.offset
        yes = self.mutant(condition, f"{self.brief(condition)} is taken for true")
        no = self.mutant(condition, f"{self.brief(condition)} is taken for false")
        self.around(condition, f"(qualm_mutants::On({yes}) || (!qualm_mutants::On({no}) && bool(",
                    ")))", yes)

    def skip_first(self, children):
        """`for (int i = 0; ...` begins at 1."""
        declaration = children[0]
        if declaration.kind != CursorKind.DECL_STMT:
            return
        for variable in declaration.get_children():
            values = [c for c in variable.get_children() if c.kind.is_expression()]
            if len(values) != 1 or not self.written_here(values[0]):
                continue
            value = values[0]
            if self.source(value) == b"0":
                number = self.mutant(value, f"{self.brief(declaration)} skips the first")
                self.around(value, "(0 + qualm_mutants::On(%d) * (" % number, " + 1))", number)

    def mutate_return(self, value):
        if not self.written_here(value):
            return
        kind = value.type.get_canonical()
        if kind.kind == TypeKind.BOOL:
            number = self.mutant(value, f"returns the contrary of {self.brief(value)}")
            self.around(value, f"qualm_mutants::Flip({number}, ", ")", number)
        elif kind.spelling.endswith("basic_string<char>") and self.source(value) not in (b'""', b"{}"):
            number = self.mutant(value, f"says nothing instead of {self.brief(value)}")
            self.around(value, f"qualm_mutants::On({number}) ? std::string() : std::string(", ")",
                        number)

    def drop_statement(self, cursor):
        inner = cursor
        while inner.kind == CursorKind.UNEXPOSED_EXPR:  # the end of its temporaries
            inner = next(inner.get_children())
        call = inner.kind in (CursorKind.CALL_EXPR, CursorKind.UNARY_OPERATOR,
                              CursorKind.COMPOUND_ASSIGNMENT_OPERATOR)
        assigned = inner.kind == CursorKind.BINARY_OPERATOR and inner.binary_operator in ASSIGNMENTS
        if re.search(rb"\.(reserve|shrink_to_fit)\([^;]*$", self.source(cursor)):
            return  # changes no value
        if (call or assigned) and self.written_here(cursor):
            number = self.mutant(cursor, f"does not do: {self.brief(cursor)}")
            self.edits.append(Edit(cursor.extent.start.offset, -1, 0,
                                   f"if (!qualm_mutants::On({number})) ", number))

    def text(self, without):
        """The instrumented source, without these mutants."""
        result, last = [b'#include "mutant_switch.h"\n'], 0
        for edit in sorted(self.edits, key=lambda e: (e.at, e.order)):
            if edit.mutant in without:
                continue
            result += [self.bytes[last:edit.at], edit.text.encode()]
            last = edit.at + edit.skip
        return b"".join(result + [self.bytes[last:]])
