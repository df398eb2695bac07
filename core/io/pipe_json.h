// SPDX-License-Identifier: Apache-2.0
// The lines that travel between qualm and the child of a pipe subject: docs/pipe.md is the
// protocol. A child is foreign: its lines are read as strictly as any file.
#ifndef QUALM_CORE_IO_PIPE_JSON_H_
#define QUALM_CORE_IO_PIPE_JSON_H_

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/case.h"
#include "core/subject.h"
#include "core/types.h"

namespace qualm {

inline constexpr int kPipeVersion = 1;
// Longest line either side may write, and longest answer to the hello, line end included.
inline constexpr size_t kPipeLineBytesMax = size_t{64} << 20;
inline constexpr size_t kPipeHelloBytesMax = size_t{64} << 10;

// What a child can do beyond the plain case: the QUALM_CAN_... flags of adapters/qualm_plugin.h,
// and `codes` of choose_qparams, which plugins are not asked for.
enum class PipeFeature : uint8_t {
  kBiasF32,
  kBiasI32,
  kRelu,
  kClamp,
  kPerChannel,
  kEmpty,
  kEmptyK,
  kAcc,
  kDilation,
  kGroups,
  kAsymmetricPadding,
  kCeilMode,
  kCountPadding,
  kPerRow,
  kPerBlock,
  kXPerBlock,
  kFloatX,
  kCastScales,
  kCodes,
};
inline constexpr size_t kPipeFeatureCount = static_cast<size_t>(PipeFeature::kCodes) + 1;
std::string_view Name(PipeFeature feature);  // "bias_f32"

// Which rules the choose_qparams or dynamic_linear of a subject has, by QParamsRule.
using QParamsRules = std::bitset<CountOf<QParamsRule>()>;
// Those of a subject that does not say: of choose_qparams the observers' alone, else all.
QParamsRules RulesUnlessSaid(Op op);

// Limits of one operation.
struct PipeOp {
  using Types = std::bitset<kDTypeCount>;  // by DType
  Types x = 0xF;                           // a child that lists no types takes u8, s8, s32 and f32
  Types w = 0xF;
  Types out = 0xF;
  std::bitset<kPipeFeatureCount> features;
  QParamsRules rules = ~QParamsRules();
  int64_t m_max = 0;  // 0: no limit
  int64_t n_max = 0;
  int64_t k_max = 0;
  int64_t n_multiple = 0;  // 0 and 1: any
  int64_t k_multiple = 0;
  std::optional<CodeRange> x_zp;  // nullopt: the codes of the tensor's type
  std::optional<CodeRange> w_zp;
  std::optional<CodeRange> out_zp;
  uint32_t w_formats = 0;  // of linear: bit i is kWeightFormats[i]; 0: no bytes of blocks
  std::string domain;      // "x_scale 0.1 10; shape 1x64", "" for all
  friend bool operator==(const PipeOp&, const PipeOp&) = default;
};

// The first answer of a child: its name, its contract and what it can run.
struct PipeHello {
  std::string name;
  std::string version;
  std::string contract = "exact";
  std::string instruction_set;
  std::array<std::optional<PipeOp>, kOpCount> ops;  // by Op; nullopt: not offered
  bool dot = false;                                 // answers sums of products
  friend bool operator==(const PipeHello&, const PipeHello&) = default;
};

// The first line of qualm, with its line end.
std::string PipeHelloLine();
// Reads the child's answer to it, without line end. Throws InputError "FIELD: what, expected what".
PipeHello ParsePipeHello(std::string_view line);

// The operands of a linear as a block format stores them, row by row.
struct PipeBlocks {
  std::string_view w_format;  // "q4_0"; "" without blocks
  std::span<const uint8_t> w_packed, x_packed;
  int64_t w_row_bytes = 0, x_row_bytes = 0, k_packed = 0;
};
// A case to run, with its line end: the problem alone, without property, note, expected and
// observed.
std::string PipeRequestLine(uint64_t id, const Case& c, bool want_acc,
                            const PipeBlocks& blocks = {});
// A sum of products to compute, with its line end. Its answer is that to a case of DotAnswer.
std::string PipeDotLine(uint64_t id, std::span<const float> a, std::span<const float> b);
// A case whose output is one float32.
const Case& DotAnswer();
// Its answer, without line end: kOk with y (and acc where `want_acc` and the child gave it), of the
// type and shape that `c` asks for, kSkipped or kRefused with the child's sentence. Throws
// InputError "FIELD: what is wrong, what was expected". Memory stays within a small multiple of the
// case's output and of the longest text.
Outcome ParsePipeAnswer(std::string_view line, uint64_t id, const Case& c, bool want_acc);

}  // namespace qualm

#endif  // QUALM_CORE_IO_PIPE_JSON_H_
