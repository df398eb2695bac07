// SPDX-License-Identifier: Apache-2.0
// Whole models on ONNX Runtime's npm package, for `qualm explain model.onnx` where its wheel is absent.
// models_child.py says how it is asked, and answers the same of the wheel.
//
//   node onnxruntime_models.mjs PACKAGE_FOLDER
import fs from 'node:fs';
import {createRequire} from 'node:module';
import path from 'node:path';
import readline from 'node:readline';

const require = createRequire(path.resolve(process.argv[2], 'package.json'));
const ort = require('onnxruntime-node');

// TensorProto.DataType: ONNX Runtime's name, and the array that holds it.
const TYPES = {
  1: ['float32', Float32Array],
  2: ['uint8', Uint8Array],
  3: ['int8', Int8Array],
  4: ['uint16', Uint16Array],
  5: ['int16', Int16Array],
  6: ['int32', Int32Array],
  7: ['int64', BigInt64Array],
  9: ['bool', Uint8Array],
};
const NUMBERS = Object.fromEntries(Object.entries(TYPES).map(([number, [name]]) => [name, number]));

function tensor(folder, place, type, dims) {
  const [name, Array] = TYPES[type];
  const {buffer, byteOffset, byteLength} = fs.readFileSync(path.join(folder, `${place}.bin`));
  const elements = new Array(buffer.slice(byteOffset, byteOffset + byteLength));
  return new ort.Tensor(name, elements, dims === '-' ? [] : dims.split(',').map(Number));
}

async function answer(folder) {
  const feeds = {}, places = [], wanted = [];
  let beside = '.';  // where data outside of the model lie
  for (const line of fs.readFileSync(path.join(folder, 'question.txt'), 'utf8').split('\n')) {
    const [word, ...rest] = line.split(' ');
    if (word === 'folder') beside = rest.join(' ');
    if (word === 'input') feeds[rest.slice(3).join(' ')] = tensor(folder, ...rest);
    if (word === 'output') {
      places.push(rest[0]);
      wanted.push(rest.slice(1).join(' '));
    }
  }
  const session = await ort.InferenceSession.create(fs.readFileSync(path.join(folder, 'model')), {
    executionProviders: ['cpu'],
    intraOpNumThreads: 1,
    interOpNumThreads: 1,
    logSeverityLevel: 4,
    extra: {session: {model_external_initializers_file_folder_path: beside}},
  });
  try {
    const known = new Set(session.inputNames);
    const values = await session.run(
        Object.fromEntries(Object.entries(feeds).filter(([name]) => known.has(name))), wanted);
    let told = '';
    wanted.forEach((name, i) => {
      const {type, dims, data} = values[name];
      if (NUMBERS[type] === undefined) return;
      told += `${places[i]} ${NUMBERS[type]} ${dims.join(',') || '-'}\n`;
      fs.writeFileSync(path.join(folder, `answer-${places[i]}.bin`),
                       new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
    });
    fs.writeFileSync(path.join(folder, 'answer.txt'), told);
  } finally {
    await session.release();
  }
}

// What a library prints must not touch the lines of the protocol.
console.log = console.info = console.error;
const say = line => fs.writeSync(1, line + '\n');
say(`hello ONNX Runtime ${require('onnxruntime-node/package.json').version}`);
for await (const folder of readline.createInterface({input: process.stdin})) {
  try {
    await answer(folder);
    say('ok');
  } catch (error) {
    say('error ' + String(error.message ?? error).split(/\s+/).join(' ').slice(0, 400));
  }
}
