// SPDX-License-Identifier: Apache-2.0
// A recorded line: its fields, the case that it is, and the convention that it follows. Fields that
// are missing or wrong throw InputError with the file, the line and the field. Private to
// oracles/golden.
#ifndef QUALM_ORACLES_GOLDEN_RECORDS_H_
#define QUALM_ORACLES_GOLDEN_RECORDS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/case_json.h"
#include "core/io/golden.h"
#include "oracles/exact/observer.h"

namespace qualm::golden {

// ---- Fields (fields.cc).

[[noreturn]] void Wrong(const GoldenRecord& record, std::string_view field,
                        const std::string& what);

// Throws unless the field has as many entries as it should have.
void RequireEntries(const GoldenRecord& record, std::string_view field, size_t has,
                    int64_t expected);

// A float type by its name in ml_dtypes without the word float and its bits; nullopt for others.
std::optional<DType> FloatTypeNamed(std::string_view name);

// 0..kMaxElements, as in case files.
int64_t Dimension(const GoldenRecord& record, const std::string& field);
int32_t Int32(const GoldenRecord& record, const std::string& field, int64_t low = INT32_MIN,
              int64_t high = INT32_MAX);
// 0 or 1; a missing field is 0.
bool Flag(const GoldenRecord& record, const std::string& field);
std::vector<int32_t> Int32s(const GoldenRecord& record, const std::string& field);
// Of a product: M, N and K, small enough to be judged.
struct Sizes {
  int64_t m, n, k;
};
Sizes SizesOf(const GoldenRecord& record);
// u8 or s8, under any of its names (XNNPACK's qu8, qs8, qc8 and NumPy's too).
DType CodeType(const GoldenRecord& record, const std::string& field);

// The integers of a field, each inside the type, as many as the shape says. A list of another
// length throws before anything of the size of the shape is allocated.
Tensor Codes(const GoldenRecord& record, const std::string& field, DType dtype,
             const std::vector<int64_t>& shape);
Tensor Reals(const GoldenRecord& record, const std::string& field,
             const std::vector<int64_t>& shape);

// ---- Cases: one reader per kind of record (cases.cc).

Case AtenStyleLinear(const GoldenRecord& record);  // float bias, u8 output
Case I32BiasLinear(const GoldenRecord& record);
Case RealLinear(const GoldenRecord& record);    // float bias, f32 output
Case DirectMatmul(const GoldenRecord& record);  // oneDNN's own: output_scales are the multipliers
Case OrtMatmul(const GoldenRecord& record);
Case XnnpackLinear(const GoldenRecord& record);
Case TfliteLinear(const GoldenRecord& record);

Case AtenStyleConv(const GoldenRecord& record);
Case OrtConv(const GoldenRecord& record);
Case DirectConv(const GoldenRecord& record);  // oneDNN's own: the sums, no zero points

Case WrittenCase(const GoldenRecord& record);  // `case` is the text of a case file

Case DynamicLinearCase(const GoldenRecord& record);  // of ATen: float bias, f32 output

// ONNX's operators, with their names.
Case OnnxQuantizeCase(const GoldenRecord& record);
Case OnnxDequantizeCase(const GoldenRecord& record);
Case MatMulIntegerCase(const GoldenRecord& record);  // s32 sums
// A cast of the bits of an input set, and the way back: codes to f32.
Case CastCase(const GoldenRecord& record);
Case DecodeCase(const GoldenRecord& record);
// The codes of a field, as one row.
Tensor CastCodes(const GoldenRecord& record, const std::string& field, DType dtype);
// BeyondCases of a cast or decode.
std::string BeyondCasts(const GoldenRecord& record);
// "" if a case can say the types and the grouping of the record, else what it cannot.
std::string BeyondCases(const GoldenRecord& record);

Case PairCase(const GoldenRecord& record);      // add, mul
Case QuantizeCase(const GoldenRecord& record);  // its codes, of DynamicQuantizeLinear too
Case HardSwishCase(const GoldenRecord& record);
// The dequantize of `codes`, which are the output of `quantize`.
Case DequantizeCase(const GoldenRecord& record, const Case& quantize, const Tensor& codes);
Case RequantizeCase(const GoldenRecord& record);

// Throws InputError, naming the record, unless the case is valid.
void CheckCase(const GoldenRecord& record, const Case& c);

// ---- What no case can say yet.

struct JudgedRecord {
  std::string convention = {};  // whose arithmetic was computed
  std::string skipped = {};     // or what is not known
  struct Output {
    std::string field;  // of the record
    Tensor recorded, computed;
  };
  std::vector<Output> outputs = {};
  struct Text {
    std::string field, recorded, computed;
  };
  std::vector<Text> texts = {};
  bool interval = false;  // many numbers are accepted, and `computed` are the nearest of them
  std::vector<std::string> steps = {};  // of output GoldenRecord::tell, of a product of floats
};

// The bits of the element in row m and column n.
using Element = std::function<uint32_t(int64_t m, int64_t n)>;
// One output, a matrix, and what `element` computes for it (fields.cc).
JudgedRecord JudgedMatrix(std::string convention, const std::string& field, Tensor recorded,
                          const Element& element);

// Products of floats (products.cc).
// oneDNN's own matmul, a record too, is one of codes: it has a src_dtype.
bool IsProduct(const GoldenRecord& record);
JudgedRecord JudgeProduct(const GoldenRecord& record);
// The known ways to add products of floats that give every output, whatever the record says of
// itself; nullopt where the record is no such product.
std::optional<std::vector<std::string>> ArithmeticsOf(const GoldenRecord& record);

// Products of floats and small integers that are added in float32, and the trees of such sums
// (sums.cc).
bool IsSum(const GoldenRecord& record);
JudgedRecord JudgeSum(const GoldenRecord& record);
// A recorded MatMulNBits of 2, 4 or 8 bits as a linear of f32 x.
Case CaseOfNBits(const GoldenRecord& record);

// ONNX's operators with other types than u8, s8 and f32, by blocks or along rows (onnx_types.cc).
bool IsOnnxOfOtherTypes(const GoldenRecord& record);
JudgedRecord JudgeOnnxOfOtherTypes(const GoldenRecord& record);

// What PT2E's choice of parameters, its quantization by tokens and groups, and fake quantization
// compute (decomposed.cc).
bool IsDecomposed(const GoldenRecord& record);
JudgedRecord JudgeDecomposed(const GoldenRecord& record);

// ---- PyTorch's observers, and the codes that ATen makes with their results (observers.cc).

// The results of a record's observer: one for op observer and observer_quantize, one for each row
// of x for op observer_per_channel. Throws InputError for a record of another op.
std::vector<exact::ObserverResult> ObserveRecord(const GoldenRecord& record);

// The codes of x [rows, columns] that ATen makes, each row with its own result. Their type is the
// `dtype` of the record, u8 where it names none.
Tensor QuantizeRecord(const GoldenRecord& record,
                      const std::vector<exact::ObserverResult>& results);

// The numbers that ATen makes of such codes.
Tensor DequantizeRecord(const Tensor& codes, const std::vector<exact::ObserverResult>& results);

// ---- The convention that a recorded backend and instruction set follow (backends.cc).

// "" if no convention is known. A convention of that name need not exist.
std::string ConventionName(const GoldenRecord& record);

}  // namespace qualm::golden

#endif  // QUALM_ORACLES_GOLDEN_RECORDS_H_
