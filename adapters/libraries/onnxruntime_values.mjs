// SPDX-License-Identifier: Apache-2.0
// The values of a case as typed arrays and back, and their layouts.

export const ARRAY = {f32: Float32Array, u8: Uint8Array, s8: Int8Array, s32: Int32Array};
export const NAME = {f32: 'float32', u8: 'uint8', s8: 'int8', s32: 'int32'};

// A float of a case: a number or "0x1.8p-3", "inf", "-inf", "nan:7fc00000".
const HEX_FLOAT = /^(-?)0x([0-9a-f]+)(?:\.([0-9a-f]*))?p([+-]?\d+)$/i;
export function float(value) {
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
    if (String(value).startsWith('nan:')) bits[i] = parseInt(value.slice(4), 16);
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
export function answerOf(array) {
  if (!(array instanceof Float32Array)) return Array.from(array);
  const bits = new Uint32Array(array.buffer, array.byteOffset, array.length);
  return Array.from(array, (value, i) => floatText(value, bits[i]));
}

export const arrayOf =
    (type, values) => type === 'f32' ? floats(values) : ARRAY[type].from(values);

// To another order of axes: `order` says which axis of `dims` each axis of the result is.
export function transpose(array, dims, order) {
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
export const NHWC_TO_NCHW = [0, 3, 1, 2];
export const NCHW_TO_NHWC = [0, 2, 3, 1];
