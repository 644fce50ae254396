"""What a training step costs whatever the machine: operations, bytes, weights. Counted in its graph, not timed."""

import numpy as np
import tensorflow as tf
from tensorflow.python.profiler.model_analyzer import profile
from tensorflow.python.profiler.option_builder import ProfileOptionBuilder

from benchmarks.measure import forget
from tfp_flowify import zoo

#: Networks, shapes of images and sizes of the batch of one device.
STEPS = [
    (name, shape, batch_size)
    for names, batch_size in ((("fconv1", "fconv2", "fconv2_nsf"), 128), (("best", "best_large"), 64))
    for name in names
    for shape in ((32, 32, 3), (64, 64, 3))
]


def measure_costs() -> list:
    """A row for each network and size of images."""
    rows = []
    for name, shape, batch_size in STEPS:
        forget()
        flow = zoo.build(name, shape, levels=256, seed=0)
        flow.compile("adam", jit_compile=False)
        flow.optimizer.build(flow.trainable_variables)
        step = tf.function(flow.train_step, autograph=False)
        graph = step.get_concrete_function(tf.TensorSpec([batch_size, *shape], tf.uint8)).graph
        options = ProfileOptionBuilder(ProfileOptionBuilder.float_operation()).with_empty_output().build()
        rows.append(
            {
                "network": name,
                "side": shape[0],
                "batch": batch_size,
                "weights": sum(int(np.prod(weight.shape)) for weight in flow.trainable_variables),
                "gflop": profile(graph, options=options).total_float_ops / 1e9,
                "gigabytes": sum(map(_bytes_written, graph.get_operations())) / 1e9,
                "operations": len(graph.get_operations()),
            }
        )
    return rows


def _bytes_written(operation) -> int:
    """The size of what an operation gives; of constants, views and variables nothing is written."""
    if operation.type in ("Const", "Identity", "Reshape", "ReadVariableOp", "Placeholder", "Shape", "StopGradient"):
        return 0
    sizes = [
        (tensor.shape.num_elements() or 0) * tensor.dtype.size for tensor in operation.outputs if tensor.dtype.size
    ]
    return sum(sizes)
