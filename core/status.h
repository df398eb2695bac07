// SPDX-License-Identifier: Apache-2.0
// The three ways to stop: somebody's input is wrong (exit 2), something asked for is not to be had
// (exit 3), we made a mistake (abort). A *finding* is none of them: it is data (core/verdict.h).
#ifndef QUALM_CORE_STATUS_H_
#define QUALM_CORE_STATUS_H_

#include <sstream>
#include <stdexcept>
#include <string>

namespace qualm {

// Bad usage or input. what() is one line: "FILE: FIELD: what is wrong, what was expected".
class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A subject (library, plugin, worker, target) that was named is absent or broke the harness.
class Unavailable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

namespace internal {
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              const std::string& operands);
template <class A, class B>
std::string Operands(const A& a, const B& b) {
  std::ostringstream out;
  out << a << " vs " << b;
  return out.str();
}
}  // namespace internal

}  // namespace qualm

// Our own mistakes: always on, print both operands, abort.
#define QUALM_CHECK(condition)                                                            \
  do {                                                                                    \
    if (!(condition)) ::qualm::internal::CheckFailed(__FILE__, __LINE__, #condition, ""); \
  } while (false)
#define QUALM_CHECK_OP(a, op, b)                                             \
  do {                                                                       \
    if (!((a)op(b)))                                                         \
      ::qualm::internal::CheckFailed(__FILE__, __LINE__, #a " " #op " " #b,  \
                                     ::qualm::internal::Operands((a), (b))); \
  } while (false)
#define QUALM_CHECK_EQ(a, b) QUALM_CHECK_OP(a, ==, b)
#define QUALM_CHECK_LE(a, b) QUALM_CHECK_OP(a, <=, b)
#define QUALM_CHECK_LT(a, b) QUALM_CHECK_OP(a, <, b)

// For functions that say what is wrong as a text, "" if nothing is.
#define QUALM_RETURN_IF_ERROR(expression)                                              \
  do {                                                                                 \
    if (std::string error_text = (expression); !error_text.empty()) return error_text; \
  } while (false)

#endif  // QUALM_CORE_STATUS_H_
