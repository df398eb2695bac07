// SPDX-License-Identifier: Apache-2.0
// Messages come back as they were sent, and nothing else is taken for one.
#include "adapters/host/worker_message.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <thread>
#include <tuple>
#include <type_traits>
#include <vector>

#include "core/random_case_test_util.h"

namespace qualm {
namespace {

// Every member has a value that is not its default.
RunContext Unusual() {
  RunContext context;
  const auto alter = []<class T>(T& state) {
    if constexpr (std::is_same_v<T, bool>) {
      state = !state;
    } else {
      state = static_cast<T>(static_cast<int>(state) + 2);
    }
  };
  std::apply([&](auto&... states) { (alter(states), ...); }, StatesOf(context));
  return context;
}

RunRequest Request() {
  RunRequest request;
  Case& c = request.c;
  c.op = Op::kLinear;
  c.M = 1;
  c.N = 2;
  c.K = 3;
  c.x = Tensor::Of<int8_t>({1, 3}, std::vector<int8_t>{-1, 2, 3});
  c.w = Tensor::Of<int8_t>({2, 3}, std::vector<int8_t>{1, 2, 3, 4, 5, 6});
  c.w_q = {.scale = {0.5f, 0x1p-149f}, .zero_point = {-7, INT32_MAX}};
  c.per_channel = true;
  c.bias = std::vector<float>{-0.0f, 3.5f};
  c.out_q = {.scale = {3.0f}, .zero_point = {300}};
  c.out_dtype = DType::kS8;
  c.out_min = -5;
  c.out_max = 100;
  c.relu = true;
  request.context = Unusual();
  return request;
}

std::vector<uint8_t> Encoded() {
  std::vector<uint8_t> payload;
  EncodeRun(Request().c, Request().context, payload);
  return payload;
}

TEST(WorkerMessage, RunComesBackWhole) {
  const std::optional<RunRequest> decoded = DecodeRun(Encoded());
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded->c, Request().c);
  EXPECT_EQ(decoded->context, Request().context);
}

TEST(WorkerMessage, WindowsAndSecondOperandsComeBackWhole) {
  Case conv;
  conv.op = Op::kConv2d;
  conv.window = {.batch = 1,
                 .in_h = 2,
                 .in_w = 3,
                 .in_c = 4,
                 .kernel_h = 2,
                 .kernel_w = 1,
                 .stride_h = 3,
                 .stride_w = 5,
                 .pad_top = 6,
                 .pad_bottom = 7,
                 .pad_left = 8,
                 .pad_right = 9,
                 .dilation_h = 10,
                 .dilation_w = 11,
                 .groups = 2};
  conv.N = 2;
  conv.x = Tensor(DType::kU8, {1, 2, 3, 4});
  conv.x.SetInt(23, 200);
  conv.w = Tensor(DType::kS8, {2, 2, 1, 2});
  conv.w.SetInt(7, -9);
  DeriveSizes(&conv);
  Case pool = conv;
  pool.op = Op::kAvgPool;
  pool.window.groups = 1;
  pool.window.ceil_mode = true;
  pool.window.count_include_pad = true;
  pool.w = Tensor(DType::kU8, {0});
  Case mul;
  mul.op = Op::kMul;
  mul.M = 1;
  mul.N = 2;
  mul.x = Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{1, 2});
  mul.w = Tensor::Of<uint8_t>({1, 2}, std::vector<uint8_t>{3, 4});
  Case table = mul;
  table.op = Op::kTable;
  table.w = Tensor(DType::kU8, {0});
  table.function = Function::kLeakyRelu;
  table.negative_slope = 0.5f;
  Case concat = mul;
  concat.op = Op::kConcat;
  concat.N = 3;
  concat.w = Tensor::Of<uint8_t>({1, 1}, std::vector<uint8_t>{3});
  Case softmax = table;
  softmax.op = Op::kSoftmax;
  softmax.function = Function::kRelu;
  softmax.negative_slope = 0.01f;
  Case rescale = mul;
  rescale.op = Op::kRescale;
  rescale.w = Tensor(DType::kU8, {0});
  Case mode = conv;
  mode.requant = Requant::kFixedRndnu;  // the one with the largest number
  Case observer;                        // an operation that plugins do not have
  observer.op = Op::kChooseQParams;
  observer.M = 1;
  observer.N = 2;
  observer.x = Tensor::Of<float>({2, 1, 2}, std::vector<float>{1, 2, 3, -4});
  observer.observer = {.kind = Observer::Kind::kMovingAverage,
                       .symmetric = true,
                       .reduce_range = true,
                       .dtype = DType::kS8,
                       .quant_min = -100,
                       .quant_max = 99,
                       .averaging_constant = 0.5f};
  observer.out_dtype = DType::kF32;
  observer.w = Tensor(DType::kU8, {0});
  Case codes = observer;
  codes.observer = {};
  codes.rule = QParamsRule::kOnnx;
  codes.codes = true;
  std::vector<Case> cases{conv, pool, mul, rescale, mode, table, concat, softmax, observer, codes};
  for (const Op op : AllOps()) cases.push_back(ProblemOf(test::RandomCase(1).Draw(op)));
  for (const Case& c : cases) {
    std::vector<uint8_t> payload;
    EncodeRun(c, {}, payload);
    const std::optional<RunRequest> decoded = DecodeRun(payload);
    ASSERT_TRUE(decoded.has_value()) << Describe(c);
    EXPECT_EQ(decoded->c, c);
    Outcome outcome;
    outcome.y = Tensor(c.out_dtype, c.output_shape());
    outcome.acc = Tensor(DType::kS32, c.output_shape());
    EncodeOutcome(outcome, payload);
    const std::optional<Outcome> answer = DecodeOutcome(payload, c);
    ASSERT_TRUE(answer.has_value()) << Describe(c);
    EXPECT_EQ(answer->y, outcome.y);
  }
  conv.window.groups = 0;
  std::vector<uint8_t> payload;
  EncodeRun(conv, {}, payload);
  EXPECT_FALSE(DecodeRun(payload).has_value());
  concat.N = 1;  // fewer columns than its first input
  EncodeRun(concat, {}, payload);
  EXPECT_FALSE(DecodeRun(payload).has_value());
}

TEST(WorkerMessage, EveryTruncationAndAnythingBehindIsRefused) {
  const std::vector<uint8_t> payload = Encoded();
  for (size_t length = 0; length < payload.size(); ++length) {
    EXPECT_FALSE(DecodeRun(std::span(payload).first(length)).has_value()) << length;
  }
  std::vector<uint8_t> longer = payload;
  longer.push_back(0);
  EXPECT_FALSE(DecodeRun(longer).has_value());
}

// No byte of a message makes a reader allocate for data that is not there, or accept wrong data.
TEST(WorkerMessage, FlippedBytesNeverGiveAnInconsistentCase) {
  const std::vector<uint8_t> payload = Encoded();
  for (size_t at = 0; at < payload.size(); ++at) {
    for (const uint8_t value : {0x00, 0x7F, 0x80, 0xFF}) {
      std::vector<uint8_t> changed = payload;
      changed[at] = value;
      const std::optional<RunRequest> decoded = DecodeRun(changed);
      if (!decoded) continue;
      EXPECT_EQ(decoded->c.x.shape(), (std::vector<int64_t>{decoded->c.M, decoded->c.K}));
      EXPECT_LE(decoded->c.x.bytes().size() + decoded->c.w.bytes().size(), payload.size());
    }
  }
}

TEST(WorkerMessage, OutcomeMustHaveTheShapeThatWasAskedFor) {
  const Case c = Request().c;
  Outcome outcome;
  outcome.y = Tensor::Of<int8_t>({1, 2}, std::vector<int8_t>{1, -2});
  outcome.acc = Tensor::Of<int32_t>({1, 2}, std::vector<int32_t>{3, -4});
  std::vector<uint8_t> payload;
  EncodeOutcome(outcome, payload);
  const std::optional<Outcome> decoded = DecodeOutcome(payload, c);
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded->y, outcome.y);
  EXPECT_EQ(decoded->acc, outcome.acc);

  Case other = c;
  other.N = 3;
  EXPECT_FALSE(DecodeOutcome(payload, other).has_value());
  other = c;
  other.out_dtype = DType::kU8;
  EXPECT_FALSE(DecodeOutcome(payload, other).has_value());
  outcome.acc = Tensor::Of<float>({1, 2}, std::vector<float>{3, -4});
  EncodeOutcome(outcome, payload);
  EXPECT_FALSE(DecodeOutcome(payload, c).has_value());
}

TEST(WorkerMessage, InfoComesBackWhole) {
  const std::string contract = "model:a,linear=model:" + std::string(kContractBytesMax - 21, 'm');
  PluginInfo info{.name = "n",
                  .version = "v",
                  .contract = contract,
                  .instruction_set = "i",
                  .limits = {},
                  .domains = {}};
  info.limits[3] = PluginLimits{.x_dtypes = 3, .k_multiple = 4, .alignment_bytes = 64};
  std::vector<uint8_t> payload;
  EncodeInfo(info, payload);
  const std::optional<PluginInfo> decoded = DecodeInfo(payload);
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded->version, "v");
  EXPECT_EQ(decoded->contract, contract);
  EXPECT_FALSE(decoded->limits[0].has_value());
  ASSERT_TRUE(decoded->limits[3].has_value());
  EXPECT_EQ(decoded->limits[3]->k_multiple, 4);
  payload.pop_back();
  EXPECT_FALSE(DecodeInfo(payload).has_value());
}

// Both ends of a connection, mailboxes included.
class Channels : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends_.data()), 0);
    memory_ = Mailboxes::Create();
    boxes_.emplace(memory_);
    parent_.emplace(ends_[0], &boxes_->to_worker(), &boxes_->from_worker());
    worker_.emplace(ends_[1], &boxes_->from_worker(), &boxes_->to_worker());
  }
  void TearDown() override {
    for (const int fd : {ends_[0], ends_[1], memory_}) close(fd);
  }

  std::array<int, 2> ends_{};
  int memory_ = -1;
  std::optional<Mailboxes> boxes_;
  std::optional<MessageChannel> parent_, worker_;
  using Result = MessageChannel::Result;
};

TEST_F(Channels, MessagesOfEverySizeArriveInTurn) {
  for (const size_t bytes : {size_t{0}, size_t{100}, Mailbox::kBytesMax - sizeof(MessageHeader),
                             Mailbox::kBytesMax, size_t{5} << 20, size_t{7}}) {
    const std::vector<uint8_t> payload(bytes, 0x5A);
    std::thread worker([&] {  // a large message needs a reader
      ASSERT_EQ(worker_->Receive(kMessageBytesMax, 10'000), Result::kOk);
      ASSERT_EQ(worker_->Send(MessageKind::kAnswer, 8, worker_->payload(), 10'000), Result::kOk);
    });
    EXPECT_EQ(parent_->Send(MessageKind::kRun, 7, payload, 10'000), Result::kOk);
    ASSERT_EQ(parent_->Receive(kMessageBytesMax, 10'000), Result::kOk) << bytes;
    worker.join();
    EXPECT_EQ(parent_->header().sequence, 8u);
    EXPECT_TRUE(std::ranges::equal(parent_->payload(), payload)) << bytes;
  }
}

TEST_F(Channels, ADeadlinePassesAndAnEndIsSeen) {
  EXPECT_EQ(parent_->Receive(kMessageBytesMax, 20), Result::kTimeout);
  shutdown(ends_[1], SHUT_RDWR);
  EXPECT_EQ(parent_->Receive(kMessageBytesMax, 10'000), Result::kClosed);
}

TEST_F(Channels, WhatNoEncoderWritesIsGarbage) {
  const std::vector<uint8_t> payload(100);
  worker_->Send(MessageKind::kAnswer, 1, payload, 0);
  EXPECT_EQ(parent_->Receive(99, 1000), Result::kGarbage);
  boxes_->from_worker().message.fill(0xFF);
  boxes_->from_worker().Post();
  EXPECT_EQ(parent_->Receive(kMessageBytesMax, 1000), Result::kGarbage);
  // Too large for the mailbox, and nothing on the socket.
  const MessageHeader large{.kind = MessageKind::kAnswer, .bytes = Mailbox::kBytesMax};
  std::memcpy(boxes_->from_worker().message.data(), &large, sizeof large);
  boxes_->from_worker().Post();
  EXPECT_EQ(parent_->Receive(kMessageBytesMax, 20), Result::kTimeout);
}

TEST(WorkerMessage, TextIsMadePrintable) {
  EXPECT_EQ(CleanText("a\x1b[2J\nb"), "a [2J b");
  EXPECT_EQ(CleanText(std::string(1000, 'x')).size(), kPluginTextBytesMax);
}

}  // namespace
}  // namespace qualm
