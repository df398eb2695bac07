# SPDX-License-Identifier: Apache-2.0
"""For qualm_export_test: with folders EAGER FX CUT CHANNELS OTHERS EXPORTED TORCHAO as arguments it writes
the cases of two models, of layers that are cut, of a model with parameters per channel, of calls that no case file can hold, of a
model as PT2E converts it, and of a layer of torchao's."""
import copy
import sys
import warnings

import torch
from torch import nn
from torch.ao.quantization import (QConfigMapping, convert, fuse_modules, get_default_qconfig,
                                   prepare, quantize_dynamic)
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx

from qualm_export import record

# PyTorch's own deprecations.
warnings.filterwarnings("ignore")


class Eager(nn.Module):
    """Every operator an eager model has, and one sum whose tie QNNPACK rounds away from zero."""

    def __init__(self):
        super().__init__()
        self.quant = torch.ao.quantization.QuantStub()
        self.conv = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.relu = nn.ReLU()
        self.depthwise = nn.Conv2d(8, 8, 3, groups=8)
        self.pool = nn.MaxPool2d(2)
        self.linear = nn.Linear(128, 24)
        self.sum = nn.quantized.FloatFunctional()
        self.product = nn.quantized.FloatFunctional()
        self.joined = nn.quantized.FloatFunctional()
        self.swish = nn.Hardswish()
        self.average = nn.AdaptiveAvgPool2d(1)
        self.dequant = torch.ao.quantization.DeQuantStub()

    def forward(self, x):
        x = self.pool(self.depthwise(self.relu(self.conv(self.quant(x)))))
        mean = torch.flatten(self.average(x), 1)
        x = torch.relu(self.swish(self.linear(torch.flatten(x, 1))))
        y = self.sum.add(x, self.product.mul(x, x))
        return self.dequant(self.joined.cat([mean, y], dim=1))


class Fx(nn.Module):
    """A residual block, as FX sees it."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(4, 4, 3, padding=1)
        self.second = nn.Conv2d(4, 4, 1)
        self.linear = nn.Linear(4 * 36, 10)

    def forward(self, x):
        y = torch.relu(self.first(x))
        y = torch.relu(self.second(y) + y)
        return self.linear(torch.flatten(y, 1))


class Channels(nn.Module):
    """Weights with parameters per channel."""

    def __init__(self):
        super().__init__()
        self.quant = torch.ao.quantization.QuantStub()
        self.conv = nn.Conv2d(3, 6, 3, groups=3)
        self.grouped = nn.Conv2d(6, 8, 3, groups=2)
        self.linear = nn.Linear(8, 5)
        self.dequant = torch.ao.quantization.DeQuantStub()

    def forward(self, x):
        x = self.grouped(self.conv(self.quant(x)))
        return self.dequant(self.linear(torch.flatten(x, 1)))


class Others(nn.Module):
    """What no case file can hold, and what only moves codes."""

    def __init__(self):
        super().__init__()
        self.dynamic = nn.Sequential(nn.Linear(4, 4))
        self.lstm = nn.LSTM(4, 4)

    def forward(self, x):
        self.lstm(x.unsqueeze(0))
        q = torch.quantize_per_tensor(self.dynamic(x), 0.1, 10, torch.quint8)
        q = q.clone().reshape(1, 1, 4, 4).permute(0, 1, 3, 2).contiguous()
        torch.clamp(q, 0, 1)
        q.mean((2, 3))
        torch.nn.functional.interpolate(q, scale_factor=2)
        return torch.relu_(q)


class Exported(nn.Module):
    """The calls of convert_pt2e: codes are plain tensors, and arithmetic is float32's."""

    def __init__(self):
        super().__init__()
        self.conv, self.linear = nn.Module(), nn.Module()
        self.conv.bias = nn.Parameter(torch.randn(6))
        self.linear.bias = nn.Parameter(torch.randn(5))
        self.register_buffer("first", torch.randint(-127, 128, (6, 3, 3, 3)).to(torch.int8))
        self.register_buffer("scales", torch.rand(6) / 100 + 0.001)
        self.register_buffer("second", torch.randint(-127, 128, (5, 96)).to(torch.int8))
        self.register_buffer("third", torch.randint(-127, 128, (4, 5)).to(torch.int8))

    def forward(self, x):
        ops = torch.ops.quantized_decomposed
        quint8, qint8 = (0, 255, torch.uint8), (-128, 127, torch.int8)

        def through(x, scale, zero_point, codes=quint8):
            return ops.dequantize_per_tensor(
                ops.quantize_per_tensor(x, scale, zero_point, *codes), scale, zero_point, *codes)

        w = ops.dequantize_per_channel(self.first, self.scales, torch.zeros(6, dtype=torch.int64),
                                       0, *qint8)
        second, third = (ops.dequantize_per_tensor(codes, 0.0078125, 0, *qint8)
                         for codes in (self.second, self.third))
        x = through(x, 0.03125, 120)
        y = through(torch.relu(nn.functional.conv2d(x, w, self.conv.bias, padding=1)), 0.0625, 3)
        y = through(y + y, 0.09375, 1)
        y = through(y, 0.125, -128, qint8)
        y = torch.flatten(y, 1)
        y = through(nn.functional.linear(y, second, self.linear.bias), 2.0, 5,
                    (-127, 127, torch.int8))
        return nn.functional.linear(y, third)


def main(eager_folder, fx_folder, cut_folder, channels_folder, others_folder, exported_folder,
         torchao_folder):
    torch.manual_seed(1)
    torch.set_num_threads(1)
    torch.backends.quantized.engine = "qnnpack"

    x = torch.randn(2, 3, 19, 19)
    model = fuse_modules(Eager().eval(), [["conv", "relu"]])
    model.qconfig = get_default_qconfig("qnnpack")
    prepare(model, inplace=True)
    model(x)
    convert(model, inplace=True)
    # 1/2, 3/2 and 5/2 units of the output.
    tie = torch.quantize_per_tensor(torch.tensor([1.0, 3.0, 5.0]), 1.0, 0, torch.quint8)
    zero = torch.quantize_per_tensor(torch.zeros(3), 1.0, 0, torch.quint8)
    with record(model, eager_folder, limit=1000) as eager:
        model(x)
        torch.ops.quantized.add(tie, zero, 2.0, 0)

    x = torch.randn(3, 4, 6, 6)
    model = Fx().eval()
    mapping = QConfigMapping().set_global(get_default_qconfig("qnnpack"))
    model = prepare_fx(model, mapping, example_inputs=(x,))
    model(x)
    model = convert_fx(model)
    with record(model, fx_folder) as fx:
        model(x)
    unlike = Fx().eval()  # other weights, as before a BatchNorm is folded in
    with record(model, fx_folder + "-unlike", reference=unlike) as compared:
        model(x)
        unlike(x)
    print("unlike: %s" % sorted({layer for layer, what, _ in compared.left_out if what == "reference"}))
    prepared = prepare_fx(Fx().eval(), mapping, example_inputs=(x,))
    before = copy.deepcopy(prepared)
    convert_fx(prepared)  # changes it
    record(model, fx_folder + "-unlike", reference=before)
    try:
        record(model, fx_folder + "-unlike", reference=prepared)
    except ValueError as error:
        print(error)
    # One image, or one row, of more outputs than a file takes.
    image = torch.quantize_per_tensor(torch.randn(1, 96, 6, 6), 0.1, 1, torch.quint8)
    with record(None, cut_folder, limit=640) as cut:
        nn.functional.max_pool2d(image, 2)
        nn.functional.avg_pool2d(image, 2)
        nn.functional.avg_pool2d(image, 2, 1)
        torch.cat([image, image], 1)
        image.reshape(-1).dequantize()
    x = torch.randn(2, 3, 5, 5)
    model = Channels().eval()
    model.qconfig = get_default_qconfig("fbgemm")
    prepare(model, inplace=True)
    model(x)
    convert(model, inplace=True)
    with record(model, channels_folder) as channels:
        model(x)

    model = quantize_dynamic(Others(), {nn.Linear, nn.LSTM}, dtype=torch.qint8)
    with record(model, others_folder) as others:
        model(torch.randn(4, 4))
    exporters = [eager, fx, cut, channels, others]
    if hasattr(torch, "export"):  # PyTorch 2
        model = Exported()
        with torch.no_grad(), record(model, exported_folder) as exported:
            model(torch.randn(2, 3, 4, 4))
        exporters.append(exported)
    try:
        from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_
    except ImportError:
        pass
    else:
        model = nn.Sequential(nn.Linear(24, 10))
        quantize_(model, Int8DynamicActivationInt8WeightConfig())
        with record(model, torchao_folder):
            model(torch.randn(7, 24))
    for exporter in exporters:
        for layer, operator, reason in exporter.left_out:
            print("left out: %s %s: %s" % (layer, operator, reason))
        print("%d files" % len(exporter.files))


if __name__ == "__main__":
    main(*sys.argv[1:])
