# SPDX-License-Identifier: Apache-2.0
"""Runs whole models on ONNX Runtime's wheel: for `qualm explain model.onnx` in a process of its own
(models_child.py), for qualm.record_onnx in that of its caller.

Graph optimizations are ONNX Runtime's default.
"""

class Runtime:
    def __init__(self, _=""):
        import onnxruntime

        self.library = onnxruntime
        self.name = "ONNX Runtime " + onnxruntime.__version__

    def run(self, question):
        options = self.library.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.add_session_config_entry("session.model_external_initializers_file_folder_path",
                                         question.folder)
        session = self.library.InferenceSession(question.model, options,
                                                providers=["CPUExecutionProvider"])
        wanted = {given.name for given in session.get_inputs()}
        return session.run(question.wanted,
                           {name: v for name, v in question.inputs.items() if name in wanted})


if __name__ == "__main__":
    from models_child import serve

    serve(Runtime)
