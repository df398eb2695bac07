# SPDX-License-Identifier: Apache-2.0
"""Runs whole models on TensorFlow Lite's interpreter (LiteRT): for `qualm explain model.tflite` in a
process of its own (models_child.py), for qualm.record_onnx in that of its caller.

    python3 litert_models.py reference|builtin|xnnpack

A name of a value is the index of its tensor. The reference and the optimized kernels keep all tensors
(experimental_preserve_all_tensors); the delegate XNNPACK has only outputs to show, so that the values
between its nodes are made outputs of the model.
"""
import os

# Who computes, and what the interpreter calls that; litert_child.py has the same choice.
RESOLVERS = {"reference": "BUILTIN_REF", "builtin": "BUILTIN_WITHOUT_DEFAULT_DELEGATES",
             "xnnpack": "BUILTIN"}
KERNELS = {"reference": ", reference kernels", "builtin": ", optimized kernels",
           "xnnpack": " with XNNPACK"}


class Runtime:
    def __init__(self, option):
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        from importlib import metadata

        import flatbuffers
        import numpy
        from ai_edge_litert import interpreter
        from ai_edge_litert import schema_py_generated as schema

        self.flatbuffers, self.schema, self.interpreter = flatbuffers, schema, interpreter
        self.numpy = numpy
        self.keeps = option != "xnnpack"
        self.resolver = getattr(interpreter.OpResolverType, RESOLVERS[option])
        self.name = "LiteRT " + metadata.version("ai-edge-litert") + KERNELS[option]

    def packed(self, model):
        builder = self.flatbuffers.Builder(1024)
        builder.Finish(model.Pack(builder), b"TFL3")
        return bytes(builder.Output())

    def unpacked(self, content):
        return self.schema.ModelT.InitFromObj(self.schema.Model.GetRootAs(content, 0))

    def run(self, question):
        content = question.model
        wanted = [int(name) for name in question.wanted]
        inputs = {int(name): value for name, value in question.inputs.items()}
        if question.node is not None:
            content = self.alone(content, question.node, list(inputs), wanted)
        elif not self.keeps:
            model = self.unpacked(content)
            graph = model.subgraphs[0]
            more = [index for index in wanted if index not in graph.outputs]
            if more:
                graph.outputs = [int(index) for index in graph.outputs] + more
                model.signatureDefs = None
                content = self.packed(model)
        interpreter = self.interpreter.Interpreter(
            model_content=content, num_threads=1, experimental_op_resolver_type=self.resolver,
            experimental_preserve_all_tensors=self.keeps)
        ports = {port["index"]: port for port in interpreter.get_input_details()}
        for index, value in inputs.items():
            if index in ports and list(ports[index]["shape"]) != list(value.shape):
                interpreter.resize_tensor_input(index, value.shape)
        interpreter.allocate_tensors()
        for index, value in inputs.items():
            if index in ports:
                interpreter.set_tensor(index, value)
        interpreter.invoke()
        return [self.value(interpreter, index) for index in wanted]

    def value(self, interpreter, index):
        try:
            return self.numpy.asarray(interpreter.get_tensor(index))  # scalars are arrays too
        except ValueError:  # of a type that the caller cannot hold, or not there
            return None

    def alone(self, content, node, inputs, outputs):
        """A model of one node; its tensors keep their places, its constants are in it."""
        model = self.unpacked(content)
        graph = model.subgraphs[0]
        graph.operators = [graph.operators[node]]
        graph.inputs, graph.outputs = inputs, outputs
        model.signatureDefs = None
        return self.packed(model)


if __name__ == "__main__":
    from models_child import serve

    serve(Runtime)
