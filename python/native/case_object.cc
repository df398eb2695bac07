// SPDX-License-Identifier: Apache-2.0
#include "python/native/case_object.h"

#include <array>
#include <iterator>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/io/case_json.h"
#include "triage/identify.h"

namespace qualm::python {
namespace {

namespace py = pybind11;

[[noreturn]] void Lacks(const Case& c, const std::string& what) {
  throw py::attribute_error(std::string(Name(c.op)) + " has no " + what);
}

bool ChannelsOf(const Case& c, PerChannel which) {
  const PerChannel lists = RowOf(c.op).per_channel;
  return c.per_channel &&
         (lists == which || (lists == PerChannel::kXAndOut && which != PerChannel::kW));
}

const QParams& OutQParamsOf(const Case& c) {
  static const QParams u8 = FixedOutQParams(DType::kU8), s8 = FixedOutQParams(DType::kS8);
  switch (RowOf(c.op).out_q) {
    case OutQParams::kOfInput: return c.x_q;
    case OutQParams::kFixed: return c.out_dtype == DType::kU8 ? u8 : s8;
    case OutQParams::kOwn:
    case OutQParams::kNone: break;
  }
  return c.out_q;
}

py::tuple PairOf(int64_t rows, int64_t columns) { return py::make_tuple(rows, columns); }

const Window& WindowOf(const Case& c, const char* what) {
  if (!HasWindow(c.op)) Lacks(c, what);
  return c.window;
}

// An entry per channel, or a row of entries where each block of weights, or of x, has one.
std::vector<int64_t> ShapeOfList(const Case& c, size_t entries, bool of_x = false) {
  const auto count = static_cast<int64_t>(entries);
  if (HasElementBlocks(c)) return {c.M, ElementBlocks(c)};
  if (of_x && c.x_block != 0) return {c.M, RowBlocks(c)};
  if (c.w_block != 0 && count != c.N) return {c.N, RowBlocks(c)};
  return {count};
}

// A size under its key in case files; -1 where the operation lacks it. N is in BindCase.
struct SizeOf {
  const char* name;
  int64_t (*of)(const Case& c);
  const char* doc;
};
template <int64_t Window::* kMember>
int64_t OfImage(const Case& c) {
  return HasWindow(c.op) ? c.window.*kMember : -1;
}
template <int64_t Window::* kMember>
int64_t OfKernel(const Case& c) {
  return c.op == Op::kGlobalAvgPool ? -1 : OfImage<kMember>(c);
}
constexpr std::array kSizes{
    SizeOf{"H", &OfImage<&Window::in_h>, "Rows of an input image."},
    SizeOf{"W", &OfImage<&Window::in_w>, "Columns of an input image."},
    SizeOf{"R", &OfKernel<&Window::kernel_h>, "Rows of the window."},
    SizeOf{"S", &OfKernel<&Window::kernel_w>, "Columns of the window."},
    SizeOf{"IC", [](const Case& c) { return IsConv(c.op) ? c.window.in_c : -1; },
           "Input channels of a convolution."},
    SizeOf{"OC", [](const Case& c) { return IsConv(c.op) ? c.N : -1; },
           "Output channels of a convolution."},
    SizeOf{"C", [](const Case& c) { return IsPool(c.op) ? c.window.in_c : -1; },
           "Channels of a pool."},
    SizeOf{"NA", [](const Case& c) { return c.op == Op::kConcat ? c.x.shape()[1] : -1; },
           "Columns of a."},
    SizeOf{"NB", [](const Case& c) { return c.op == Op::kConcat ? c.w.shape()[1] : -1; },
           "Columns of b."},
    SizeOf{"batches",
           [](const Case& c) { return c.op == Op::kChooseQParams ? c.x.shape()[0] : -1; },
           "Of choose_qparams: M rows of N values each."},
};

// The value of a parameter (FieldsOf in core/case.h).
struct ValueOf {
  CaseObject& object;
  const char* name;
  py::object operator()(bool value) const { return py::bool_(value); }
  py::object operator()(int32_t value) const { return py::int_(value); }
  py::object operator()(float value) const { return Float32(value); }
  py::object operator()(DType value) const { return py::cast(std::string(Name(value))); }
  template <NamedEnum E>
  py::object operator()(E value) const {
    return py::cast(std::string(Name(value)));
  }
  py::object operator()(const std::vector<float>& /*multiplier*/) const {
    return object.Multiplier();
  }
  py::object operator()(const std::optional<std::vector<float>>& list) const {
    return list ? object.Floats(name, *list) : py::none();
  }
  py::object operator()(const std::optional<std::vector<int32_t>>& list) const {
    return list ? object.Ints(name, *list) : py::none();
  }
};

}  // namespace

py::object CaseObject::ArrayNamed(const std::string& name, const Tensor& tensor) {
  py::object& array = arrays_[name];
  if (array) return array;
  if (context_) {
    RunContext context = *context_;
    if (name != "x" && !(name == "w" && HasTwoInputs(case_.op))) context.x_row_gap = 0;
    array = laid_.try_emplace(name, tensor, context).first->second.view();
  } else {
    array = ArrayOf(tensor);
  }
  return array;
}

py::object CaseObject::W() {
  if (!HasW(case_.op)) Lacks(case_, "w");
  if (context_ && context_->shared_inputs) return X();
  return ArrayNamed("w", case_.w);
}

py::object CaseObject::Floats(const char* name, const std::vector<float>& list) {
  return ArrayNamed(
      name, Tensor::Of<float>(
                ShapeOfList(case_, list.size(), std::string_view(name).starts_with("x_")), list));
}

py::object CaseObject::Ints(const char* name, const std::vector<int32_t>& list) {
  return ArrayNamed(
      name, Tensor::Of<int32_t>(
                ShapeOfList(case_, list.size(), std::string_view(name).starts_with("x_")), list));
}

py::object CaseObject::Scale(const char* name, const QParams& q, bool per_channel) {
  if (per_channel) return Floats(name, q.scale);
  return Float32(q.scale.front());
}

py::object CaseObject::ZeroPoint(const char* name, const QParams& q, bool per_channel) {
  if (per_channel) return Ints(name, q.zero_point);
  return py::int_(q.zero_point.front());
}

// x_scale*w_scale/out_scale: the product of two float32 is exact in double, so this is the double
// nearest to the real number.
py::object CaseObject::Multiplier() {
  const Case& c = case_;
  if (!RowOf(c.op).multiplier && !HasSums(c)) Lacks(c, "multiplier");
  if (!c.multiplier.empty()) {
    if (c.per_channel) return Floats("multiplier", c.multiplier);
    return Float32(c.multiplier.front());
  }
  std::vector<double> factors;
  for (const float scale : c.w_q.scale)
    factors.push_back(static_cast<double>(c.x_q.scale.front()) * static_cast<double>(scale) /
                      static_cast<double>(c.out_q.scale.front()));
  if (!ChannelsOf(c, PerChannel::kW)) return py::float_(factors.front());
  return py::array_t<double>(ShapeOfList(c, factors.size()), factors.data());
}

const WeightFormat& CaseObject::Format() const {
  if (format_ == nullptr)
    throw py::attribute_error("no format: these bytes are of functions that declare w_formats");
  return *format_;
}

py::object CaseObject::Packed(const char* name,
                              PackedRows (*pack)(const WeightFormat&, const Case&)) {
  const PackedRows rows = pack(Format(), case_);
  const auto count = rows.row_bytes == 0 ? 0 : std::ssize(rows.bytes) / rows.row_bytes;
  return ArrayNamed(name, Tensor::Of<uint8_t>({count, rows.row_bytes}, rows.bytes));
}

std::string CaseObject::Damaged() const {
  for (const auto& [name, laid] : laid_) {
    if (!laid.Intact()) return name;
  }
  return "";
}

void BindCase(py::module_& module) {
  using Object = CaseObject;
  using Held = std::shared_ptr<Object>;
  py::class_<Object, Held> bound(
      module, "Case",
      "One complete problem for one operation: sizes, parameters and data.\n\n"
      "Case(op, **fields) takes the keys of case files; x, w, a and b are arrays of any order.\n"
      "Raises qualm.InputError where a field is missing or wrong.");
  bound.def(
      py::init([](const std::string& op, const py::kwargs& fields) {
        const py::object text = py::module_::import("qualm._fields").attr("case_text");
        return std::make_shared<Object>(ParseCase(text(op, **fields).cast<std::string>(), "Case"));
      }),
      py::arg("op"));
  bound.def_static(
      "parse",
      [](const std::string& text, const std::string& name) {
        return std::make_shared<Object>(ParseCase(text, name));
      },
      py::arg("text"), py::arg("name") = "text",
      "The case of a text in the format of case files; errors begin with `name`.");
  bound.def_static(
      "read",
      [](const py::object& path) {
        const py::object as_text = py::module_::import("os").attr("fspath")(path);
        return std::make_shared<Object>(ReadCaseFile(as_text.cast<std::string>()));
      },
      py::arg("path"), "The case of a file.");
  bound.def(
      "write",
      [](const Object& o, const py::object& path) {
        const py::object as_text = py::module_::import("os").attr("fspath")(path);
        WriteCaseFile(o.problem(), as_text.cast<std::string>());
      },
      py::arg("path"), "Writes a case file, in one step.");
  bound.def(
      "json", [](const Object& o) { return CaseToJson(o.problem()); }, "The text of a case file.");
  bound.def("__str__", [](const Object& o) { return Describe(o.problem()); });
  bound.def("__repr__", [](const Object& o) {
    return "<qualm.Case " + Describe(o.problem()) + ": " + triage::Brief(o.problem()) + ">";
  });
  bound.def("_repr_html_", [](const Object& o) {
    const py::object html = py::module_::import("html").attr("escape");
    return "<pre>" +
           html(Describe(o.problem()) + "\n" + triage::Brief(o.problem())).cast<std::string>() +
           "</pre>";
  });
  bound.def("__eq__", [](const Object& a, const py::object& b) {
    return py::isinstance<Object>(b) && a.problem() == b.cast<const Object&>().problem();
  });
  bound.def("__hash__",
            [](const Object& o) { return std::hash<std::string>()(ProblemKey(o.problem())); });

  const auto get = [&](const char* name, auto getter, const char* doc) {
    bound.def_property_readonly(name, getter, doc);
  };
  get("op", [](const Object& o) { return std::string(Name(o.problem().op)); }, "\"conv2d\"");
  get("M", [](const Object& o) { return o.problem().M; }, "Rows of the output.");
  get(
      "N", [](const Object& o) { return o.problem().N; },
      "Channels of the output, of images too, where N of a case file numbers the images.");
  for (const SizeOf& size : kSizes) {
    get(
        size.name,
        [size](const Object& o) {
          const int64_t value = size.of(o.problem());
          if (value < 0) Lacks(o.problem(), size.name);
          return value;
        },
        size.doc);
  }
  get("K", [](const Object& o) { return o.problem().K; }, "Terms of one sum, else 0.");
  get(
      "shape", [](const Object& o) { return py::tuple(py::cast(o.problem().output_shape())); },
      "The shape of the output.");
  get("x", [](Object& o) { return o.X(); }, "The input, an array.");
  get(
      "w", [](Object& o) { return o.W(); },
      "The weights: (N, K), of convolutions (N, R, S, C/groups).");
  get(
      "a",
      [](Object& o) {
        if (!HasTwoInputs(o.problem().op)) Lacks(o.problem(), "a");
        return o.X();
      },
      "The first of two inputs.");
  get(
      "b",
      [](Object& o) {
        if (!HasTwoInputs(o.problem().op)) Lacks(o.problem(), "b");
        return o.W();
      },
      "The second of two inputs.");
  get(
      "x_type", [](const Object& o) { return std::string(Name(o.problem().x.dtype())); },
      "The element type of x: \"u8\".");
  get(
      "w_type",
      [](const Object& o) {
        if (!HasW(o.problem().op)) Lacks(o.problem(), "w");
        return std::string(Name(o.problem().w.dtype()));
      },
      "The element type of w.");
  get(
      "out_type", [](const Object& o) { return std::string(Name(o.problem().out_dtype)); },
      "The element type of the output.");
  get(
      "x_dtype", [](const Object& o) { return NumpyType(o.problem().x.dtype()); },
      "The NumPy type of x.");
  get(
      "w_dtype",
      [](const Object& o) {
        if (!HasW(o.problem().op)) Lacks(o.problem(), "w");
        return NumpyType(o.problem().w.dtype());
      },
      "The NumPy type of w.");
  get(
      "out_dtype", [](const Object& o) { return NumpyType(o.problem().out_dtype); },
      "The NumPy type of the output.");
  get(
      "gran",
      [](const Object& o) { return std::string(o.problem().per_channel ? "channel" : "tensor"); },
      "As in case files: \"channel\" where per_channel, else \"tensor\".");
  get(
      "per_channel", [](const Object& o) { return o.problem().per_channel; },
      "Whether parameters are arrays with an entry per channel.");

  // Scales and zero points.
  const auto qparams = [&](const char* scale, const char* zero_point, auto find) {
    get(
        scale,
        [scale, find](Object& o) {
          const auto [q, per_channel] = find(o.problem(), scale);
          return o.Scale(scale, *q, per_channel);
        },
        "np.float32, or a float32 array with one entry per channel.");
    get(
        zero_point,
        [zero_point, find](Object& o) {
          const auto [q, per_channel] = find(o.problem(), zero_point);
          return o.ZeroPoint(zero_point, *q, per_channel);
        },
        "int, or an int32 array with one entry per channel.");
  };
  using Found = std::pair<const QParams*, bool>;
  // A cast has scales alone.
  const auto is_scale_of_cast = [](const Case& c, const char* what) {
    return RowOf(c.op).cast && std::string_view(what).ends_with("_scale");
  };
  const auto of_x = [is_scale_of_cast](const Case& c, const char* what) -> Found {
    if (!HasXQParams(c) && !is_scale_of_cast(c, what)) Lacks(c, what);
    return {&c.x_q, ChannelsOf(c, PerChannel::kX) || c.x_block != 0};
  };
  const auto of_w = [](const Case& c, const char* what) -> Found {
    if (!HasW(c.op) && !RowOf(c.op).multiplier) Lacks(c, what);
    return {&c.w_q, ChannelsOf(c, PerChannel::kW)};
  };
  const auto of_pairs = [](const auto& of) {
    return [of](const Case& c, const char* what) -> Found {
      if (!HasTwoInputs(c.op)) Lacks(c, what);
      return of(c, what);
    };
  };
  qparams("x_scale", "x_zp", of_x);
  qparams("w_scale", "w_zp", of_w);
  qparams("a_scale", "a_zp", of_pairs(of_x));
  qparams("b_scale", "b_zp", of_pairs(of_w));
  qparams("out_scale", "out_zp", [is_scale_of_cast](const Case& c, const char* what) -> Found {
    if (RowOf(c.op).out_q == OutQParams::kNone && !is_scale_of_cast(c, what)) Lacks(c, what);
    const bool in_blocks = HasElementBlocks(c) && &ChannelQParams(c) == &c.out_q;
    return {&OutQParamsOf(c), ChannelsOf(c, PerChannel::kOut) || in_blocks};
  });
  get(
      "out_min", [](const Object& o) { return o.problem().out_min; },
      "The smallest code of the output; with relu it is the larger of this and the zero point.");
  get(
      "out_max", [](const Object& o) { return o.problem().out_max; },
      "The largest code of the output.");

  get(
      "kernel",
      [](const Object& o) {
        const Window& v = WindowOf(o.problem(), "kernel");
        return PairOf(v.kernel_h, v.kernel_w);
      },
      "(rows, columns) of the window.");
  get(
      "stride",
      [](const Object& o) {
        const Window& v = WindowOf(o.problem(), "stride");
        return PairOf(v.stride_h, v.stride_w);
      },
      "(rows, columns)");
  get(
      "dilation",
      [](const Object& o) {
        const Window& v = WindowOf(o.problem(), "dilation");
        return PairOf(v.dilation_h, v.dilation_w);
      },
      "(rows, columns)");
  get(
      "pad",
      [](const Object& o) {
        const Window& v = WindowOf(o.problem(), "pad");
        return py::make_tuple(v.pad_top, v.pad_bottom, v.pad_left, v.pad_right);
      },
      "(top, bottom, left, right) in pixels of real value 0, which is the code x_zp.");
  get(
      "groups", [](const Object& o) { return WindowOf(o.problem(), "groups").groups; },
      "Groups of channels of a convolution.");

  // Each parameter under its key in case files.
  const Case any;
  ForEachParameter(any, [&](const Field& field, const auto& /*value*/) {
    static std::vector<std::unique_ptr<std::string>>& names =
        *new std::vector<std::unique_ptr<std::string>>();
    names.push_back(std::make_unique<std::string>(field.name));
    const char* const name = names.back()->c_str();
    const auto has = field.has;
    get(
        name,
        [name, has](Object& o) {
          const Case& c = o.problem();
          const bool multiplies = std::string_view(name) == "multiplier" && HasSums(c);
          if (has != nullptr && !(RowOf(c.op).*has) && !multiplies) Lacks(c, name);
          py::object found;
          ForEachParameter(c, [&](const Field& each, const auto& value) {
            if (each.name == name) found = ValueOf{o, name}(value);
          });
          return found;
        },
        "As in case files.");
  });

  get(
      "w_format", [](const Object& o) { return std::string(o.Format().name); },
      "Of functions that declare w_formats: the format of the weights, \"q4_0\".");
  get(
      "w_packed", [](Object& o) { return o.Packed("w_packed", &PackedWeights); },
      "Likewise: the bytes that llama.cpp stores, uint8 of shape (N, bytes of a row).");
  get(
      "x_packed", [](Object& o) { return o.Packed("x_packed", &PackedActivations); },
      "Likewise: rows of q8_0, q8_1 or q8_K, uint8 of shape (M, bytes of a row).");
  get(
      "k_packed", [](const Object& o) { return PackedDepth(o.Format(), o.problem().K); },
      "Likewise: K, filled up to whole blocks.");
  get(
      "property", [](const Object& o) { return o.problem().property; },
      "The claim that the case is about, \"\" if none.");
  get(
      "contract", [](const Object& o) { return o.problem().contract; },
      "The contract that the claim was judged by, \"\" if not told.");
  get("note", [](const Object& o) { return o.problem().note; }, "One sentence, \"\" if none.");
  get(
      "expected",
      [](const Object& o) -> py::object {
        if (!o.problem().expected) return py::none();
        return ArrayOf(*o.problem().expected);
      },
      "The right output that the file holds, or None.");
  get(
      "observed",
      [](const Object& o) -> py::object {
        if (!o.problem().observed) return py::none();
        return ArrayOf(o.problem().observed->y);
      },
      "The output that somebody gave, or None.");
  get(
      "observed_by",
      [](const Object& o) { return o.problem().observed ? o.problem().observed->by : ""; },
      "Who gave it, \"\" if nobody.");
}

}  // namespace qualm::python
