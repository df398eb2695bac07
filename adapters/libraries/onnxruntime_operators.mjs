// SPDX-License-Identifier: Apache-2.0
// ONNX Runtime's operator for each operation of a case: (case) -> {operator, domain, opset,
// attributes, inputs: [name, type, data, dims], type, finish}, with `nodes` where one operator is
// not enough (onnxruntime_model.mjs). `type` is the output's; finish(data, dims) of the output is the
// flat answer. Throws Skip for what an operator does not offer.
import {ELEMENT, MS} from './onnxruntime_model.mjs';
import {arrayOf, float, NCHW_TO_NHWC, NHWC_TO_NCHW, transpose} from './onnxruntime_values.mjs';

export class Skip extends Error {}

const ONNX = {domain: '', opset: 13};
const CONTRIB = {domain: MS, opset: 13};

const asIs = data => data;
const toNhwc = (data, dims) => transpose(data, dims, NCHW_TO_NHWC);

// Inputs of the model. Parameters are scalars per tensor, lists per channel.
const tensor = (name, type, values, dims) => [name, type, arrayOf(type, values), dims];
const parameter = (name, type, value) =>
    tensor(name, type, [value].flat(), Array.isArray(value) ? [value.length] : []);
const scaleAndZero = (name, type, scale, zero) =>
    [parameter(`${name}_scale`, 'f32', scale), parameter(`${name}_zp`, type, zero)];
const output = c => scaleAndZero('y', c.out_dtype, c.out_scale, c.out_zp);

// Images and filters [a,H,W,b] of a case as [a,b,H,W].
function planes(name, type, values, [a, h, w, b]) {
  const data = transpose(arrayOf(type, values), [a, h, w, b], NHWC_TO_NCHW);
  return [name, type, data, [a, b, h, w]];
}
const image = (c, channels) => planes('x', c.x_dtype, c.x, [c.N, c.H, c.W, channels]);
// [top, bottom, left, right] as ONNX orders pads.
const onnxPads = ([top, bottom, left, right]) => [top, left, bottom, right];

function requireOneType(c, operator) {
  if (c.out_dtype !== c.x_dtype) throw new Skip(`${operator} has one type of input and output`);
}

// ---- Sums ----

// [N,K] as [K,N].
function weights(c) {
  const w = arrayOf(c.w_dtype, c.w);
  const b = new w.constructor(w.length);
  for (let n = 0; n < c.N; ++n) {
    for (let k = 0; k < c.K; ++k) b[k * c.N + n] = w[n * c.K + k];
  }
  return ['b', c.w_dtype, b, [c.K, c.N]];
}

function linear(c) {
  const a = tensor('a', c.x_dtype, c.x, [c.M, c.K]);
  const [aScale, aZero] = scaleAndZero('a', c.x_dtype, c.x_scale ?? 1, c.x_zp);
  const [bScale, bZero] = scaleAndZero('b', c.w_dtype, c.w_scale ?? 1, c.w_zp);
  if (c.out_dtype === 's32') {
    if (c.bias_i32) throw new Skip('MatMulInteger has no bias');
    const inputs = [a, weights(c), aZero, bZero];
    return {operator: 'MatMulInteger', ...ONNX, inputs, type: 's32', finish: asIs};
  }
  requireOneType(c, 'QLinearMatMul');
  if (c.x_dtype === 's8' && c.w_dtype === 'u8')
    throw new Skip('QLinearMatMul takes s8 activations with s8 weights only');
  const products = [a, aScale, aZero, weights(c), bScale, bZero];
  if (c.bias_i32) {
    const inputs = [...products, tensor('c', 's32', c.bias_i32, [c.N]), ...output(c)];
    return {operator: 'QGemm', ...CONTRIB, inputs, type: c.out_dtype, finish: asIs};
  }
  const inputs = [...products, ...output(c)];
  return {operator: 'QLinearMatMul', ...ONNX, inputs, type: c.out_dtype, finish: asIs};
}

const node = (operator, from, to, attributes) =>
    ({operator, domain: '', attributes, from: from.split(' '), to: to.split(' ')});

// Codes without a sign, the first one in the lowest bits of a byte; each row of `size` fills whole
// bytes.
function packed(codes, size, bits) {
  const perByte = 8 / bits, rowBytes = Math.ceil(size / perByte);
  const bytes = new Uint8Array(codes.length / size * rowBytes);
  codes.forEach((code, i) => {
    const at = i % size;
    bytes[Math.floor(i / size) * rowBytes + Math.floor(at / perByte)] |= code << bits * (at % perByte);
  });
  return bytes;
}

// MatMulNBits: f32 x, weights in blocks. Weights that have a sign are moved up, and their zero points
// with them. accuracy_level 0 is float32 (core/mlas/lib/qnbitgemm.cpp). It asks for the shape of its
// bias.
export function nBitsLinear(c) {
  const bits = Number(c.w_dtype.slice(1));
  const given = c.w_block > 0 && c.w_block < c.K ? c.w_block  // else one block for all of a row
                                                 : Math.max(16, 2 ** Math.ceil(Math.log2(c.K)));
  const size = Math.min(given & -given, 256);  // a block of 48 is three of 16, one of 512 two
  if (size < 16) throw new Skip('MatMulNBits takes blocks of 16, 32, 64, 128 and 256');
  const blocks = Math.ceil(c.K / size), perRow = Math.ceil(c.K / given);
  // For each block of each channel, of a list for the given blocks of one or all channels.
  const listed = values => Array.from({length: c.N * blocks}, (_, i) => {
    const row = values.length > perRow ? Math.floor(i / blocks) : 0;
    return values[row * perRow + Math.floor(i % blocks * size / given)];
  });
  const up = c.w_dtype[0] === 's' ? 2 ** (bits - 1) : 0;
  const codes = new Uint8Array(c.N * blocks * size);
  c.w.forEach((code, i) => codes[Math.floor(i / c.K) * blocks * size + i % c.K] = code + up);
  const zeroPoints = listed([c.w_zp].flat()).map(zero => zero + up);
  const assumed = zeroPoints.every(zero => zero === 2 ** (bits - 1));  // where none are given
  const inputs = [
    tensor('a', 'f32', c.x, [c.M, c.K]),
    ['b', 'u8', packed(codes, size, bits), [c.N, blocks, Math.ceil(size * bits / 8)]],
    tensor('scales', 'f32', listed([c.w_scale].flat()), [c.N * blocks]),
  ];
  const from = ['a', 'b', 'scales'];
  if (!assumed) {
    const bytes = packed(zeroPoints, blocks, bits);
    inputs.push(['zero_points', 'u8', bytes, [bytes.length]]);
    from.push('zero_points');
  }
  if (c.bias) {
    inputs.push(tensor('bias', 'f32', c.bias, [c.N]));
    from.push(...(assumed ? ['', '', 'bias'] : ['', 'bias']));
  }
  const attributes = {K: c.K, N: c.N, bits, block_size: size, accuracy_level: 0};
  return {
    ...CONTRIB,
    nodes: [{operator: 'MatMulNBits', domain: MS, attributes, from, to: ['y']}],
    inputs,
    shapes: true,
    type: 'f32',
    finish: asIs,
  };
}

function chooseQParams(c) {
  if (c.qparams_rule !== 'onnx') throw new Skip('DynamicQuantizeLinear has the rule onnx');
  return {
    operator: 'DynamicQuantizeLinear',
    ...ONNX,
    nodes: [
      node('DynamicQuantizeLinear', 'x', 'codes scale zp'),
      node('Cast', 'zp', 'number', {to: ELEMENT.f32}),
      node('Mul', 'scale one', 'scales'),  // a number times a row of one is a row of one
      node('Mul', 'number one', 'numbers'),
      ...(c.codes ? [node('Cast', 'codes', 'floats', {to: ELEMENT.f32}),
                     node('Flatten', 'floats', 'row', {axis: 0})] : []),
      node('Concat', c.codes ? 'scales numbers row' : 'scales numbers', 'y', {axis: 1}),
    ],
    inputs: [tensor('x', 'f32', c.x, [c.batches, c.M, c.N]), tensor('one', 'f32', [1], [1, 1])],
    type: 'f32',
    finish: asIs,
  };
}

// What quantize_dynamic of ONNX Runtime makes of a MatMul or Gemm.
function dynamicLinear(c) {
  if (c.qparams_rule !== 'onnx') throw new Skip('DynamicQuantizeLinear has the rule onnx');
  const x = tensor('x', 'f32', c.x, [c.M, c.K]);
  // A vector minimum with NaN forgets what its lane has seen.
  if (x[2].some(Number.isNaN)) throw new Skip('the range of values with NaN depends on their order');
  const bias = c.bias ? [tensor('bias', 'f32', c.bias, [c.N])] : [];
  const [bScale, bZero] = scaleAndZero('b', c.w_dtype, c.w_scale, c.w_zp);
  return {
    operator: 'DynamicQuantizeLinear',
    ...ONNX,
    nodes: [
      node('DynamicQuantizeLinear', 'x', 'a a_scale a_zp'),
      node('MatMulInteger', 'a b a_zp b_zp', 'sum'),
      node('Cast', 'sum', 'number', {to: ELEMENT.f32}),
      node('Mul', 'a_scale b_scale', 'scale'),
      node('Mul', 'number scale', c.bias ? 'product' : 'y'),
      ...(c.bias ? [node('Add', 'product bias', 'y')] : []),
    ],
    inputs: [x, weights(c), bScale, bZero, ...bias],
    type: 'f32',
    finish: asIs,
  };
}

function conv(c) {
  requireOneType(c, 'QLinearConv');
  if (c.x_dtype === 's8' && c.w_dtype === 'u8')
    throw new Skip('QLinearConv takes s8 activations with s8 weights only');
  if ([c.w_zp].flat().some(zero => zero !== [c.w_zp].flat()[0]))
    throw new Skip('QLinearConv takes one zero point for all weights');
  return {
    operator: 'QLinearConv',
    ...ONNX,
    attributes: {
      kernel_shape: [c.R, c.S],
      strides: c.stride,
      pads: onnxPads(c.pad),
      dilations: c.dilation,
      group: c.groups,
    },
    inputs: [
      image(c, c.IC),
      ...scaleAndZero('x', c.x_dtype, c.x_scale, c.x_zp),
      planes('w', c.w_dtype, c.w, [c.OC, c.R, c.S, c.IC / c.groups]),
      ...scaleAndZero('w', c.w_dtype, c.w_scale, c.w_zp),
      ...output(c),
      ...(c.bias_i32 ? [tensor('bias', 's32', c.bias_i32, [c.OC])] : []),
    ],
    type: c.out_dtype,
    finish: toNhwc,
  };
}

// ---- Element by element ----

function quantize(c) {
  const inputs = [tensor('x', 'f32', c.x, [c.M, c.N]), ...output(c)];
  const attributes = {axis: 1};
  return {operator: 'QuantizeLinear', ...ONNX, attributes, inputs, type: c.out_dtype, finish: asIs};
}

// An operator with one quantized input x.
function unary(c, operator, attributes, x, outputs, finish) {
  requireOneType(c, operator);
  const inputs = [x, ...scaleAndZero('x', c.x_dtype, c.x_scale, c.x_zp), ...outputs];
  return {operator, ...CONTRIB, attributes, inputs, type: c.x_dtype, finish};
}
const matrix = c => tensor('x', c.x_dtype, c.x, [c.M, c.N]);

function dequantize(c) {
  const inputs = [matrix(c), ...scaleAndZero('x', c.x_dtype, c.x_scale, c.x_zp)];
  const attributes = {axis: 1};
  return {operator: 'DequantizeLinear', ...ONNX, attributes, inputs, type: 'f32', finish: asIs};
}

function table(c) {
  if (c.function === 'leaky_relu') {
    const attributes = {alpha: {float: float(c.negative_slope)}};
    return unary(c, 'QLinearLeakyRelu', attributes, matrix(c), output(c), asIs);
  }
  if (c.function === 'sigmoid')
    return unary(c, 'QLinearSigmoid', {}, matrix(c), output(c), asIs);
  throw new Skip(`there is no quantized operator for ${c.function}`);
}

function softmax(c) {
  const outputs = scaleAndZero('y', c.out_dtype, 1 / 256, c.out_dtype === 's8' ? -128 : 0);
  return unary(c, 'QLinearSoftmax', {axis: -1, opset: 13}, matrix(c), outputs, asIs);
}

// ---- Two operands ----

const operands = (c, aDims, bDims) => [
  tensor('a', c.x_dtype, c.a, aDims), ...scaleAndZero('a', c.x_dtype, c.a_scale, c.a_zp),
  tensor('b', c.x_dtype, c.b, bDims), ...scaleAndZero('b', c.x_dtype, c.b_scale, c.b_zp),
];

function binary(c, operator) {
  requireOneType(c, operator);
  const inputs = [...operands(c, [c.M, c.N], [c.M, c.N]), ...output(c)];
  return {operator, ...CONTRIB, inputs, type: c.out_dtype, finish: asIs};
}

function concat(c) {
  requireOneType(c, 'QLinearConcat');
  const inputs = [...output(c), ...operands(c, [c.M, c.NA], [c.M, c.NB])];
  const attributes = {axis: 1};
  return {
    operator: 'QLinearConcat', ...CONTRIB, attributes, inputs, type: c.out_dtype, finish: asIs};
}

// ---- Pools ----

// Output length along one axis; ceil mode as PyTorch: a window starts inside the input or the
// padding before it.
function windows(c, size, before, after, kernel, stride, dilation) {
  const rest = size + before + after - dilation * (kernel - 1) - 1;
  if (!c.ceil_mode) return Math.floor(rest / stride) + 1;
  const count = Math.ceil(rest / stride) + 1;
  return (count - 1) * stride >= size + before ? count - 1 : count;
}

// NHWC, where the windows are ours.
function poolOutput(c, data, dims) {
  const [top, bottom, left, right] = c.pad;
  const [down, across] = c.dilation ?? [1, 1];
  if (dims[2] !== windows(c, c.H, top, bottom, c.R, c.stride[0], down) ||
      dims[3] !== windows(c, c.W, left, right, c.S, c.stride[1], across)) {
    throw new Skip('in ceil mode ONNX Runtime has a window that starts in the padding behind');
  }
  return toNhwc(data, dims);
}

function poolAttributes(c) {
  const [top, bottom, left, right] = c.pad;
  if (Math.max(top, bottom) >= c.R || Math.max(left, right) >= c.S)
    throw new Skip('pools take paddings smaller than the kernel');
  return {
    kernel_shape: [c.R, c.S],
    strides: c.stride,
    pads: onnxPads(c.pad),
    ceil_mode: c.ceil_mode ? 1 : 0,
  };
}

function maxPool(c) {
  const attributes = {...poolAttributes(c), dilations: c.dilation};
  return {
    operator: 'MaxPool',
    ...ONNX,
    attributes,
    inputs: [image(c, c.C)],
    type: c.x_dtype,
    finish: (data, dims) => poolOutput(c, data, dims),
  };
}

// MlasQLinearGlobalAveragePool refuses other multipliers (core/mlas/lib/qlgavgpool.cpp).
function checkGlobalMultiplier(c) {
  const divisor = Math.fround(float(c.out_scale) * Math.fround(c.H * c.W));
  const multiplier = Math.fround(float(c.x_scale) / divisor);
  if (!(multiplier >= 2 ** -32 && multiplier < 256))
    throw new Skip('the multiplier of a global average must be in [2^-32, 256)');
}

function averagePool(c) {
  const attributes = {...poolAttributes(c), count_include_pad: c.count_include_pad ? 1 : 0};
  // Then it is the global one.
  if (c.R === c.H && c.S === c.W && c.pad.every(pad => pad === 0)) checkGlobalMultiplier(c);
  const finish = (data, dims) => poolOutput(c, data, dims);
  return unary(c, 'QLinearAveragePool', attributes, image(c, c.C), output(c), finish);
}

function globalAveragePool(c) {
  checkGlobalMultiplier(c);
  return unary(c, 'QLinearGlobalAveragePool', {}, image(c, c.C), output(c), toNhwc);
}

export const OPERATIONS = {
  linear,
  conv2d: conv,
  depthwise: conv,
  choose_qparams: chooseQParams,
  dynamic_linear: dynamicLinear,
  quantize,
  dequantize,
  add: c => binary(c, 'QLinearAdd'),
  mul: c => binary(c, 'QLinearMul'),
  concat,
  max_pool: maxPool,
  avg_pool: averagePool,
  global_avg_pool: globalAveragePool,
  table,
  softmax,
};
