// SPDX-License-Identifier: Apache-2.0
// ONNX Runtime as a pipe child (docs/pipe.md): its quantized operators, through the npm package
// onnxruntime-node, or onnxruntime-web, which is compiled to WebAssembly. A model has one node; of
// dynamic_linear the nodes that quantize_dynamic makes.
//
//   node onnxruntime_child.mjs PACKAGE_FOLDER INSTRUCTION_SET [constant|nbits|constant+nbits]
//
// PACKAGE_FOLDER holds node_modules/onnxruntime-node. INSTRUCTION_SET (sse41, avx2, vnni) is the
// one that MLAS finds, as the adapter knows it; it names the contract. With wasm it is
// onnxruntime-web that is asked. With "nbits" linear is MatMulNBits, of f32 x, and nothing else is
// offered.
//
// Scales, zero points and weights are inputs of the model and shapes are left open, so that one
// session per (operator, types, attributes) serves all cases. With "constant" all but the first
// input are part of the model, and one session serves the cases that differ in the first input
// alone. Graph optimisations are off: each answer is that of the operator's own kernel, not of a
// fusion.
import fs from 'node:fs';
import {createRequire} from 'node:module';
import path from 'node:path';

import {makeModel} from './onnxruntime_model.mjs';
import {nBitsLinear, OPERATIONS, Skip} from './onnxruntime_operators.mjs';
import {answerOf, NAME} from './onnxruntime_values.mjs';

const [folder, instructionSet, option = ''] = process.argv.slice(2);
const require = createRequire(path.resolve(folder, 'package.json'));
const WASM = instructionSet === 'wasm';
const PACKAGE = WASM ? 'onnxruntime-web' : 'onnxruntime-node';
const ort = require(PACKAGE);
const {version} =
    JSON.parse(fs.readFileSync(path.resolve(folder, 'node_modules', PACKAGE, 'package.json')));
if (WASM) ort.env.wasm.numThreads = 1;

const OPTIONS = {
  executionProviders: [WASM ? 'wasm' : 'cpu'],
  graphOptimizationLevel: 'disabled',
  intraOpNumThreads: 1,
  interOpNumThreads: 1,
  executionMode: 'sequential',
  enableMemPattern: false,
  logSeverityLevel: 4,
};
// Without "constant" geometries of windows are attributes; with it a session is a layer, with the
// weights that it has packed, and few are kept: a later case of the same layer runs on the same one.
const CONSTANT = option.startsWith('constant');
const N_BITS = option.endsWith('nbits');
const MOST_SESSIONS = CONSTANT ? 8 : 2000;
const sessions = new Map();  // the one asked last comes last
const bytesOf = ({buffer, byteOffset, byteLength}) =>
    Buffer.from(buffer, byteOffset, byteLength).toString('latin1');
async function sessionOf(plan, fed) {
  const {operator, nodes, attributes, type} = plan;
  const inputs = plan.inputs.map(
      ([name, of, data, dims], i) => i >= fed    ? [name, of, dims, bytesOf(data)]
                                     : plan.shapes ? [name, of, dims]
                                                   : [name, of]);
  const key = JSON.stringify([operator, nodes, attributes, type, inputs]);
  const session =
      sessions.get(key) ?? await ort.InferenceSession.create(makeModel(plan, fed), OPTIONS);
  sessions.delete(key);
  sessions.set(key, session);
  if (sessions.size > MOST_SESSIONS) {
    const [oldest, old] = sessions.entries().next().value;
    sessions.delete(oldest);
    await old.release();
  }
  return session;
}
async function run(plan) {
  const fed = CONSTANT ? 1 : plan.inputs.length;
  const session = await sessionOf(plan, fed);
  const feeds = {};
  for (const [name, type, data, dims] of plan.inputs.slice(0, fed))
    feeds[name] = new ort.Tensor(NAME[type], data, dims);
  const {y} = await session.run(feeds);
  return y;
}

async function answer(request) {
  try {
    const plan = (N_BITS ? nBitsLinear : OPERATIONS[request.case.op])(request.case);
    const y = await run(plan);
    return {id: request.id, y: answerOf(plan.finish(y.data, y.dims))};
  } catch (error) {
    if (error instanceof Skip) return {id: request.id, skip: error.message};
    return {id: request.id, error: String(error.message ?? error).split('\n')[0]};
  }
}

// What it can do. Of sums without terms (K = 0) ONNX Runtime 1.30 leaves the output unwritten, and
// QLinearConv reads the zero point of no channel through a null pointer: neither is asked for.
// Windows without pixels, and a softmax of no columns, are errors.
const CODES = ['u8', 's8'];
const HELLO = {
  qualm_pipe: 1,
  name: 'ONNX Runtime',
  version,
  contract: N_BITS ? 'sum' : `model:onnxruntime@${instructionSet}`,
  instruction_set: instructionSet,
  ops: N_BITS ? {
    linear: {
      x: ['f32'], w: ['u4', 's4', 'u8', 's8', 'u2', 's2'], out: ['f32'],
      features: ['float_x', 'per_block', 'per_channel', 'bias_f32'],
    },
  } : {
    linear: {
      x: CODES, w: CODES, out: ['u8', 's8', 's32'],
      features: ['bias_i32', 'per_channel', 'empty'],
    },
    choose_qparams: {rules: ['onnx'], features: ['codes']},
    dynamic_linear: {x: ['f32'], w: CODES, out: ['f32'], features: ['bias_f32', 'per_channel', 'empty']},
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
    max_pool: {x: CODES, out: CODES, features: ['dilation', 'asymmetric_padding', 'ceil_mode']},
    avg_pool:
        {x: CODES, out: CODES, features: ['asymmetric_padding', 'ceil_mode', 'count_padding']},
    global_avg_pool: {x: CODES, out: CODES},
    table: {x: CODES, out: CODES, features: ['empty']},
    softmax: {x: CODES, out: CODES},
  },
};

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
