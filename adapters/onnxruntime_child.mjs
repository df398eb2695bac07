// SPDX-License-Identifier: Apache-2.0
// ONNX Runtime as a pipe child (docs/plugin.md, "Any language"): its quantized operators, one node
// per model, through the Node package onnxruntime-node.
//
//   node onnxruntime_child.mjs PACKAGE_FOLDER INSTRUCTION_SET
//
// PACKAGE_FOLDER holds node_modules/onnxruntime-node. INSTRUCTION_SET (sse41, avx2, vnni) is the
// one that MLAS finds, as the adapter knows it; it names the contract.
//
// Scales, zero points and weights are inputs of the model and shapes are left open, so that one
// session per (operator, types, attributes) serves all cases. Graph optimisations are off: each
// answer is that of the operator's own kernel, not of a fusion.
import {createRequire} from 'node:module';
import path from 'node:path';

const [folder, instructionSet] = process.argv.slice(2);
const require = createRequire(path.resolve(folder, 'package.json'));
const ort = require('onnxruntime-node');
const version = require('onnxruntime-node/package.json').version;

// ---- Models: the few messages of ONNX's onnx.proto that one node needs, by field number. ----

function varint(value) {
  const bytes = [];
  // Negative integers are 64-bit two's complement.
  for (let rest = BigInt.asUintN(64, BigInt(value)); ; rest >>= 7n) {
    if (rest < 128n) return [...bytes, Number(rest)];
    bytes.push(Number(rest & 127n) | 128);
  }
}
const integer = (field, value) => [...varint(field << 3), ...varint(value)];
const bytes = (field, content) => [...varint(field << 3 | 2), ...varint(content.length), ...content];
const text = (field, content) => bytes(field, [...Buffer.from(content, 'utf8')]);
const float32 =
    (field, value) => [...varint(field << 3 | 5), ...new Uint8Array(Float32Array.of(value).buffer)];

// TensorProto.DataType and the tensors of the JavaScript API.
const TYPES = {
  f32: {onnx: 1, name: 'float32', array: Float32Array},
  u8: {onnx: 2, name: 'uint8', array: Uint8Array},
  s8: {onnx: 3, name: 'int8', array: Int8Array},
  s32: {onnx: 6, name: 'int32', array: Int32Array},
};

// AttributeProto: name 1, f 2, i 3, ints 8, type 20 (1 FLOAT, 2 INT, 7 INTS).
function attribute(name, value) {
  if (Array.isArray(value))
    return [...text(1, name), ...value.flatMap(v => integer(8, v)), ...integer(20, 7)];
  if (typeof value === 'object') return [...text(1, name), ...float32(2, value.float), ...integer(20, 1)];
  return [...text(1, name), ...integer(3, value), ...integer(20, 2)];
}
// ValueInfoProto: name 1, type 2; TypeProto: tensor_type 1; TypeProto.Tensor: elem_type 1. No
// shape: any.
const valueInfo =
    (name, type) => [...text(1, name), ...bytes(2, bytes(1, integer(1, TYPES[type].onnx)))];

// ModelProto: ir_version 1, graph 7, opset_import 8; OperatorSetIdProto: domain 1, version 2;
// GraphProto: node 1, name 2, input 11, output 12; NodeProto: input 1, output 2, op_type 4,
// attribute 5, domain 7. `inputs` is [name, type] in the operator's order; a null is an input left
// out.
function makeModel(operator, domain, opset, attributes, inputs, outType) {
  const node = [
    ...inputs.flatMap(input => text(1, input === null ? '' : input[0])),
    ...text(2, 'y'),
    ...text(4, operator),
    ...Object.entries(attributes).flatMap(([name, value]) => bytes(5, attribute(name, value))),
    ...text(7, domain),
  ];
  const graph = [
    ...bytes(1, node),
    ...text(2, 'g'),
    ...inputs.filter(input => input !== null).flatMap(input => bytes(11, valueInfo(...input))),
    ...bytes(12, valueInfo('y', outType)),
  ];
  return Uint8Array.from([
    ...integer(1, 8),
    ...bytes(7, graph),
    ...bytes(8, [...text(1, ''), ...integer(2, opset)]),
    ...bytes(8, [...text(1, MS), ...integer(2, 1)]),
  ]);
}
const MS = 'com.microsoft';

// ---- Values ----

// A float of a case: a number or "0x1.8p-3", "inf", "-inf", "nan:7fc00000".
const HEX_FLOAT = /^(-?)0x([0-9a-f]+)(?:\.([0-9a-f]*))?p([+-]?\d+)$/i;
function float(value) {
  if (typeof value === 'number') return value;
  if (value === 'inf') return Infinity;
  if (value === '-inf') return -Infinity;
  const match = HEX_FLOAT.exec(value);
  if (match === null) throw new Error(`not a float: ${value}`);
  const [, sign, whole, fraction = '', exponent] = match;
  // Exact: a float32 has 24 significant bits, a Number 53.
  const size = parseInt(whole + fraction, 16) * 2 ** (Number(exponent) - 4 * fraction.length);
  return sign === '-' ? -size : size;
}
function floats(values) {
  const array = new Float32Array(values.length);
  const bits = new Uint32Array(array.buffer);
  values.forEach((value, i) => {
    if (typeof value === 'string' && value.startsWith('nan:')) bits[i] = parseInt(value.slice(4), 16);
    else array[i] = float(value);
  });
  return array;
}
function floatText(value, bits) {
  if (Number.isNaN(value)) return 'nan:' + bits.toString(16).padStart(8, '0');
  const sign = value < 0 || Object.is(value, -0) ? '-' : '';
  const size = Math.abs(value);
  if (size === Infinity) return sign + 'inf';
  if (size === 0) return sign + '0x0p+0';
  const exponent = Math.floor(Math.log2(size));
  // A mantissa in [1, 2), or nearly: what Math.log2 rounds wrongly is still exact.
  return `${sign}0x${(size / 2 ** exponent).toString(16)}p${exponent < 0 ? '' : '+'}${exponent}`;
}
function answerOf(array) {
  if (!(array instanceof Float32Array)) return Array.from(array);
  const bits = new Uint32Array(array.buffer, array.byteOffset, array.length);
  return Array.from(array, (value, i) => floatText(value, bits[i]));
}

const tensor = (type, values, dims) => new ort.Tensor(
    TYPES[type].name, type === 'f32' ? floats(values) : TYPES[type].array.from(values), dims);
// A parameter: a scalar per tensor, a list per channel.
const parameter = (type, value) =>
    Array.isArray(value) ? tensor(type, value, [value.length]) : tensor(type, [value], []);

// From one axis order to another: dims of `from`, and which axis of it each axis of the result is.
function transpose(array, dims, order) {
  const [s0, s1, s2] = [dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3]];
  const strides = [s0, s1, s2, 1];
  const [a, b, c, d] = order.map(axis => dims[axis]);
  const [p, q, r, s] = order.map(axis => strides[axis]);
  const result = new array.constructor(array.length);
  let at = 0;
  for (let i = 0; i < a; ++i) {
    for (let j = 0; j < b; ++j) {
      for (let k = 0; k < c; ++k) {
        for (let l = 0; l < d; ++l) result[at++] = array[i * p + j * q + k * r + l * s];
      }
    }
  }
  return result;
}
const NHWC_TO_NCHW = [0, 3, 1, 2];
const NCHW_TO_NHWC = [0, 2, 3, 1];
// Images and filters [a,H,W,b] of a case as [a,b,H,W].
function planes(type, values, [a, h, w, b]) {
  const array = transpose(TYPES[type].array.from(values), [a, h, w, b], NHWC_TO_NCHW);
  return new ort.Tensor(TYPES[type].name, array, [a, b, h, w]);
}
// [top, bottom, left, right] as ONNX orders pads.
const onnxPads = ([top, bottom, left, right]) => [top, left, bottom, right];

// ---- Operators: (case) -> {operator, domain, opset, attributes, inputs: [name, type, tensor],
// outType, finish(output tensor) -> flat array} or {skip}. ----

class Skip extends Error {}

const asIs = output => output.data;
const toNhwc = output => transpose(output.data, output.dims, NCHW_TO_NHWC);

function linear(c) {
  const w = TYPES[c.w_dtype].array.from(c.w);
  const b = new w.constructor(w.length);  // [K,N]
  for (let n = 0; n < c.N; ++n) {
    for (let k = 0; k < c.K; ++k) b[k * c.N + n] = w[n * c.K + k];
  }
  const x = ['a', c.x_dtype, tensor(c.x_dtype, c.x, [c.M, c.K])];
  const xZero = ['a_zp', c.x_dtype, parameter(c.x_dtype, c.x_zp)];
  const weights = ['b', c.w_dtype, new ort.Tensor(TYPES[c.w_dtype].name, b, [c.K, c.N])];
  const wZero = ['b_zp', c.w_dtype, parameter(c.w_dtype, c.w_zp)];
  if (c.out_dtype === 's32') {
    return {operator: 'MatMulInteger', opset: 10, attributes: {}, inputs: [x, weights, xZero, wZero], outType: 's32', finish: asIs};
  }
  if (c.out_dtype !== c.x_dtype) throw new Skip('QLinearMatMul has one type of input and output');
  return {
    operator: 'QLinearMatMul',
    opset: 10,
    attributes: {},
    inputs: [
      x, ['a_scale', 'f32', parameter('f32', c.x_scale)], xZero, weights,
      ['b_scale', 'f32', parameter('f32', c.w_scale)], wZero,
      ['y_scale', 'f32', parameter('f32', c.out_scale)],
      ['y_zp', c.out_dtype, parameter(c.out_dtype, c.out_zp)],
    ],
    outType: c.out_dtype,
    finish: asIs,
  };
}

function conv(c) {
  if (c.out_dtype !== c.x_dtype) throw new Skip('QLinearConv has one type of input and output');
  const zeros = Array.isArray(c.w_zp) ? c.w_zp : [c.w_zp];
  if (zeros.some(zero => zero !== zeros[0]))
    throw new Skip('QLinearConv takes one zero point for all weights');
  return {
    operator: 'QLinearConv',
    opset: 10,
    attributes: {
      kernel_shape: [c.R, c.S],
      strides: c.stride,
      pads: onnxPads(c.pad),
      dilations: c.dilation,
      group: c.groups,
    },
    inputs: [
      ['x', c.x_dtype, planes(c.x_dtype, c.x, [c.N, c.H, c.W, c.IC])],
      ['x_scale', 'f32', parameter('f32', c.x_scale)],
      ['x_zp', c.x_dtype, parameter(c.x_dtype, c.x_zp)],
      ['w', c.w_dtype, planes(c.w_dtype, c.w, [c.OC, c.R, c.S, c.IC / c.groups])],
      ['w_scale', 'f32', parameter('f32', c.w_scale)],
      ['w_zp', c.w_dtype, parameter(c.w_dtype, c.w_zp)],
      ['y_scale', 'f32', parameter('f32', c.out_scale)],
      ['y_zp', c.out_dtype, parameter(c.out_dtype, c.out_zp)],
      ...(c.bias_i32 ? [['bias', 's32', tensor('s32', c.bias_i32, [c.OC])]] : []),
    ],
    outType: c.out_dtype,
    finish: toNhwc,
  };
}

const quantize = c => ({
  operator: 'QuantizeLinear',
  opset: 13,
  attributes: {axis: 1},
  inputs: [
    ['x', 'f32', tensor('f32', c.x, [c.M, c.N])],
    ['y_scale', 'f32', parameter('f32', c.out_scale)],
    ['y_zp', c.out_dtype, parameter(c.out_dtype, c.out_zp)],
  ],
  outType: c.out_dtype,
  finish: asIs,
});

const dequantize = c => ({
  operator: 'DequantizeLinear',
  opset: 13,
  attributes: {axis: 1},
  inputs: [
    ['x', c.x_dtype, tensor(c.x_dtype, c.x, [c.M, c.N])],
    ['x_scale', 'f32', parameter('f32', c.x_scale)],
    ['x_zp', c.x_dtype, parameter(c.x_dtype, c.x_zp)],
  ],
  outType: 'f32',
  finish: asIs,
});

function binary(operator, c) {
  if (c.out_dtype !== c.x_dtype) throw new Skip(`${operator} has one type of input and output`);
  const type = c.x_dtype;
  return {
    operator,
    domain: MS,
    opset: 13,
    attributes: {},
    inputs: [
      ['a', type, tensor(type, c.a, [c.M, c.N])],
      ['a_scale', 'f32', parameter('f32', c.a_scale)],
      ['a_zp', type, parameter(type, c.a_zp)],
      ['b', type, tensor(type, c.b, [c.M, c.N])],
      ['b_scale', 'f32', parameter('f32', c.b_scale)],
      ['b_zp', type, parameter(type, c.b_zp)],
      ['y_scale', 'f32', parameter('f32', c.out_scale)],
      ['y_zp', type, parameter(type, c.out_zp)],
    ],
    outType: type,
    finish: asIs,
  };
}

function concat(c) {
  if (c.out_dtype !== c.x_dtype) throw new Skip('QLinearConcat has one type of input and output');
  const type = c.x_dtype;
  return {
    operator: 'QLinearConcat',
    domain: MS,
    opset: 13,
    attributes: {axis: 1},
    inputs: [
      ['y_scale', 'f32', parameter('f32', c.out_scale)],
      ['y_zp', type, parameter(type, c.out_zp)],
      ['a', type, tensor(type, c.a, [c.M, c.NA])],
      ['a_scale', 'f32', parameter('f32', c.a_scale)],
      ['a_zp', type, parameter(type, c.a_zp)],
      ['b', type, tensor(type, c.b, [c.M, c.NB])],
      ['b_scale', 'f32', parameter('f32', c.b_scale)],
      ['b_zp', type, parameter(type, c.b_zp)],
    ],
    outType: type,
    finish: asIs,
  };
}

// [OH, OW]; ceil mode as PyTorch: a window starts inside the input or the padding before it.
function outputSize(c) {
  const along = (size, before, after, kernel, stride, dilation) => {
    const rest = size + before + after - dilation * (kernel - 1) - 1;
    if (rest < 0 || size === 0) return 0;
    const count = (c.ceil_mode ? Math.ceil(rest / stride) : Math.floor(rest / stride)) + 1;
    return (count - 1) * stride >= size + before && c.ceil_mode ? count - 1 : count;
  };
  const [dh, dw] = c.dilation ?? [1, 1];
  return [
    along(c.H, c.pad[0], c.pad[1], c.R, c.stride[0], dh),
    along(c.W, c.pad[2], c.pad[3], c.S, c.stride[1], dw),
  ];
}
function checkWindow(c) {
  if (c.pad[0] >= c.R || c.pad[1] >= c.R || c.pad[2] >= c.S || c.pad[3] >= c.S)
    throw new Skip('pools take paddings smaller than the kernel');
}
// NHWC, where the window positions are ours.
function windowsOf(c, output) {
  const [oh, ow] = outputSize(c);
  if (output.dims[2] !== oh || output.dims[3] !== ow)
    throw new Skip('in ceil mode ONNX Runtime has a window that starts in the padding behind');
  return toNhwc(output);
}

// MlasQLinearGlobalAveragePool refuses others (core/mlas/lib/qlgavgpool.cpp).
function checkGlobalMultiplier(c) {
  const scale = Math.fround(
      float(c.x_scale) / Math.fround(float(c.out_scale) * Math.fround(c.H * c.W)));
  if (!(scale >= 2 ** -32 && scale < 256))
    throw new Skip('the multiplier of a global average must be in [2^-32, 256)');
}
function averagePool(c) {
  checkWindow(c);
  if (c.R === c.H && c.S === c.W && c.pad.every(pad => pad === 0)) checkGlobalMultiplier(c);
  return {
    ...quantizedPool('QLinearAveragePool', {
      kernel_shape: [c.R, c.S],
      strides: c.stride,
      pads: onnxPads(c.pad),
      ceil_mode: c.ceil_mode ? 1 : 0,
      count_include_pad: c.count_include_pad ? 1 : 0,
    }, c),
    finish: output => windowsOf(c, output),
  };
}
function globalAveragePool(c) {
  checkGlobalMultiplier(c);
  return quantizedPool('QLinearGlobalAveragePool', {}, c);
}
function maxPool(c) {
  checkWindow(c);
  return {
    operator: 'MaxPool',
    opset: 12,
    attributes: {
      kernel_shape: [c.R, c.S],
      strides: c.stride,
      pads: onnxPads(c.pad),
      dilations: c.dilation,
      ceil_mode: c.ceil_mode ? 1 : 0,
    },
    inputs: [['x', c.x_dtype, planes(c.x_dtype, c.x, [c.N, c.H, c.W, c.C])]],
    outType: c.x_dtype,
    finish: output => windowsOf(c, output),
  };
}

function unary(operator, attributes, c, x, outScale, outZero) {
  if (c.out_dtype !== c.x_dtype) throw new Skip(`${operator} has one type of input and output`);
  const type = c.x_dtype;
  return {
    operator,
    domain: MS,
    opset: 13,
    attributes,
    inputs: [
      ['x', type, x],
      ['x_scale', 'f32', parameter('f32', c.x_scale)],
      ['x_zp', type, parameter(type, c.x_zp)],
      ['y_scale', 'f32', parameter('f32', outScale)],
      ['y_zp', type, parameter(type, outZero)],
    ],
    outType: type,
    finish: asIs,
  };
}
const matrix = c => tensor(c.x_dtype, c.x, [c.M, c.N]);
function table(c) {
  if (c.function === 'leaky_relu') {
    const attributes = {alpha: {float: float(c.negative_slope)}};
    return unary('QLinearLeakyRelu', attributes, c, matrix(c), c.out_scale, c.out_zp);
  }
  if (c.function === 'sigmoid')
    return unary('QLinearSigmoid', {}, c, matrix(c), c.out_scale, c.out_zp);
  throw new Skip(`there is no quantized operator for ${c.function}`);
}
const softmax = c => unary(
    'QLinearSoftmax', {axis: -1, opset: 13}, c, matrix(c), 1 / 256, c.x_dtype === 's8' ? -128 : 0);

function quantizedPool(operator, attributes, c) {
  const x = planes(c.x_dtype, c.x, [c.N, c.H, c.W, c.C]);
  return {...unary(operator, attributes, c, x, c.out_scale, c.out_zp), finish: toNhwc};
}

const OPERATIONS = {
  linear,
  conv2d: conv,
  depthwise: conv,
  quantize,
  dequantize,
  add: c => binary('QLinearAdd', c),
  mul: c => binary('QLinearMul', c),
  concat,
  max_pool: maxPool,
  avg_pool: averagePool,
  global_avg_pool: globalAveragePool,
  table,
  softmax,
};

// ---- Sessions ----

const OPTIONS = {
  executionProviders: ['cpu'],
  graphOptimizationLevel: 'disabled',
  intraOpNumThreads: 1,
  interOpNumThreads: 1,
  executionMode: 'sequential',
  enableMemPattern: false,
  logSeverityLevel: 4,
};
const MOST_SESSIONS = 2000;  // geometries of windows are attributes
const sessions = new Map();
async function sessionOf(plan) {
  const signature = plan.inputs.map(([name, type]) => [name, type]);
  const key = JSON.stringify([plan.operator, plan.attributes, signature, plan.outType]);
  let session = sessions.get(key);
  if (session === undefined) {
    if (sessions.size >= MOST_SESSIONS) {
      for (const old of sessions.values()) await old.release();
      sessions.clear();
    }
    const model = makeModel(
        plan.operator, plan.domain ?? '', plan.opset, plan.attributes, signature, plan.outType);
    session = await ort.InferenceSession.create(model, OPTIONS);
    sessions.set(key, session);
  }
  return session;
}

async function answer(request) {
  try {
    const plan = OPERATIONS[request.case.op](request.case);
    const session = await sessionOf(plan);
    const feeds = {};
    for (const [name, , value] of plan.inputs) feeds[name] = value;
    const {y} = await session.run(feeds);
    return {id: request.id, y: answerOf(plan.finish(y))};
  } catch (error) {
    if (error instanceof Skip) return {id: request.id, skip: error.message};
    return {id: request.id, error: String(error.message ?? error).split('\n')[0]};
  }
}

// ---- What it can do ----

const CODES = ['u8', 's8'];
const HELLO = {
  qualm_pipe: 1,
  name: 'ONNX Runtime',
  version,
  contract: `model:onnxruntime@${instructionSet}`,
  instruction_set: instructionSet,
  ops: {
    linear: {x: CODES, w: CODES, out: ['u8', 's8', 's32'], features: ['per_channel', 'empty']},
    conv2d: {
      x: CODES, w: CODES, out: CODES,
      features: ['bias_i32', 'per_channel', 'dilation', 'groups', 'asymmetric_padding'],
    },
    depthwise: {
      x: CODES, w: CODES, out: CODES,
      features: ['bias_i32', 'per_channel', 'dilation', 'asymmetric_padding'],
    },
    quantize: {x: ['f32'], out: CODES, features: ['per_channel', 'empty']},
    dequantize: {x: CODES, out: ['f32'], features: ['per_channel', 'empty']},
    add: {x: CODES, w: CODES, out: CODES, features: ['empty']},
    mul: {x: CODES, w: CODES, out: CODES, features: ['empty']},
    concat: {x: CODES, w: CODES, out: CODES, features: ['empty']},
    // No "empty" where the window or the weights have a size: only the number of images may be 0.
    max_pool: {x: CODES, out: CODES, features: ['dilation', 'asymmetric_padding', 'ceil_mode']},
    avg_pool:
        {x: CODES, out: CODES, features: ['asymmetric_padding', 'ceil_mode', 'count_padding']},
    global_avg_pool: {x: CODES, out: CODES},
    table: {x: CODES, out: CODES, features: ['empty']},
    softmax: {x: CODES, out: CODES},
  },
};

// ---- The pipe ----

// Line by line, in order. Chunks of a line are joined once: it may be many megabytes long.
async function* lines(stream) {
  let parts = [];
  for await (const chunk of stream) {
    let rest = chunk;
    for (let end; (end = rest.indexOf(10)) >= 0; rest = rest.subarray(end + 1)) {
      parts.push(rest.subarray(0, end));
      yield Buffer.concat(parts).toString('utf8');
      parts = [];
    }
    parts.push(rest);
  }
}

for await (const line of lines(process.stdin)) {
  const message = JSON.parse(line);
  const reply = message.qualm_pipe !== undefined ? HELLO : await answer(message);
  if (!process.stdout.write(JSON.stringify(reply) + '\n')) {
    await new Promise(resolve => process.stdout.once('drain', resolve));
  }
}
