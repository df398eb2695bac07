# SPDX-License-Identifier: Apache-2.0
"""Runs whole models on ONNX Runtime's wheel for `qualm explain model.onnx` (models_child.py).

Graph optimizations are ONNX Runtime's default.
"""
from models_child import serve


class Onnxruntime:
    def __init__(self, _):
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


serve(Onnxruntime)
