// SPDX-License-Identifier: Apache-2.0
// qualm new: a project that puts a kernel under test, from the templates of examples/new.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "core/executable.h"
#include "core/io/shell_word.h"
#include "core/io/text_file.h"
#include "core/op.h"
#include "core/status.h"
#include "core/types.h"
#include "core/weight_formats.h"
#include "tools/command.h"
#include "tools/ops.h"

namespace qualm::tools {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string what, name, op = "linear", dtype, format, language = "c++";
};

// What somebody who writes a kernel has to know of a layout: shapes, and sizes by the tensors.
struct Shape {
  Layout layout;
  std::string_view x, w, y;
  std::string_view sizes;
};
constexpr std::array<Shape, 5> kShapes{{
    {Layout::kElements, "[M,N]", "[M,N]", "[M,N]", "M = p.y->dims[0], N = p.y->dims[1]"},
    {Layout::kProducts, "[M,K]", "[N,K]", "[M,N]",
     "M = p.y->dims[0], N = p.y->dims[1], K = p.x->dims[1]"},
    {Layout::kConv, "[B,H,W,C]", "[N,R,S,C/groups]", "[B,OH,OW,N]",
     "B = p.x->dims[0], H = p.x->dims[1], W = p.x->dims[2], C = p.x->dims[3],\n"
     "                OH = p.y->dims[1], OW = p.y->dims[2], N = p.y->dims[3]"},
    {Layout::kPool, "[B,H,W,C]", "", "[B,OH,OW,C]",
     "B = p.x->dims[0], H = p.x->dims[1], W = p.x->dims[2], C = p.x->dims[3],\n"
     "                OH = p.y->dims[1], OW = p.y->dims[2]"},
    {Layout::kColumns, "[M,A]", "[M,N-A]", "[M,N]",
     "M = p.y->dims[0], N = p.y->dims[1], A = p.x->dims[1]"},
}};

struct Types {
  DType x, w, y;
};

bool IsFloatX(Op op, DType x) { return RowOf(op).float_x && x == DType::kF32; }

DTypeList TypesOfY(Op op, DType x) {
  if (IsFloatX(op, x)) return kReals;
  return KeepsType(op) ? DTypeList{{x}, 1} : RowOf(op).out_types;
}

// "u8s8s32": the types of x, of weights where there are some, and of y.
Types ParseTypes(Op op, const std::string& text) {
  const OpRow& row = RowOf(op);
  std::string_view rest = text;
  // The longest name that the text begins with, of the list.
  const auto next = [&](std::string_view tensor, const DTypeList& types) {
    std::optional<DType> found;
    for (const DType dtype : types) {
      if (rest.starts_with(Name(dtype)) && (!found || Name(dtype).size() > Name(*found).size()))
        found = dtype;
    }
    if (!found) {
      throw InputError(fmt::format("--dtype: {} is '{}', expected {}", tensor, rest, Join(types)));
    }
    rest.remove_prefix(Name(*found).size());
    return *found;
  };
  Types types{row.x_types.front(), DType::kS8, DType::kU8};
  if (!text.empty()) types.x = next("the type of x", row.float_x ? kCodesOrFloat : row.x_types);
  types.w = types.x;
  if (HasWeights(op)) types.w = text.empty() ? DType::kS8 : next("the type of w", kWeightCodes);
  const DTypeList of_y = TypesOfY(op, types.x);
  // Raw sums are where one begins.
  types.y = HasSums(op) && of_y.contains(DType::kS32) ? DType::kS32 : of_y.front();
  if (!rest.empty()) types.y = next("the type of y", of_y);
  if (!rest.empty()) {
    throw InputError(
        fmt::format("--dtype: is '{}', expected nothing behind the type of y, '{}'", text, rest));
  }
  return types;
}

// The type of C that an element is read by: where it is smaller than a byte, or a float that C
// does not have, its bits.
std::string_view TypeOfC(DType dtype) {
  switch (dtype) {
    case DType::kF32: return "float";
    case DType::kS32: return "int32_t";
    case DType::kS8: return "int8_t";
    case DType::kS16: return "int16_t";
    default: return BitsOf(dtype) > 8 ? "uint16_t" : "uint8_t";
  }
}

std::string Capitals(std::string_view text) {
  std::string capitals(text);
  for (char& ch : capitals) ch = static_cast<char>(std::toupper(static_cast<unsigned char>(ch)));
  return capitals;
}

// "max_pool": "MaxPool".
std::string FunctionName(std::string_view op) {
  std::string name;
  bool begins = true;
  for (const char ch : op) {
    if (ch != '_') name += begins ? Capitals(std::string_view(&ch, 1))[0] : ch;
    begins = ch == '_';
  }
  return name;
}

// The declarations that a kernel begins with.
std::string Sizes(Op op, const Shape& shape, const Types& types, bool is_c) {
  const OpRow& row = RowOf(op);
  std::string text = fmt::format("  const int64_t {};\n", shape.sizes);
  const auto tensor = [&](std::string_view name, DType dtype, bool is_read) {
    const std::string type = fmt::format("{}{}", is_read ? "const " : "", TypeOfC(dtype));
    text += is_c ? fmt::format("  {0}* {1} = ({0}*)p.{1}->data;\n", type, name)
                 : fmt::format("  {0}* {1} = Row<{0}>(*p.{1});\n", type, name);
  };
  const auto qparams = [&](std::string_view name) {
    text += fmt::format(
        "  const float {0}_scale = p.{0}_q.scale[0];\n"
        "  const int32_t {0}_zero_point = p.{0}_q.zero_point[0];\n",
        name);
  };
  tensor("x", types.x, true);
  if (HasW(op)) tensor("w", types.w, true);
  tensor("y", types.y, false);
  if (row.x_qparams && !IsFloatX(op, types.x)) qparams("x");
  if (HasW(op)) qparams("w");
  if (IsCode(types.y)) qparams("out");
  if (row.multiplier)
    text += "  const float multiplier = p.multiplier_count != 0 ? p.multiplier[0] : 0;\n";
  if (HasWindow(op)) text += "  const qualm_window* window = p.window;\n";
  if (row.function) text += "  const int32_t function = p.function; /* QUALM_RELU, ... */\n";
  if (row.dynamic)
    text += "  const qualm_choice* choice = p.choice; /* of scale and zero point of x */\n";
  if (row.cast) text += "  const int32_t rounding = p.rounding, overflow = p.overflow;\n";
  text.pop_back();
  return text;
}

// The same of a product of blocks as llama.cpp stores them, whose rows are bytes.
std::string SizesInBlocks(const WeightFormat& format, bool is_c) {
  const auto cast = [&](const char* type, const char* of) {
    return is_c ? fmt::format("({}){}", type, of) : fmt::format("static_cast<{}>({})", type, of);
  };
  return fmt::format(
      "  const int64_t M = p.y->dims[0], N = p.y->dims[1], K = p.k_packed;\n"
      "  const uint8_t* w = {}; /* N rows of {}, p.w_row_bytes each */\n"
      "  const uint8_t* x = {}; /* M rows of {}, p.x_row_bytes each */\n"
      "  float* y = {};",
      cast("const uint8_t*", "p.w_packed"), format.name, cast("const uint8_t*", "p.x_packed"),
      NameOfActivations(format), cast("float*", "p.y->data"));
}

// Which zero points are asked for: those of weights of a signed type are 0 in most libraries.
std::string Limits(Op op, const Types& types) {
  std::string text;
  const auto limit = [&](std::string_view tensor, DType dtype, bool has_zero_point, bool is_0) {
    text += fmt::format("  limits.{}_dtypes = QUALM_TYPE_BIT(QUALM_{});\n", tensor,
                        Capitals(Name(dtype)));
    if (!has_zero_point || !IsCode(dtype) || is_0) return;
    const CodeRange codes = RangeOf(dtype);
    text += fmt::format("  limits.{0}_zero_point_min = {1};\n  limits.{0}_zero_point_max = {2};\n",
                        tensor, codes.min, codes.max);
  };
  limit("x", types.x, RowOf(op).x_qparams, false);
  if (HasW(op)) limit("w", types.w, true, HasWeights(op) && RangeOf(types.w).min < 0);
  limit("out", types.y, true, false);
  text.pop_back();
  return text;
}

// What a kernel may offer besides: a flag of plugins, and an argument of @qualm.property, "" where
// Python has none.
struct Feature {
  bool concerns;
  std::string_view flag, argument;
};
std::array<Feature, 22> FeaturesOf(Op op) {
  const OpRow& row = RowOf(op);
  const bool is_conv = row.layout == Layout::kConv;
  return {{
      {row.bias, "BIAS_F32", "bias=\"f32\""},
      {row.bias_i32, "BIAS_I32", "bias=True"},
      {row.relu, "RELU", "relu=True"},
      {row.clamp, "CLAMP", "clamp=True"},
      {HasChannelList(op), "PER_CHANNEL", "per_channel=True"},
      {row.dynamic, "PER_ROW", "per_row=True"},
      {row.blocks, "PER_BLOCK", "per_block=True"},
      {row.float_x, "FLOAT_X", "x=\"f32\""},
      {row.x_blocks, "X_PER_BLOCK", ""},
      {true, "STRIDES", "strides=True"},
      {HasWeights(op), "WEIGHT_STRIDES", ""},
      {HasWindow(op), "LINE_STRIDES", ""},
      {true, "EMPTY", "empty=True"},
      {HasWeights(op), "EMPTY_K", "empty_k=True"},
      {HasSums(op), "ACC", ""},
      {row.in_place, "IN_PLACE", ""},
      {HasTwoOperands(op), "OVER_SECOND", ""},
      {row.dilation, "DILATION", "dilation=True"},
      {is_conv && !row.depthwise, "GROUPS", "groups=True"},
      {HasWindow(op) && !row.whole_image, "ASYMMETRIC_PADDING", "asymmetric_padding=True"},
      {row.ceil_mode, "CEIL_MODE", "ceil_mode=True"},
      {true, "THREADS", ""},
  }};
}

// The features that concern the operation, in lines that begin with `margin`.
std::string Features(Op op, std::string_view margin, bool is_python) {
  std::string text, line;
  for (const Feature& feature : FeaturesOf(op)) {
    if (!feature.concerns || (is_python && feature.argument.empty())) continue;
    const std::string word =
        is_python ? std::string(feature.argument) : fmt::format("QUALM_CAN_{}", feature.flag);
    if (line.size() + word.size() > 90) {
      text += line + "\n" + std::string(margin);
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return text + line;
}

// What a Python function begins with: the attributes of the case, in lines of one kind.
std::string SizesInPython(Op op, const Types& types) {
  const OpRow& row = RowOf(op);
  const bool is_pair = HasTwoInputs(op);
  std::string text;
  const auto line = [&](const std::vector<std::string>& names) {
    if (names.empty()) return;
    text += fmt::format("    {} = c.{}\n", fmt::join(names, ", "), fmt::join(names, ", c."));
  };
  std::vector<std::string> inputs{is_pair ? "a" : "x"}, scaled;
  if (row.x_qparams && !IsFloatX(op, types.x)) scaled = inputs;
  if (HasW(op)) {
    inputs.emplace_back(is_pair ? "b" : "w");
    scaled.push_back(inputs.back());
  }
  if (HasOutQParams(op) && IsCode(types.y)) scaled.emplace_back("out");
  line(inputs);
  for (const std::string& name : scaled) line({name + "_scale", name + "_zp"});
  if (HasSums(op) && IsCode(types.y)) line({"multiplier"});
  if (HasWindow(op) && !row.whole_image) {
    if (row.layout == Layout::kPool) line({"kernel"});
    line({"stride", "pad"});
  }
  if (row.function) line({"function"});
  if (row.cast) line({"rounding", "overflow"});
  text.pop_back();
  return text;
}

std::string TypesInPython(Op op, const Types& types) {
  std::string text = fmt::format("x=\"{}\"", Name(types.x));
  if (HasWeights(op)) text += fmt::format(", w=\"{}\"", Name(types.w));
  if (!KeepsType(op)) text += fmt::format(", out=\"{}\"", Name(types.y));
  return text;
}

using Words = std::vector<std::pair<std::string_view, std::string>>;

// Puts the words in the place of their names, "@NAME@".
std::string Filled(std::string text, const Words& words) {
  for (const auto& [name, word] : words) {
    const std::string place = fmt::format("@{}@", name);
    for (size_t at = text.find(place); at != std::string::npos; at = text.find(place, at)) {
      text.replace(at, place.size(), word);
      at += word.size();
    }
  }
  return text;
}

void RequireName(const std::string& name) {
  const bool is_word = std::ranges::all_of(
      name, [](unsigned char ch) { return ch < 0x80 && (std::isalnum(ch) != 0 || ch == '_'); });
  if (!is_word || std::isdigit(static_cast<unsigned char>(name[0])) != 0) {
    throw InputError(
        fmt::format("NAME: is '{}', expected letters, digits and _, as of a C name", name));
  }
  if (fs::exists(name)) {
    throw InputError(fmt::format("NAME: '{}' exists already, expected a new folder", name));
  }
}

// nullptr where none is asked for.
const WeightFormat* FormatOf(const Options& options) {
  if (options.format.empty()) return nullptr;
  if (options.what == "python" || options.op != "linear" || !options.dtype.empty())
    throw InputError("--format: is for linear of a plugin, and without --dtype");
  const auto* const format = std::ranges::find(kWeightFormats, options.format, &WeightFormat::name);
  if (format != kWeightFormats.end()) return *format;
  throw InputError(
      fmt::format("--format: is '{}', expected one of {}", options.format, AllFormatNames()));
}

int RunNew(const Options& options) {
  const Op op = OpNamed(options.op, "--op");
  const bool is_python = options.what == "python";
  const WeightFormat* const format = FormatOf(options);
  if (op == Op::kChooseQParams) {
    throw InputError("--op: choose_qparams is no operation of kernels, expected another");
  }
  const Types types = ParseTypes(op, options.dtype);
  RequireName(options.name);

  const bool is_c = options.language == "c";
  const Shape& shape = *std::ranges::find(kShapes, RowOf(op).layout, &Shape::layout);
  const auto typed = [](std::string_view name, DType dtype, std::string_view dims) {
    return fmt::format("{} {} {}", name, Name(dtype), dims);
  };
  std::string shapes = typed("x", types.x, shape.x);
  if (HasW(op)) shapes += ", " + typed("w", types.w, shape.w);
  shapes += " -> " + typed("y", types.y, shape.y);
  if (format != nullptr)
    shapes = fmt::format("x [M,K] in {}, w [N,K] in {} -> y f32 [M,N]", NameOfActivations(*format),
                         format->name);
  const std::string source = options.name + (is_c ? ".c" : ".cc");
  const Words words{
      {"NAME", options.name},
      {"OP", options.op},
      {"OP_CAPITALS", Capitals(options.op)},
      {"FUNCTION", FunctionName(options.op)},
      {"LANGUAGES", is_c ? "C" : "CXX"},
      {"STANDARD", is_c ? "set(CMAKE_C_STANDARD 11)" : "set(CMAKE_CXX_STANDARD 17)"},
      {"SOURCE", source},
      {"SHAPES", shapes},
      {"SIZES", format != nullptr ? SizesInBlocks(*format, is_c)
                : is_python       ? SizesInPython(op, types)
                                  : Sizes(op, shape, types, is_c)},
      {"TYPES", TypesInPython(op, types)},
      {"LIMITS", format != nullptr ? fmt::format("  limits.w_formats = \"{}\";", format->name)
                                   : Limits(op, types)},
      // A float sum rounds in the mode of its caller.
      {"SKIP", format != nullptr ? " --skip environment" : ""},
      {"CONTRACT", format == nullptr       ? "exact"
                   : format->offsets_apart ? "sum+offsets"
                                           : "sum"},
      {"CAN", IsFloatX(op, types.x) ? "QUALM_CAN_FLOAT_X" : "0"},
      {"FEATURES", Features(op,
                            is_python ? "#   "
                            : is_c    ? " *   "
                                      : "//   ",
                            is_python)},
  };
  const std::string templates = InstalledData("examples", QUALM_SOURCE_DIR "/examples") + "/new/";
  std::vector<std::pair<std::string, std::string>> files{
      {"CMakeLists.txt.in", "CMakeLists.txt"},
      {is_c ? "plugin.c.in" : "plugin.cc.in", source},
      {"qualm.yml.in", ".github/workflows/qualm.yml"},
  };
  if (is_python) files = {{"test.py.in", "test_" + options.name + ".py"}};
  for (const auto& [from, to] : files) {
    const fs::path path = fs::path(options.name) / to;
    fs::create_directories(path.parent_path());
    WriteTextFile(path.string(),
                  Filled(ReadTextFile(templates + from, "template", 1 << 16), words));
  }

  if (is_python) {
    Out(
        fmt::format("{0}/test_{0}.py  your function goes into test_{0}()\n"
                    "next: cd {0}\n"
                    "      pytest -k matches_exact\n",
                    options.name));
    return kClean;
  }
  const std::string own = ExecutableFolder();
  const std::string installed = own + "../include/qualm/adapters";
  const fs::path headers = fs::exists(installed) ? installed : QUALM_SOURCE_DIR "/adapters";
  Out(
      fmt::format("{0}/{1}  your kernel goes into {2}\n"
                  "next: cd {0}\n"
                  "      cmake -S . -B build -DQUALM={3} -DQUALM_INCLUDE={4}\n"
                  "      cmake --build build && ctest --test-dir build --output-on-failure\n",
                  options.name, source, is_c ? "run()" : FunctionName(options.op) + "()",
                  ShellWord(fs::path(own + "qualm").string()),
                  ShellWord(fs::weakly_canonical(headers).string())));
  return kClean;
}

}  // namespace

void AddNew(CLI::App& app, Run* run) {
  auto options = std::make_shared<Options>();
  Verb verb(app, run, "new", "a project that puts your kernel under test",
            "Example: qualm new plugin my_kernels --op linear --dtype u8s8s32");
  verb.Text("WHAT", options->what, "plugin, or python: a test of a Python function for pytest")
      .Required()
      .OneOf({"plugin", "python"});
  verb.Text("NAME", options->name, "of the plugin or test, and of the folder that is made")
      .Required();
  verb.Text("--op", options->op, "the operation of its first kernel; linear if not given");
  verb.Text("--dtype", options->dtype,
            "element types of x, of weights if there are some, and of y: u8s8s32");
  verb.Text("--format", options->format,
            "linear of weights in blocks as llama.cpp stores them: q4_0, q4_k, ...");
  verb.Text("--language", options->language, "of a plugin: c or c++").OneOf({"c", "c++"});
  verb.Does([options] { return RunNew(*options); });
}

}  // namespace qualm::tools
