// SPDX-License-Identifier: Apache-2.0
// Writes an ONNX model: the few messages of onnx.proto that it takes, by field number.

export const MS = 'com.microsoft';

function varint(value) {
  const bytes = [];
  // Negative integers are 64-bit two's complement.
  for (let rest = BigInt.asUintN(64, BigInt(value)); ; rest >>= 7n) {
    if (rest < 128n) return [...bytes, Number(rest)];
    bytes.push(Number(rest & 127n) | 128);
  }
}
const integer = (field, value) => [...varint(field << 3), ...varint(value)];
const bytes =
    (field, content) => [...varint(field << 3 | 2), ...varint(content.length), ...content];
const text = (field, content) => bytes(field, [...Buffer.from(content, 'utf8')]);
const float32 =
    (field, value) => [...varint(field << 3 | 5), ...new Uint8Array(Float32Array.of(value).buffer)];

// TensorProto.DataType.
export const ELEMENT = {f32: 1, u8: 2, s8: 3, s32: 6};

// AttributeProto: name 1, f 2, i 3, ints 8, type 20 (1 FLOAT, 2 INT, 7 INTS).
function attribute(name, value) {
  if (Array.isArray(value))
    return [...text(1, name), ...value.flatMap(v => integer(8, v)), ...integer(20, 7)];
  if (typeof value === 'object')
    return [...text(1, name), ...float32(2, value.float), ...integer(20, 1)];
  return [...text(1, name), ...integer(3, value), ...integer(20, 2)];
}
// ValueInfoProto: name 1, type 2; TypeProto: tensor_type 1; TypeProto.Tensor: elem_type 1, shape 2;
// TensorShapeProto: dim 1, of which each has dim_value 1. No shape: any.
const shape = dims => bytes(2, dims.flatMap(dim => bytes(1, integer(1, dim))));
const valueInfo = (name, type, dims) => [
  ...text(1, name),
  ...bytes(2, bytes(1, [...integer(1, ELEMENT[type]), ...(dims ? shape(dims) : [])])),
];

// TensorProto: dims 1, data_type 2, name 8, raw_data 9 (little endian).
const initializer = ([name, type, data, dims]) => [
  ...dims.flatMap(dim => integer(1, dim)),
  ...integer(2, ELEMENT[type]),
  ...text(8, name),
  ...bytes(9, [...new Uint8Array(data.buffer, data.byteOffset, data.byteLength)]),
];

// NodeProto: input 1, output 2, op_type 4, attribute 5, domain 7.
const nodeProto = ({operator, domain, attributes, from, to}) => [
  ...from.flatMap(name => text(1, name)),
  ...to.flatMap(name => text(2, name)),
  ...text(4, operator),
  ...Object.entries(attributes ?? {}).flatMap(([name, value]) => bytes(5, attribute(name, value))),
  ...text(7, domain),
];

// ModelProto: ir_version 1, graph 7, opset_import 8; OperatorSetIdProto: domain 1, version 2;
// GraphProto: node 1, name 2, initializer 5, input 11, output 12. A plan has one node, which takes
// its inputs in their order, or a list of `nodes` with the names that each goes from and to; the
// last one goes to y. Attributes are integers, lists of them or {float: number}; `inputs` are
// [name, type, data, dims], all but the first `variable` of which become constants of the model;
// with `shapes` the dims of the others are part of it too.
export function makeModel(plan, variable) {
  const {opset, inputs, type} = plan;
  const nodes = plan.nodes ?? [{...plan, from: inputs.map(([name]) => name), to: ['y']}];
  const graph = [
    ...nodes.flatMap(node => bytes(1, nodeProto(node))),
    ...text(2, 'g'),
    ...inputs.slice(variable).flatMap(input => bytes(5, initializer(input))),
    ...inputs.slice(0, variable).flatMap(
        ([name, of, , dims]) => bytes(11, valueInfo(name, of, plan.shapes && dims))),
    ...bytes(12, valueInfo('y', type)),
  ];
  return Uint8Array.from([
    ...integer(1, 8),
    ...bytes(7, graph),
    ...bytes(8, [...text(1, ''), ...integer(2, opset)]),
    ...bytes(8, [...text(1, MS), ...integer(2, 1)]),
  ]);
}
