// SPDX-License-Identifier: Apache-2.0
// Our kernels: "qualm" is the best instruction set of this processor, or that which the environment
// names (QUALM_BENCH_TARGET=AVX2), "qualm@NAME" a forced one.
#include <cctype>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "bench/bench.h"
#include "kernels/binary.h"
#include "kernels/block_linear.h"
#include "kernels/block_quantize.h"
#include "kernels/cast.h"
#include "kernels/conv.h"
#include "kernels/dynamic_linear.h"
#include "kernels/elementwise.h"
#include "kernels/linear.h"
#include "kernels/nbits_linear.h"
#include "kernels/pool.h"
#include "kernels/softmax.h"
#include "kernels/table.h"
#include "kernels/targets.h"
#include "kernels/unpack.h"

namespace qualm::bench {
namespace {

namespace k = qualm::kernels;
using Type = k::ElementType;

// Depths at which the cost of exact rounding is watched.
const std::vector<Linear> kModes = {{64, 64, 64}, {128, 256, 256}, {64, 512, 1024}};

void Require(const k::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "qualm_bench: %s\n", status.error.c_str());
  std::exit(1);
}

// `prepare` and its run on one instruction set. Joins under `who`, or `who` and more.
class Side {
 public:
  Side(std::string target, std::string who) : target_(std::move(target)), who_(std::move(who)) {}

  void Join(const std::string& work, double items, std::function<Run()> prepare) const {
    if (target_.empty()) return bench::Join(work, who_, items, std::move(prepare));
    bench::Join(work, who_, items, [target = target_, prepare = std::move(prepare)] {
      const k::ScopedTarget scoped(target);
      return Run([target, run = prepare()] {
        const k::ScopedTarget forced(target);
        run();
      });
    });
  }

 private:
  std::string target_, who_;
};

k::ConstMatrix Row(const void* data, Type type, int64_t n) { return {data, type, 1, n, n}; }
k::MutableMatrix RowOut(void* data, Type type, int64_t n) { return {data, type, 1, n, n}; }

// The spans and codes that the parameters of a layer point into.
struct Layer {
  Layer(int64_t outputs, int64_t depth, WeightKind kind = WeightKind::kUniform)
      : weights(Weights(Linear{0, outputs, depth, kind}, 2)), bias(Sums(outputs, 1000, 3)) {
    for (int64_t n = 0; n < outputs; ++n) scales.push_back(WeightScale(n));
    params.weights = {weights->data(), Type::kS8, outputs, depth, depth};
    params.x_scale = kXScale;
    params.x_zero_point = kXZero;
    params.w_scale = scales;
    params.w_zero_point = {&no_zero, 1};
    params.bias_i32 = *bias;
    params.y_scale = LayerScale(depth);
    params.y_zero_point = kYZero;
  }
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  Buffer<int8_t> weights;
  Buffer<int32_t> bias;
  std::vector<float> scales;
  int32_t no_zero = 0;
  k::LinearParams params;
};

Run PrepareLinear(const Linear& shape, bool packing_included,
                  k::Requantization requantization = k::Requantization::kExact) {
  const auto layer = std::make_shared<Layer>(shape.n, shape.k, shape.weights);
  layer->params.requantization = requantization;
  const auto packed = std::make_shared<k::PackedLinear>();
  Require(k::PackedLinear::Pack(layer->params, packed.get()));
  const auto scratch = Zeros<uint8_t>(static_cast<int64_t>(packed->ScratchBytes(shape.m)));
  return [=, x = Codes(shape.m * shape.k, 1), y = Zeros<uint8_t>(shape.m * shape.n)] {
    if (packing_included) Require(k::PackedLinear::Pack(layer->params, packed.get()));
    Require(packed->Run({x->data(), Type::kU8, shape.m, shape.k, shape.k},
                        {y->data(), Type::kU8, shape.m, shape.n, shape.n}, *scratch));
  };
}

Run PrepareConv(const Conv& shape) {
  const auto layer = std::make_shared<Layer>(shape.outputs, shape.Depth());
  k::ConvParams params;
  params.layer = layer->params;
  params.in_channels = shape.channels;
  params.groups = shape.depthwise ? shape.channels : 1;
  params.window.kernel_h = params.window.kernel_w = shape.kernel;
  params.window.stride_h = params.window.stride_w = shape.stride;
  params.window.pad_top = params.window.pad_bottom = shape.padding;
  params.window.pad_left = params.window.pad_right = shape.padding;
  const auto packed = std::make_shared<k::PackedConv>();
  Require(k::PackedConv::Pack(params, packed.get()));
  const int64_t size = shape.size, channels = shape.channels;
  const int64_t pixels = shape.OutSize() * shape.OutSize();
  const auto scratch = Zeros<uint8_t>(static_cast<int64_t>(packed->ScratchBytes(1, size, size)));
  return [=, x = Codes(size * size * channels, 1), y = Zeros<uint8_t>(pixels * shape.outputs)] {
    k::ConstImages images{x->data(), Type::kU8, 1, size, size, channels};
    images.pixel_stride = channels;
    images.row_stride = size * channels;
    images.image_stride = size * size * channels;
    Require(packed->Run(images, {y->data(), Type::kU8, pixels, shape.outputs, shape.outputs},
                        *scratch));
  };
}

Run PrepareQuantize(int64_t n, bool ties) {
  const auto x = Reals(n, 1);
  // Half a step beside each code; exactly representable with the scale 0.75.
  if (ties) {
    for (size_t i = 0; i < x->size(); ++i) (*x)[i] = (static_cast<float>(i % 200) + 0.5f) * 0.75f;
  }
  return [=, y = Zeros<uint8_t>(n), scale = ties ? 0.75f : kXScale] {
    Require(k::Quantize(Row(x->data(), Type::kF32, n), {&scale, 1}, {&kXZero, 1}, {},
                        RowOut(y->data(), Type::kU8, n)));
  };
}

Run PrepareDequantize(int64_t n) {
  return [n, x = Codes(n, 1), y = Zeros<float>(n)] {
    Require(k::Dequantize(Row(x->data(), Type::kU8, n), {&kXScale, 1}, {&kXZero, 1},
                          RowOut(y->data(), Type::kF32, n)));
  };
}

// Multipliers as layers have them, a quotient of three scales, and as a float32.
Run PrepareRequantize(int64_t n, const k::Multiplier& multiplier) {
  return [n, multiplier, x = Sums(n, 100000, 1), y = Zeros<uint8_t>(n)] {
    Require(k::Requantize(Row(x->data(), Type::kS32, n), {&multiplier, 1}, kYZero, {},
                          RowOut(y->data(), Type::kU8, n)));
  };
}

template <class Function>
Run PrepareBinary(int64_t n, const Function& function) {
  return [n, function, a = Codes(n, 1), b = Codes(n, 2), y = Zeros<uint8_t>(n)] {
    Require(function(Row(a->data(), Type::kU8, n), k::Quantization{kXScale, kXZero},
                     Row(b->data(), Type::kU8, n), k::Quantization{kBScale, kBZero},
                     k::Quantization{kYScale, kYZero}, k::OutputRange{},
                     RowOut(y->data(), Type::kU8, n)));
  };
}

Run PrepareRescale(int64_t n) {
  return [n, x = Codes(n, 1), y = Zeros<uint8_t>(n)] {
    Require(k::RescaleCodes(Row(x->data(), Type::kU8, n), {kXScale, kXZero}, {kYScale, kYZero}, {},
                            RowOut(y->data(), Type::kU8, n)));
  };
}

Run PrepareTable(int64_t n) {
  const auto table = std::make_shared<k::PackedTable>();
  k::TableParams params;
  params.function = k::TableFunction::kSigmoid;
  params.x_q = {kXScale, kXZero};
  params.y_q = {1.0f / 256, 0};
  Require(k::PackedTable::Build(params, table.get()));
  return [=, x = Codes(n, 1), y = Zeros<uint8_t>(n)] {
    Require(table->Run(Row(x->data(), Type::kU8, n), RowOut(y->data(), Type::kU8, n)));
  };
}

Run PreparePool(const Pool& shape) {
  k::PoolShape pool;
  pool.window.kernel_h = pool.window.kernel_w = shape.kernel;
  pool.window.stride_h = pool.window.stride_w = shape.stride;
  pool.window.pad_top = pool.window.pad_bottom = shape.padding;
  pool.window.pad_left = pool.window.pad_right = shape.padding;
  pool.out_h = pool.out_w = shape.OutSize();
  const int64_t size = shape.size, channels = shape.channels, pixels = pool.out_h * pool.out_w;
  return [=, is_max = shape.is_max, x = Codes(size * size * channels, 1),
          y = Zeros<uint8_t>(pixels * channels)] {
    k::ConstImages images{x->data(), Type::kU8, 1, size, size, channels};
    images.pixel_stride = channels;
    images.row_stride = size * channels;
    images.image_stride = size * size * channels;
    const k::MutableMatrix out{y->data(), Type::kU8, pixels, channels, channels};
    Require(is_max
                ? k::MaxPool(images, pool, kXZero, {}, out)
                : k::AvgPool(images, pool, false, {kXScale, kXZero}, {kXScale, kXZero}, {}, out));
  };
}

// A layer all of whose sums are odd multiples of 3, and all of whose multipliers are 1/6, which is
// no float32: every output is a tie.
Run PrepareTies(const Linear& shape, k::Requantization requantization) {
  const auto layer = std::make_shared<Layer>(shape.n, shape.k);
  for (int64_t i = 0; i < shape.n * shape.k; ++i) {
    int8_t& weight = (*layer->weights)[static_cast<size_t>(i)];
    weight = i % shape.k == 0 ? int8_t{1} : static_cast<int8_t>((weight + 128) % 3 - 1);
  }
  const auto x = Codes(shape.m * shape.k, 1);
  for (int64_t i = 0; i < shape.m * shape.k; ++i) {
    uint8_t& code = (*x)[static_cast<size_t>(i)];
    code = static_cast<uint8_t>(kXZero + (i % shape.k == 0 ? 3 : 6 * (code % 5 - 2)));
  }
  for (int32_t& bias : *layer->bias) bias = 0;
  for (float& scale : layer->scales) scale = 1;
  layer->params.x_scale = 1;
  layer->params.y_scale = 6;
  layer->params.y_zero_point = 128;
  layer->params.requantization = requantization;
  const auto packed = std::make_shared<k::PackedLinear>();
  Require(k::PackedLinear::Pack(layer->params, packed.get()));
  const auto scratch = Zeros<uint8_t>(static_cast<int64_t>(packed->ScratchBytes(shape.m)));
  return [=, y = Zeros<uint8_t>(shape.m * shape.n)] {
    Require(packed->Run({x->data(), Type::kU8, shape.m, shape.k, shape.k},
                        {y->data(), Type::kU8, shape.m, shape.n, shape.n}, *scratch));
  };
}

struct NamedFloat {
  const char* name;
  k::FloatType type;
};
constexpr NamedFloat kFloat32{"f32", {}};
constexpr NamedFloat kSmallFloats[] = {{"f16", {16, 5, 10, 15}},
                                       {"bf16", {16, 8, 7, 127}},
                                       {"f8e4m3fn", {8, 4, 3, 7, k::FloatEnds::kAllOnes}},
                                       {"f8e5m2", {8, 5, 2, 15}}};

// Of the numbers that `from` has of those of Reals.
Run PrepareCast(const NamedFloat& from, const NamedFloat& to, int64_t n) {
  const auto cast = [n](const void* x, const k::FloatType& x_type, void* y,
                        const k::FloatType& y_type) {
    Require(k::Cast({x, x_type, 1, n, n}, k::CastRounding::kNearestEven, k::CastOverflow::kInfinity,
                    {y, y_type, 1, n, n}));
  };
  const auto numbers = Reals(n, 1);
  const auto x = Zeros<uint8_t>(n * from.type.bits / 8), y = Zeros<uint8_t>(n * to.type.bits / 8);
  cast(numbers->data(), kFloat32.type, x->data(), from.type);
  return [=] { cast(x->data(), from.type, y->data(), to.type); };
}

Run PrepareUnpack(int64_t n, bool is_signed) {
  return [=, x = Codes(n / 2 + 1, 1), y = Zeros<uint8_t>(n)] {
    k::Unpack({x->data(), 4, is_signed}, *y);
    __asm__ volatile("" ::: "memory");
  };
}

void JoinCasts(const Side& side, int64_t n) {
  const auto join = [&](const NamedFloat& from, const NamedFloat& to) {
    side.Join(std::string("cast-") + from.name + "-" + to.name + "/" + std::to_string(n),
              static_cast<double>(n), [=] { return PrepareCast(from, to, n); });
  };
  for (const NamedFloat& small : kSmallFloats) {
    join(kFloat32, small);
    join(small, kFloat32);
  }
}

void JoinElements(const Side& side, int64_t n) {
  const std::string size = "/" + std::to_string(n);
  const auto items = static_cast<double>(n);
  side.Join("quantize" + size, items, [=] { return PrepareQuantize(n, false); });
  side.Join("quantize-ties" + size, items, [=] { return PrepareQuantize(n, true); });
  side.Join("dequantize" + size, items, [=] { return PrepareDequantize(n); });
  side.Join("requantize" + size, items,
            [=] { return PrepareRequantize(n, {kXScale, 0.0021f, kYScale}); });
  side.Join("requantize-float32" + size, items, [=] { return PrepareRequantize(n, {0.0013f}); });
  side.Join("add" + size, items, [=] { return PrepareBinary(n, k::Add); });
  side.Join("mul" + size, items, [=] { return PrepareBinary(n, k::Mul); });
  side.Join("rescale" + size, items, [=] { return PrepareRescale(n); });
  side.Join("table" + size, items, [=] { return PrepareTable(n); });
  side.Join("unpack-u4" + size, items, [=] { return PrepareUnpack(n, false); });
  side.Join("unpack-s4" + size, items, [=] { return PrepareUnpack(n, true); });
  JoinCasts(side, n);
}

// Waits for work between calls: starting a thread would take longer than some layers.
class WaitingThreads final : public k::ThreadPool {
 public:
  explicit WaitingThreads(int64_t threads) : threads_(threads) {
    for (int64_t i = 1; i < threads; ++i) workers_.emplace_back([this] { Serve(); });
  }
  ~WaitingThreads() override {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }
  WaitingThreads(const WaitingThreads&) = delete;
  WaitingThreads& operator=(const WaitingThreads&) = delete;

  int64_t Threads() const override { return threads_; }
  void Run(int64_t tasks, void (*fn)(void* arg, int64_t task), void* arg) override {
    std::unique_lock lock(mutex_);
    fn_ = fn;
    arg_ = arg;
    tasks_ = left_ = tasks;
    changed_.notify_all();
    while (TakeOne(lock)) continue;
    changed_.wait(lock, [this] { return left_ == 0; });
  }

 private:
  // Runs a task outside the lock, if there is one that nobody has.
  bool TakeOne(std::unique_lock<std::mutex>& lock) {
    if (tasks_ == 0) return false;
    const int64_t task = --tasks_;
    lock.unlock();
    fn_(arg_, task);
    lock.lock();
    if (--left_ == 0) changed_.notify_all();
    return true;
  }
  void Serve() {
    std::unique_lock lock(mutex_);
    while (!ends_) {
      if (!TakeOne(lock)) changed_.wait(lock, [this] { return ends_ || tasks_ > 0; });
    }
  }

  int64_t threads_;
  std::mutex mutex_;
  std::condition_variable changed_;
  void (*fn_)(void* arg, int64_t task) = nullptr;
  void* arg_ = nullptr;
  int64_t tasks_ = 0;  // that nobody has taken
  int64_t left_ = 0;   // that have not ended
  bool ends_ = false;
  std::vector<std::thread> workers_;  // last: they use the rest
};

// On some threads. Before it is measured, its codes are compared with those of one thread.
Run PrepareThreads(const Linear& shape, int64_t threads) {
  const auto layer = std::make_shared<Layer>(shape.n, shape.k);
  const auto packed = std::make_shared<k::PackedLinear>();
  Require(k::PackedLinear::Pack(layer->params, packed.get()));
  const auto pool = threads == 1 ? nullptr : std::make_shared<WaitingThreads>(threads);
  const auto scratch =
      Zeros<uint8_t>(static_cast<int64_t>(packed->ScratchBytes(shape.m, pool.get())));
  const auto x = Codes(shape.m * shape.k, 1);
  const auto run = [=](uint8_t* y, k::ThreadPool* of) {
    Require(packed->Run({x->data(), Type::kU8, shape.m, shape.k, shape.k},
                        {y, Type::kU8, shape.m, shape.n, shape.n}, *scratch, of));
  };
  const auto y = Zeros<uint8_t>(shape.m * shape.n);
  const auto of_one = Zeros<uint8_t>(shape.m * shape.n);
  run(y->data(), pool.get());
  run(of_one->data(), nullptr);
  if (*y != *of_one) Require({"the codes depend on the number of threads"});
  return [=] { run(y->data(), pool.get()); };
}

void JoinThreads(const std::string& target) {
  const Linear shape{1024, 1024, 1024};
  for (const int64_t threads : {1, 2}) {
    JoinByWall("threads/" + shape.Name(), "qualm-" + std::to_string(threads), shape.Items(), [=] {
      const k::ScopedTarget scoped(target);
      return Run([target, run = PrepareThreads(shape, threads)] {
        const k::ScopedTarget forced(target);
        run();
      });
    });
  }
}

Run PrepareBlocks(const BlockWork& work) {
  const auto& [m, n, depth, kind] = work.shape;
  const k::BlockFormat format = work.IsSuper()          ? k::BlockFormat::kQ4_K
                                : work.format == "q4_0" ? k::BlockFormat::kQ4_0
                                                        : k::BlockFormat::kQ8_0;
  const int64_t blocks = work.Blocks();
  const int64_t x_bytes = work.ActivationBytes();
  const auto x = Blocks(m * blocks, x_bytes, 1), w = Blocks(n * blocks, work.WeightBytes(), 2);
  const auto y = Zeros<float>(m * n);
  if (work.IsDot())
    return [=] { Require(k::BlockDot(format, w->data(), x->data(), blocks, y->data())); };
  const auto packed = std::make_shared<k::PackedBlockLinear>();
  Require(k::PackedBlockLinear::Pack({w->data(), format, n, blocks, blocks * work.WeightBytes()},
                                     packed.get()));
  const auto scratch = Zeros<uint8_t>(static_cast<int64_t>(packed->ScratchBytes(m)));
  return [=, rows = m, columns = n] {
    Require(packed->Run({x->data(), k::ActivationsOf(format), rows, blocks, blocks * x_bytes},
                        {y->data(), Type::kF32, rows, columns, columns}, *scratch));
  };
}

Run PrepareBlockRow(k::BlockFormat format, int64_t n) {
  const int64_t blocks = n / (32 * k::BlockParts(format)), bytes = blocks * k::BlockBytes(format);
  return [=, x = Reals(n, 1), y = Zeros<uint8_t>(bytes)] {
    Require(
        k::QuantizeBlocks(Row(x->data(), Type::kF32, n), {y->data(), format, 1, blocks, bytes}));
  };
}

// Weights as MatMulNBits has them, in blocks of 32 with zero points, by floats. At level 4 these
// become codes first, as there (bench/nbits measures ONNX Runtime beside it).
struct NBitsWork {
  int bits, level;
  Linear shape;
  std::string Name() const {
    return "nbits" + std::to_string(bits) + "-level" + std::to_string(level) + "/" + shape.Name();
  }
};
const std::vector<NBitsWork> kNBitsWork = [] {
  std::vector<NBitsWork> all;
  for (const int bits : {4, 8})
    for (const int level : {0, 4})
      for (const int64_t m : {1, 64}) all.push_back({bits, level, {m, 2048, 2048}});
  return all;
}();

Run PrepareNBits(const NBitsWork& work) {
  const auto& [m, n, depth, kind] = work.shape;
  const int64_t blocks = depth / 32;
  const auto codes = Codes(n * depth * work.bits / 8, 1), zeros = Codes(n * blocks, 2);
  const auto scales = Reals(n * blocks, 3), x = Reals(m * depth, 4);
  const auto packed = std::make_shared<k::PackedNBitsLinear>();
  Require(k::PackedNBitsLinear::Pack({.bits = work.bits,
                                      .channels = n,
                                      .depth = depth,
                                      .block = 32,
                                      .codes = codes->data(),
                                      .scales = scales->data(),
                                      .zero_points = zeros->data()},
                                     packed.get()));
  const auto y = Zeros<float>(m * n), x_scales = Zeros<float>(m * blocks);
  const auto of_x = Zeros<int8_t>(m * depth);
  const auto scratch = Zeros<uint8_t>(static_cast<int64_t>(packed->ScratchBytes(m)));
  return [=, level = work.level, rows = m, columns = n, terms = depth] {
    const k::ConstMatrix from{x->data(), Type::kF32, rows, terms, terms};
    const k::MutableMatrix to{y->data(), Type::kF32, rows, columns, columns};
    if (level == 0) return Require(packed->Run(from, to, *scratch));
    Require(k::QuantizeRows(from, 32, of_x->data(), x_scales->data()));
    Require(packed->Run(k::ConstCodedRows{of_x->data(), rows, terms, terms, x_scales->data()}, to,
                        *scratch));
  };
}

// A layer of float32 x that is quantized as it runs, per channel and with a bias, by the rule of
// DynamicQuantizeLinear (bench/nbits measures ONNX Runtime beside it).
const std::vector<Linear> kDynamicWork = {{1, 2048, 2048}, {64, 2048, 2048}, {64, 512, 512}};

Run PrepareDynamic(const Linear& shape) {
  const auto& [m, n, depth, kind] = shape;
  const auto codes = Codes(n * depth, 1);
  const auto bias = Reals(n, 2), x = Reals(m * depth, 3);
  const std::vector<float> scales(static_cast<size_t>(n), 0.01F);
  const std::vector<int32_t> zero_point{0};
  const auto packed = std::make_shared<k::PackedDynamicLinear>();
  Require(k::PackedDynamicLinear::Pack({.weights = {codes->data(), Type::kS8, n, depth, depth},
                                        .w_scale = scales,
                                        .w_zero_point = zero_point,
                                        .bias = *bias,
                                        .qparams = {.rule = k::QParamsRule::kOnnx}},
                                       packed.get()));
  const auto y = Zeros<float>(m * n);
  const auto scratch = Zeros<uint8_t>(static_cast<int64_t>(packed->ScratchBytes(m)));
  return [=, rows = m, columns = n, terms = depth] {
    Require(packed->Run({x->data(), Type::kF32, rows, terms, terms},
                        {y->data(), Type::kF32, rows, columns, columns}, *scratch));
  };
}

void JoinAll(const Side& side) {
  for (const int64_t n : kBlockRows) {
    const auto join = [&](const char* name, k::BlockFormat format) {
      side.Join(name + std::to_string(n), static_cast<double>(n),
                [=] { return PrepareBlockRow(format, n); });
    };
    join("quantize-q8_0/", k::BlockFormat::kQ8_0);
    join("quantize-q4_0/", k::BlockFormat::kQ4_0);
    join("quantize-q8_K/", k::BlockFormat::kQ8_K);
  }
  for (const BlockWork& work : kBlockWork)
    side.Join(work.Name(), work.shape.Items(), [=] { return PrepareBlocks(work); });
  for (const NBitsWork& work : kNBitsWork)
    side.Join(work.Name(), work.shape.Items(), [=] { return PrepareNBits(work); });
  for (const Linear& shape : kDynamicWork)
    side.Join("dynamic/" + shape.Name(), shape.Items(), [=] { return PrepareDynamic(shape); });
  for (const Linear& shape : kLinear) {
    side.Join("linear/" + shape.Name(), shape.Items(), [=] { return PrepareLinear(shape, false); });
    side.Join("linear-with-packing/" + shape.Name(), shape.Items(),
              [=] { return PrepareLinear(shape, true); });
  }
  for (const auto* rows : {&kSweep, &kWeightKinds}) {
    for (const NamedLinear& row : *rows) {
      side.Join(row.name, row.shape.Items(), [=] { return PrepareLinear(row.shape, false); });
    }
  }
  for (const Conv& shape : kConv) {
    side.Join(std::string("conv/") + shape.name, shape.Items(), [=] { return PrepareConv(shape); });
  }
  for (const Pool& shape : kPool) {
    side.Join(std::string("pool/") + shape.name, shape.Items(), [=] { return PreparePool(shape); });
  }
  for (const int64_t n : kElements) JoinElements(side, n);
}

// What exactness costs: the same kernel beside itself in the mode that reproduces float32.
void JoinModes(const Side& side, k::Requantization requantization) {
  for (const Linear& shape : kModes) {
    side.Join("exact/" + shape.Name(), shape.Items(),
              [=] { return PrepareLinear(shape, false, requantization); });
    side.Join("exact-ties/" + shape.Name(), shape.Items(),
              [=] { return PrepareTies(shape, requantization); });
  }
}

}  // namespace

void JoinNative() {
  const char* wanted = std::getenv("QUALM_BENCH_TARGET");
  const bool best = wanted == nullptr || *wanted == '\0';
  const std::string target = best ? "" : wanted;
  JoinAll({target, "qualm"});
  JoinThreads(target);
  JoinModes({target, "qualm"}, k::Requantization::kExact);
  JoinModes({target, "float32-mode"}, k::Requantization::kFloat32);
  for (const std::string& name : k::SupportedTargets()) {
    std::string lower = name;
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    JoinAll({name, "qualm@" + lower});
  }
}

}  // namespace qualm::bench
