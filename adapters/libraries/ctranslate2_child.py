# SPDX-License-Identifier: Apache-2.0
"""CTranslate2's int8 layers behind qualm's pipe protocol: each case is a language model whose embeddings
are the rows of x, and whose output projection is the layer.

    python3 ctranslate2_child.py

CTranslate2 chooses the scale of each row itself, 127 over its largest value. So x and w get one more
column, of codes 127 in x and 0 in w: then it finds the codes of the case. The one layer between
embeddings and projection, which a model has to have, adds zeros.
"""
import os
import tempfile

from library_child import Skip, array, flat, judged, processor_flags, reals, serve

HELD = ((4, 8),)


class Engine:
    def __init__(self, _):
        os.environ.update(CT2_VERBOSE="-3", CT2_USE_MKL="0")  # before the library reads it
        import ctranslate2
        from ctranslate2.specs import transformer_spec

        if "avx512_vnni" not in processor_flags():
            raise Skip("held only on processors with AVX-512 VNNI")
        self.library, self.spec = ctranslate2, transformer_spec.TransformerDecoderModelSpec

    def hello(self):
        return {"name": "CTranslate2", "version": judged(self.library.__version__, *HELD),
                "contract": "model:ctranslate2",
                "ops": {"linear": {"x": ["s8"], "w": ["s8"], "out": ["f32"], "x_zp": [0, 0],
                                   "w_zp": [0, 0], "k_max": 1000,
                                   "features": ["bias_f32", "per_channel", "empty_k"]}}}

    def linear(self, c):
        import numpy

        m, n, k = c["M"], c["N"], c["K"]
        if min(c["x"], default=0) < -127:
            raise Skip("the code -128, which CTranslate2 makes of no value")

        def reciprocals(scales, count):
            return numpy.float32(1) / array(scales * (count // len(scales)), "f32", -1)

        def zeros(*shape):
            return numpy.zeros(shape, "float32")

        spec = self.spec.from_config(num_layers=1, num_heads=1, no_final_norm=True, alibi=True)
        decoder = spec.decoder
        decoder.scale_embeddings = False
        # The first three tokens are those that every vocabulary has.
        rows = numpy.pad(array(c["x"], "s8", (m, k)), ((3, 0), (0, 1)), constant_values=127)
        decoder.embeddings.weight = rows
        decoder.embeddings.weight_scale = reciprocals([*reals(c["x_scale"])], m + 3)
        decoder.projection.weight = numpy.pad(array(c["w"], "s8", (n, k)), ((0, 0), (0, 1)))
        decoder.projection.weight_scale = reciprocals(reals(c["w_scale"]), n)
        if c.get("bias") is not None:
            decoder.projection.bias = array(c["bias"], "f32", (n,))
        attention, ffn = decoder.layer[0].self_attention, decoder.layer[0].ffn
        for norm in attention.layer_norm, ffn.layer_norm:
            norm.gamma, norm.beta = zeros(k + 1), zeros(k + 1)
        for layer, outputs, inputs in ((attention.linear[0], 3 * (k + 1), k + 1),
                                       (attention.linear[1], k + 1, k + 1),
                                       (ffn.linear_0, 1, k + 1), (ffn.linear_1, k + 1, 1)):
            layer.weight, layer.bias = zeros(outputs, inputs), zeros(outputs)
        spec.register_vocabulary(["<unk>", "<s>", "</s>"] + ["%d" % i for i in range(m)])
        spec.validate()
        with tempfile.TemporaryDirectory() as folder:
            spec.save(folder)
            model = self.library.Generator(folder, device="cpu", compute_type="int8_float32",
                                           inter_threads=1, intra_threads=1)
        return flat(numpy.array(model.forward_batch([["%d" % i for i in range(m)]],
                                                  return_log_probs=False))[0])


serve(Engine)
